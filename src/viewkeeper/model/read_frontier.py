"""The read frontier: which states of the views readers can see, and how long versions are kept for them.

In: the JSON of epoch record and catalog, the committed epochs, and what an operator or a reader asks for. Out: frozen
values: the facts that every read needs; the state that one read sees; the epoch down to which versions are kept. Always:
the facts are written together with their record, so a reader that checks them before and after has seen one state of the
views (R4); a read sees the versions at or below its epoch that are not aborted; marks map earlier instants to epochs, few
of them, so that the record does not grow with the time that is kept.

Read modes: `"snapshot"` (the default): the last committed epoch, the same for all records of one read. `"latest"`: the
newest version of each record, committed or not. `Bounded(seconds=…)`: a snapshot at most that old. A session: a
snapshot that holds the session's own writes and never goes back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache

from viewkeeper.errors import CorruptStore, InputError
from viewkeeper.model.json_codec import reading
from viewkeeper.model.positions import Positions, positions_from_json
from viewkeeper.model.wording import shown

_COUNTED_BELOW = 2**63  # epochs, and seconds: more is no number that anybody means, and would overflow
_MARKS = 32  # for the seconds that are kept: up to one interval between marks more is kept


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """At least the last `epochs`, and those of the last `seconds`; 0 and 0 is what readers need anyway."""

    epochs: int = 0
    seconds: float = 0
    marks: tuple[tuple[int, int], ...] = ()  # committed epochs with their stamps, oldest first
    indexed_from: int | None = None  # from this epoch on, the records that each epoch wrote are indexed

    def __post_init__(self) -> None:
        for name, value, kinds in (("epochs", self.epochs, int), ("seconds", self.seconds, int | float)):
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < _COUNTED_BELOW:
                number = "a whole number" if kinds is int else "a number"
                fact = f"{name} must be {number}, 0 or more, and less than 2^63, not {shown(value)}"
                raise InputError(fact, "0 keeps what readers need")

    def __bool__(self) -> bool:
        return bool(self.epochs or self.seconds)

    def begun(self, epoch: int) -> RetentionPolicy:
        """With an epoch begun: it and all later ones are indexed, for as long as anything is kept."""
        first = epoch if self.indexed_from is None else self.indexed_from
        return replace(self, indexed_from=first if self else None)

    def committed(self, epoch: int, stamp: int) -> RetentionPolicy:
        """With an epoch committed: marked, if the previous mark is old enough; marks no longer needed are dropped."""
        if not self.seconds:
            return replace(self, marks=())
        apart = int(self.seconds * 1e9 / _MARKS)
        marks = self.marks if self.marks and stamp - self.marks[-1][1] < apart else (*self.marks, (epoch, stamp))
        passed = [mark for mark in marks if mark[1] <= stamp - self.seconds * 1e9]
        return replace(self, marks=marks[max(0, len(passed) - 1) :])

    def floor(self, committed: int, stamp: int, kept: int) -> int:
        """The epoch after which everything is kept at `stamp`; `kept` is the floor until now."""
        floors = [committed - self.epochs] if self.epochs else []
        if self.seconds:
            passed = [epoch for epoch, then in self.marks if then <= stamp - self.seconds * 1e9]
            floors.append(passed[-1] if passed else kept)
        return min(floors, default=committed)


@dataclass(frozen=True, slots=True)
class ReadFrontier:
    """What readers may see."""

    committed: int
    floor: int
    aborted: tuple[int, ...]
    stamp: int
    positions: Positions
    filled: dict[int, int]
    stopped: frozenset[int]  # tables of nodes: a view that needs one is not readable
    catalog_version: int
    indexed_from: int | None = None  # epochs from here on have an index of the records they wrote
    anew: int = 0  # records of epochs before it count no longer


def frontier_bytes(record: dict, catalog_version: int) -> bytes:
    """The read frontier of an epoch record, as a JSON value, and of the catalog of that version."""
    facts = {name: record[name] for name in ("committed", "floor", "aborted", "stamp", "positions", "filled")}
    facts |= {"stopped": sorted(map(int, record["stopped"])), "catalog": catalog_version}
    facts["indexed_from"] = record.get("keeping", {}).get("indexed_from")
    facts |= {"anew": record["anew"]} if record.get("anew") else {}
    return json.dumps(facts, sort_keys=True).encode()


@lru_cache(maxsize=64)
def parse_frontier(value: bytes) -> ReadFrontier:
    """The read frontier that `frontier_bytes` wrote; cached, because most reads meet the same one as the read before."""
    if not value:
        raise CorruptStore("the store has no epoch record", "restore it from a backup")
    with reading("read frontier"):
        facts = json.loads(value)
        return ReadFrontier(
            facts["committed"],
            facts["floor"],
            tuple(facts["aborted"]),
            facts["stamp"],
            positions_from_json(facts["positions"]),
            {int(backfill): epoch for backfill, epoch in facts["filled"].items()},
            frozenset(facts["stopped"]),
            facts["catalog"],
            facts.get("indexed_from"),
            facts.get("anew", 0),
        )


EPOCH_MAX = (1 << 63) - 1  # of a moment that sees the newest version of each record, committed or not


@dataclass(frozen=True, slots=True)
class ReadTimestamp:
    """What a read sees: versions at or below `epoch` that are not aborted."""

    epoch: int
    aborted: tuple[int, ...]
    frontier: ReadFrontier

    def kept_from(self, floor: int) -> ReadTimestamp:
        """The same, with the floor read after the records were held: versions below it may be deleted."""
        return replace(self, frontier=replace(self.frontier, floor=floor))


@dataclass(frozen=True, slots=True)
class RecordChange:
    """What an epoch did to one record; `before` is None if inserted, `after` if deleted."""

    epoch: int
    key: bytes
    before: bytes | None
    after: bytes | None


SNAPSHOT = "snapshot"
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Bounded:
    """A snapshot that misses no change older than `seconds`."""

    seconds: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not is_number or not 0 <= self.seconds < _COUNTED_BELOW:
            fact = f"the bound must be a number of seconds, 0 or more, and less than 2^63, not {shown(self.seconds)}"
            raise InputError(fact, "a bound of years is any snapshot")
