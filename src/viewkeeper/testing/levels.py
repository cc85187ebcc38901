"""Levels: how consistent with its base a view was, as its readers saw it.

In: the updates of base rows, the states that were read of a view, and the view as a function of base rows. Out: the
best level of consistency that the states have, and for each level that they do not have the first state that breaks it.
Always: judged by values alone, from the definitions in docs/levels.md; nothing is taken from how views are maintained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from viewkeeper.errors import InputError
from viewkeeper.testing.histories import (
    NOTHING,
    Bag,
    Claim,
    Cut,
    History,
    Record,
    Row,
    Update,
    ViewFunction,
    is_within,
)

__all__ = ["Break", "Level", "State", "Update", "Verdict", "observed_level"]

CUTS_MAX = 100_000
_SHOWN_MAX = 3  # rows that a reason quotes


class Level(IntEnum):
    """Each level includes those before it."""

    NONE = 0  # not even the last state is right
    CONVERGENT = 1  # the last state is the view of the final base
    WEAK = 2  # each state is the view of some cut of the base
    STRONG = 3  # … and these cuts only grow
    COMPLETE = 4  # … by one update at a time, from the initial base to the final one


@dataclass(frozen=True, slots=True)
class State:
    """The rows that one read of the view showed, and the cuts that it may be of.

    One claim is a state that names its cut; with several, each record may be of any of them; with None, any cut of the
    base will do, and is searched for.
    """

    rows: Sequence[Row]
    claims: Sequence[Claim] | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Break:
    """The first state, counted from 0, that a level does not allow; `record` is its key, `()` if the view is judged whole."""

    level: Level
    state: int
    label: str
    record: Record
    reason: str

    def __str__(self) -> str:
        where = f"state {self.state}" + (f" ({self.label})" if self.label else "")
        record = f", record {self.record}" if self.record else ""
        return f"not {self.level.name.lower()}: {where}{record} {self.reason}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best level that holds, and what keeps the view from the levels above it, lowest level first.

    A level that is not among the breaks fails only because a lower one does.
    """

    level: Level
    breaks: tuple[Break, ...] = ()

    def why_not(self, level: Level) -> Break | None:
        """What breaks a level, or one that it includes; None if it holds."""
        return next((found for found in self.breaks if found.level <= level), None)

    def __str__(self) -> str:
        return "; ".join([self.level.name.lower(), *map(str, self.breaks)])


def observed_level(
    updates: Sequence[Update],
    states: Sequence[State],
    view: ViewFunction,
    *,
    initial: Iterable[Update] = (),
    key: Sequence[str] | None = None,
    cuts_max: int = CUTS_MAX,
) -> Verdict:
    """The best level of consistency that the states of a view have.

    `initial`: the base rows before the first update. `key`: the columns that identify a record of the view; then each
    record is judged by itself, and the view has the level of its worst one. Without it a state is judged as a whole.
    """
    if not states:
        raise InputError("there is no state to judge", "hand in at least the last one")
    history = History(updates, initial, view, key, cuts_max)
    shown = [history.by_record(state.rows) for state in states]
    cuts = [
        None if state.claims is None else sorted({history.claimed(claim) for claim in state.claims}) for state in states
    ]
    found: dict[Level, Break] = {}
    for record in _records(history, shown, cuts):
        judged = _Judged(history, record, [rows.get(record, NOTHING) for rows in shown], cuts)
        for level, index, reason in judged.breaks():
            if level not in found or index < found[level].state:
                found[level] = Break(level, index, states[index].label, record, reason)
    breaks = tuple(found[level] for level in sorted(found))
    return Verdict(Level(breaks[0].level - 1) if breaks else Level.COMPLETE, breaks)


def _records(history: History, shown: Sequence[dict[Record, Bag]], cuts: Sequence[list[Cut] | None]) -> list[Record]:
    """The records of all states, and of the view at all cuts that these may be of; `()` stands for one never there."""
    if history.is_whole:
        return [()]
    looked_at: Iterable[Cut] = {history.first, history.last}.union(*(claimed for claimed in cuts if claimed))
    if any(claimed is None for claimed in cuts):
        looked_at = history.all_cuts()
    found = dict.fromkeys([(), *(record for rows in shown for record in rows)])
    return list(found | dict.fromkeys(record for cut in looked_at for record in history.view_at(cut)))


class _Judged:
    """One record: what it showed in each state, and the cuts that each may be of."""

    def __init__(
        self, history: History, record: Record, shown: Sequence[Bag], cuts: Sequence[list[Cut] | None]
    ) -> None:
        self._history, self._record, self._shown, self._cuts = history, record, shown, cuts

    def breaks(self) -> Iterator[tuple[Level, int, str]]:
        """Each level whose own condition fails, with the first state that breaks it, and why."""
        last = len(self._shown) - 1
        if not self._is(last, self._history.last):
            difference = self._difference(last, self._history.last)
            yield Level.CONVERGENT, last, f"is the last one and not the view of the final base: {difference}"
        ladder = ((Level.WEAK, self._invalid), (Level.STRONG, self._backward), (Level.COMPLETE, self._hasty))
        for level, find in ladder:
            if found := find():
                yield level, *found
                return

    def _is(self, index: int, cut: Cut) -> bool:
        return self._shown[index] == self._history.record_at(cut, self._record)

    def _invalid(self) -> tuple[int, str] | None:
        """The first state that is the view of none of the cuts that it may be of."""
        for index, cuts in enumerate(self._cuts):
            if not any(self._is(index, cut) for cut in (self._history.all_cuts() if cuts is None else cuts)):
                if cuts is None:
                    return index, "is the view of no cut of the base"
                if len(cuts) > 1:
                    return index, f"is the view of none of the {len(cuts)} cuts that it may be of"
                return index, f"is not the view of the cut that it claims: {self._difference(index, cuts[0])}"
        return None

    def _backward(self) -> tuple[int, str] | None:
        """The first state for which no growing sequence of cuts goes on."""
        reached = {self._history.first}
        for index, cuts in enumerate(self._cuts):
            if cuts is None:
                reached = self._lowest_above(index, reached)
            else:
                allowed = {cut for cut in cuts if self._is(index, cut)}
                reached = {cut for cut in allowed if any(is_within(below, cut) for below in reached)}
            # what can follow a cut can follow those within it, so these are enough
            reached = {cut for cut in reached if not any(one != cut and is_within(one, cut) for one in reached)}
            if not reached:
                return index, "goes back: it lacks an update that a state before it showed"
        return None

    def _lowest_above(self, index: int, reached: set[Cut]) -> set[Cut]:
        """The cuts above those reached that a state is the view of; above one that is found no other is needed."""
        found, seen, waiting = set(), set(reached), list(reached)
        while waiting:
            cut = waiting.pop()
            if self._is(index, cut):
                found.add(cut)
                continue
            new = [higher for higher in self._history.next_cuts(cut) if higher not in seen]
            seen.update(new)
            waiting += new
        return found

    def _hasty(self) -> tuple[int, str] | None:
        """The first state that one update more, or none, does not lead to; or the last, if updates are left."""
        reached = {self._history.first}
        for index, cuts in enumerate(self._cuts):
            near = reached.union(*(self._history.next_cuts(cut) for cut in reached))
            allowed = near if cuts is None else near.intersection(cuts)
            before, reached = reached, {cut for cut in allowed if self._is(index, cut)}
            if not reached:
                fitting = [cut for cut in cuts or () if self._is(index, cut)]
                steps = [sum(high) - sum(low) for high in fitting for low in before if is_within(low, high)]
                return index, f"adds {min(steps)} updates at once" if steps else "adds more than one update at once"
        if self._history.last not in reached:
            left = min(sum(self._history.last) - sum(cut) for cut in reached)
            return len(self._cuts) - 1, f"is the last one, and lacks {left} of the updates"
        return None

    def _difference(self, index: int, cut: Cut) -> str:
        expected, shown = self._history.record_at(cut, self._record), self._shown[index]
        parts = [("shows", shown - expected), ("and not", expected - shown)]
        return " ".join(f"{verb} {_quoted(rows)}" for verb, rows in parts if rows)


def _quoted(rows: Bag) -> str:
    texts = []
    for row, times in rows:
        # numbers by str: a SUM of DuckDB is a Decimal
        values = (f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}" for name, value in row)
        texts.append(f"({', '.join(values)})" + (f" {times} times" if times > 1 else ""))
    more = f" and {len(texts) - _SHOWN_MAX} more" if len(texts) > _SHOWN_MAX else ""
    return ", ".join(sorted(texts)[:_SHOWN_MAX]) + more
