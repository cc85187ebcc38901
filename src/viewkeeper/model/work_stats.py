"""Work statistics: how much work an epoch, or a task of one, did, and what epochs of changes cost so far.

In: counts of parts, and of committed epochs. Out: their total; and a sum by table that is kept in the store, for EXPLAIN
and the cost model. Always: rows, records, bytes and CPU time are counted by the call, never by the row. The kept sum leaves
out epochs with rows of backfills, so that work can be divided by changes; losing that sum harms nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from viewkeeper.model.json_codec import fields_to_json, from_json_value

Counted = TypeVar("Counted")


@dataclass(frozen=True, slots=True)
class Kinds:
    """Changes of rows, by kind: counted, or as rates. A log without before-images shows no inserts: they are updates."""

    inserts: float = 0
    updates: float = 0
    deletes: float = 0

    @property
    def total(self) -> float:
        return self.inserts + self.updates + self.deletes

    @property
    def delta_rows(self) -> float:
        """An update is a row deleted and a row inserted."""
        return self.total + self.updates

    def plus(self, other: Kinds) -> Kinds:
        return add_up([self, other])

    def times(self, factor: float) -> Kinds:
        return Kinds(self.inserts * factor, self.updates * factor, self.deletes * factor)

    def moved(self, share: float = 1.0) -> Kinds:
        """With that share of the updates as a row that goes and another that comes."""
        moved = self.updates * share
        return Kinds(self.inserts + moved, self.updates - moved, self.deletes + moved)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a table is: its records as of an epoch, and the bytes of their keys and rows; or a change of both."""

    records: int = 0
    bytes: int = 0

    def plus(self, other: Size) -> Size:
        return Size(self.records + other.records, self.bytes + other.bytes)

    def to_json(self) -> list[int]:
        return [self.records, self.bytes]

    @staticmethod
    def from_json(value: list[int]) -> Size:
        return Size(*value)


@dataclass(frozen=True, slots=True)
class Work:
    """Work for one table of a node: records read by key (`gets`) and in key order (`scanned`), written and deleted.

    `bytes` are of the keys and rows written. `inputs` are the events and contributions that reached the node, counted at its
    own table. `grown` is the table's change from the epoch before to this one, whatever an earlier run has written.
    """

    inputs: int = 0
    gets: int = 0
    scanned: int = 0
    puts: int = 0
    deletes: int = 0
    bytes: int = 0
    grown: Size = field(default_factory=Size)

    @property
    def reads(self) -> int:
        return self.gets + self.scanned

    @property
    def writes(self) -> int:
        return self.puts + self.deletes


@dataclass(frozen=True, slots=True)
class Counts:
    """How much work was done; all seconds are CPU time.

    `get_seconds` and `put_seconds` are the store's part of `apply_seconds`. `changes` are by base table, `tables` by table of
    a node. `found`: how large tables were as of the epoch before, where all of their records were read.
    """

    rows_read: int = 0  # changes of the log, and rows of backfills
    read_seconds: float = 0.0
    apply_seconds: float = 0.0
    get_seconds: float = 0.0
    put_seconds: float = 0.0
    changes: dict[int, Kinds] = field(default_factory=dict)
    tables: dict[int, Work] = field(default_factory=dict)
    found: dict[int, Size] = field(default_factory=dict)

    @property
    def records_written(self) -> int:
        return sum(work.writes for work in self.tables.values())

    @staticmethod
    def total(parts: Iterable[Counts]) -> Counts:
        return add_up([Counts(), *parts])


def add_up(parts: Sequence[Counted]) -> Counted:
    """The sum of numbers, of dicts by their keys, of dataclasses by their fields."""
    first: Any = parts[0]
    if len(parts) == 1:
        return parts[0]
    if isinstance(first, dict):
        found: dict[Any, list[Any]] = {}
        for part in parts:
            for key, value in part.items():  # type: ignore[attr-defined]
                found.setdefault(key, []).append(value)
        return {key: add_up(values) for key, values in found.items()}  # type: ignore[return-value]
    if isinstance(first, (int, float)):
        return sum(parts)  # type: ignore[arg-type, return-value]
    names = [one.name for one in fields(first)]
    return type(first)(*(add_up([getattr(part, name) for part in parts]) for name in names))


MEASURED = "measured"  # the note that holds it
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class WorkStats:
    """`seen`: for the table of each node, how many changes its base tables had since it is measured."""

    epochs: int = 0
    seen: dict[int, float] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)

    @staticmethod
    def of_epoch(counts: Counts, bases: Mapping[int, Collection[int]]) -> WorkStats:
        """What one epoch cost; `bases` are the base tables that each node is computed from."""
        changes = {table: one.total for table, one in counts.changes.items()}
        seen = {node: sum(changes.get(base, 0) for base in below) for node, below in bases.items()}
        return WorkStats(1, seen, counts)

    def plus(self, other: WorkStats) -> WorkStats:
        return add_up([self, other])

    def only(self, tables: Collection[int]) -> WorkStats:
        """Without tables that are gone."""

        def kept(by_table: dict[int, Counted]) -> dict[int, Counted]:
            return {table: one for table, one in by_table.items() if table in tables}

        counts = replace(self.counts, changes=kept(self.counts.changes), tables=kept(self.counts.tables))
        return replace(self, seen=kept(self.seen), counts=counts)

    def to_json(self) -> dict[str, object]:
        return {"format": _FORMAT} | fields_to_json(self)

    @staticmethod
    def from_json(value: dict) -> WorkStats:
        """What was kept; nothing where it was kept by another release."""
        if value.get("format") != _FORMAT:
            return WorkStats()
        return from_json_value(WorkStats, {name: part for name, part in value.items() if name != "format"})
