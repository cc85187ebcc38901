"""Histories: the states that a base has been in, or could have been in (cuts), and the view of each.

In: the updates of base rows, in order, and a view as a function of rows. Out: cuts, and what the view holds at one.
Always: a cut has of every base row a prefix of its versions, none left out and none twice; the view of a cut is
computed once.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.errors import InputError
from viewkeeper.model.stored_values import are_stored_alike

Row = Mapping[str, object]
Base = Mapping[str, Sequence[Row]]  # the rows of each table; a table without rows has an empty list
ViewFunction = Callable[[Base], Iterable[Row]]
Cut = tuple[int, ...]  # how many updates of each base row it has
Claim = Mapping[str, int]  # a cut by positions: of each stream everything up to there
Bag = frozenset[tuple[tuple[tuple[str, object], ...], int]]  # rows, each with how often it is there
Record = tuple[object, ...]

NOTHING: Bag = frozenset()


@dataclass(frozen=True, slots=True)
class Update:
    """A base row as one write left it, whole; `row` is None if it was deleted.

    `stream` and `position` say where the log has it. Without them it is in one stream, at its place among all updates,
    from 1.
    """

    table: str
    key: Record
    row: Row | None
    stream: str = ""
    position: int | None = None


class History:
    """The versions of every base row, and what a view holds at each cut of them; a record is judged by `key` alone."""

    def __init__(
        self,
        updates: Sequence[Update],
        initial: Iterable[Update],
        view: ViewFunction,
        key: Sequence[str] | None,
        cuts_max: int,
    ) -> None:
        self._view, self._key, self._cuts_max = view, key, cuts_max
        self._versions: dict[tuple[str, Record], list[Row | None]] = {
            (update.table, _record(update.key)): [update.row] for update in initial
        }
        self._places: dict[tuple[str, Record], list[tuple[str, int]]] = {row: [] for row in self._versions}
        for index, update in enumerate(updates, 1):
            self._add(update, index if update.position is None else update.position)
        self.first: Cut = (0,) * len(self._versions)
        self.last: Cut = tuple(map(len, self._places.values()))
        self._views: dict[Cut, dict[Record, Bag]] = {}

    def _add(self, update: Update, position: int) -> None:
        row = (update.table, _record(update.key))
        versions, written = self._versions.setdefault(row, [None]), self._places.setdefault(row, [])
        if written and written[-1][0] == update.stream and written[-1][1] > position:
            raise InputError(
                f"the updates of {update.table} {update.key} are not in the order of their positions",
                "hand in the updates of a row in the order in which they were written",
            )
        if not _are_alike(update.row, versions[-1]):  # a write that changes nothing makes no version
            versions.append(update.row)
            written.append((update.stream, position))

    def claimed(self, claim: Claim) -> Cut:
        """The cut that has of every row the updates up to the positions."""
        return tuple(
            sum(1 for _ in itertools.takewhile(lambda at: at[1] <= claim.get(at[0], 0), written))
            for written in self._places.values()
        )

    def all_cuts(self) -> Iterator[Cut]:
        """Every cut; refused if there are too many to look at."""
        number = math.prod(updates + 1 for updates in self.last)
        if number > self._cuts_max:
            raise InputError(
                f"the base has {number} cuts, more than the {self._cuts_max} that are searched",
                "hand in states with the cuts they claim, or raise cuts_max",
            )
        return itertools.product(*(range(updates + 1) for updates in self.last))

    def next_cuts(self, cut: Cut) -> Iterator[Cut]:
        """The cuts with one update more."""
        for index, (updates, most) in enumerate(zip(cut, self.last, strict=True)):
            if updates < most:
                yield (*cut[:index], updates + 1, *cut[index + 1 :])

    def view_at(self, cut: Cut) -> dict[Record, Bag]:
        """What the view of a cut holds, by record; without a key it is one record, `()`."""
        if cut not in self._views:
            base: dict[str, list[Row]] = defaultdict(list)
            for updates, ((table, _), versions) in zip(cut, self._versions.items(), strict=True):
                row = versions[updates]
                if row is not None:
                    base[table].append(row)
            self._views[cut] = self.by_record(self._view(base))
        return self._views[cut]

    def record_at(self, cut: Cut, record: Record) -> Bag:
        return self.view_at(cut).get(record, NOTHING)

    @property
    def is_whole(self) -> bool:
        return self._key is None

    def by_record(self, rows: Iterable[Row]) -> dict[Record, Bag]:
        """The rows of one state of the view, apart by record."""
        if self._key is None:
            return {(): to_bag(rows)}
        found: dict[Record, list[Row]] = defaultdict(list)
        for row in rows:
            found[_record(row[name] for name in self._key)].append(row)
        return {record: to_bag(rows) for record, rows in found.items()}


def to_bag(rows: Iterable[Row]) -> Bag:
    """Rows without their order, so that equal bags are equal states; NaN equals NaN, as in SQL."""
    plain = (tuple(zip(names := sorted(row), _record(row[name] for name in names), strict=True)) for row in rows)
    return frozenset(Counter(plain).items())


def _record(values: Iterable[object]) -> Record:
    """Values to be compared and looked up: every NaN is one object, which Python takes for equal to itself."""
    return tuple(math.nan if value != value else value for value in values)


def _are_alike(row: Row | None, other: Row | None) -> bool:
    """Whether a row of the base is stored as the other is; then the store writes nothing."""
    if row is None or other is None:
        return row is other
    return row.keys() == other.keys() and all(are_stored_alike(value, other[name]) for name, value in row.items())


def is_within(cut: Cut, other: Cut) -> bool:
    """Whether `other` has all that `cut` has."""
    return all(map(int.__le__, cut, other))
