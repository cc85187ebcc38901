"""The levels of consistency by brute force: every cut of the base for every state, straight from the definitions.

In: small histories, at most 6 rows with at most 4 versions. Out: the level, and the first state that breaks each level.
Always: shares no code with `viewkeeper.check`, and prunes nothing.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Rows = list[dict[str, object]]
Version = tuple[str, str, dict[str, object] | None]  # table, key, row
NAMES = ("NONE", "CONVERGENT", "WEAK", "STRONG", "COMPLETE")


@dataclass(frozen=True)
class Case:
    """A history: versions in the order written, states as read, and for each how many of the versions it claims."""

    view: Callable
    versions: list[Version]
    states: list[Rows]
    claims: list[list[int] | None]
    key: str | None


def level_of(case: Case) -> tuple[str, dict[str, int]]:
    """The level's name, and for each level that fails by itself the first state at which it does."""
    broken: dict[str, int] = {}
    views = {cut: case.view(_base(case, cut)) for cut in _cuts(case)}
    for record in _records(case, views) if case.key else [None]:
        for name, place in _broken(case, views, record).items():
            broken[name] = min(place, broken.get(name, place))
    lowest = min((NAMES.index(name) for name in broken), default=len(NAMES))
    return NAMES[lowest - 1], broken


def _broken(case: Case, views: dict[tuple[int, ...], Rows], record: object) -> dict[str, int]:
    cuts = list(views)
    shown = {cut: _bag(case, rows, record) for cut, rows in views.items()}
    seen = [_bag(case, rows, record) for rows in case.states]
    allowed = [cuts if claim is None else {_prefix(case, count) for count in claim} for claim in case.claims]
    fitting = [[cut for cut in choice if shown[cut] == bag] for bag, choice in zip(seen, allowed, strict=True)]
    first, last = cuts[0], cuts[-1]
    found = {} if seen[-1] == shown[last] else {"CONVERGENT": len(seen) - 1}
    empty = [place for place, choice in enumerate(fitting) if not choice]
    if empty:
        return found | {"WEAK": empty[0]}
    for name, may_follow in (("STRONG", _is_within), ("COMPLETE", _is_next)):
        for place in range(len(seen)):
            if not any(_is_chain((first, *chosen), may_follow) for chosen in itertools.product(*fitting[: place + 1])):
                return found | {name: place}
    chains = itertools.product(*fitting)
    if not any(_is_chain((first, *chosen), _is_next) and chosen[-1] == last for chosen in chains):
        found["COMPLETE"] = len(seen) - 1
    return found


def _is_chain(cuts: Sequence[tuple[int, ...]], may_follow: Callable) -> bool:
    return all(may_follow(low, high) for low, high in itertools.pairwise(cuts))


def _is_within(low: tuple[int, ...], high: tuple[int, ...]) -> bool:
    return all(a <= b for a, b in zip(low, high, strict=True))


def _is_next(low: tuple[int, ...], high: tuple[int, ...]) -> bool:
    return _is_within(low, high) and sum(high) - sum(low) <= 1


def _row_keys(case: Case) -> list[tuple[str, str]]:
    return list(dict.fromkeys((table, key) for table, key, _ in case.versions))


def _cuts(case: Case) -> Iterator[tuple[int, ...]]:
    counts = Counter((table, key) for table, key, _ in case.versions)
    return itertools.product(*(range(counts[row] + 1) for row in _row_keys(case)))


def _prefix(case: Case, count: int) -> tuple[int, ...]:
    counts = Counter((table, key) for table, key, _ in case.versions[:count])
    return tuple(counts[row] for row in _row_keys(case))


def _base(case: Case, cut: tuple[int, ...]) -> dict[str, Rows]:
    base: dict[str, Rows] = {"r": [], "s": []}
    for taken, row in zip(cut, _row_keys(case), strict=True):
        of_row = [None, *(image for table, key, image in case.versions if (table, key) == row)]
        if of_row[taken] is not None:
            base[row[0]].append(of_row[taken])
    return base


def _bag(case: Case, rows: Rows, record: object) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows if record is None or row[case.key] == record)


def _records(case: Case, views: dict[tuple[int, ...], Rows]) -> set[object]:
    every = [*case.states, *views.values()]
    return {"one that is never there", *(row[case.key] for rows in every for row in rows)}


def copied(base: dict[str, Rows]) -> Rows:
    return list(base["r"])


def summed(base: dict[str, Rows]) -> Rows:
    groups = sorted({row["x"] for row in base["r"]})
    return [{"x": x, "s": sum(row["y"] for row in base["r"] if row["x"] == x)} for x in groups]


def smallest(base: dict[str, Rows]) -> Rows:
    groups = sorted({row["x"] for row in base["r"]})
    return [{"x": x, "s": min(row["y"] for row in base["r"] if row["x"] == x)} for x in groups]


def joined(base: dict[str, Rows]) -> Rows:
    return [{**row, "z": other["y"]} for row in base["r"] for other in base["s"] if row["y"] == other["k"]]


VIEWS = {copied: "k", summed: "x", smallest: "x", joined: "k"}


class CaseMaker:
    """Random small histories: a view that follows its base, and then perhaps a defect."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def case(self) -> Case:
        choose = self._random
        view = choose.choice(list(VIEWS))
        versions = self._versions("rs" if view is joined else "r")
        bare, has_claims = Case(view, versions, [], [], None), choose.random() < 0.5
        states: list[tuple[Rows, list[int] | None]] = []
        for count in self._reached(len(versions)):
            others = choose.sample(range(len(versions) + 1), choose.choice((0, 0, 1, 2)))
            claim = [count, *others] if has_claims and choose.random() < 0.8 else None
            states.append((view(_base(bare, _prefix(bare, count))), claim))
        for _ in range(choose.choice((0, 1, 1, 2))):
            self._spoil(states)
        rows, claims = map(list, zip(*states, strict=True))
        return Case(view, versions, rows, claims, VIEWS[view] if choose.random() < 0.5 else None)

    def _versions(self, tables: str) -> list[Version]:
        versions: list[Version] = []
        last: dict[tuple[str, object], object] = {}
        for _ in range(self._random.randint(2, 5)):
            table, key = self._random.choice(tables), self._random.randrange(2)
            row = {"k": key, "x": self._random.choice("ab"), "y": self._random.randrange(3)}
            image = None if self._random.random() < 0.25 else row
            if image != last.get((table, key)):
                versions.append((table, key, image))
                last[table, key] = image
        return versions or [("r", 0, {"k": 0, "x": "a", "y": 0})]

    def _reached(self, count: int) -> list[int]:
        """How many versions each state has: growing, by one or by more."""
        steps = (1,) if self._random.random() < 0.5 else (0, 1, 1, 2, 3)
        reached = [0] if self._random.random() < 0.3 else [min(count, self._random.choice(steps))]
        while reached[-1] < count:
            reached.append(min(count, reached[-1] + self._random.choice(steps)))
        return reached if len(reached) < 5 else [*reached[:3], count]

    def _spoil(self, states: list[tuple[Rows, list[int] | None]]) -> None:
        """Plant a defect, in the last state or, more often, in one before."""
        place = self._random.randrange(max(1, len(states) - (self._random.random() < 0.8)))
        other = self._random.randrange(max(1, len(states) - 1))
        rows, claim = states[place]
        match self._random.choice("again swap swap swap swap mix value missing".split()):
            case "again":  # an older state is shown again
                states[place] = (states[other][0], claim)
            case "swap":  # two states in the wrong order, with what they claim
                states[place], states[other] = states[other], states[place]
            case "mix":  # half of one, half of another
                states[place] = (rows[:1] + states[other][0][1:], claim)
            case "value" if rows:  # a value that was never there
                states[place] = ([{**rows[0], list(rows[0])[-1]: 7}, *rows[1:]], claim)
            case "missing":  # a row is missing
                states[place] = (rows[1:], claim)
