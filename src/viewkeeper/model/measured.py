"""Measured: what epochs of changes cost so far, by table.

In: the counts of committed epochs. Out: a sum that is kept in the store, for EXPLAIN and the cost model. Always: epochs
that also brought rows of backfills are left out, so that work can be divided by changes; losing it harms nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from viewkeeper.model.counts import Counts, add_up
from viewkeeper.model.plain import fields_to_plain, from_plain

MEASURED = "measured"  # the note that holds it
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """`seen`: for the table of each node, how many changes its base tables had since it is measured."""

    epochs: int = 0
    seen: dict[int, float] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)

    @staticmethod
    def of_epoch(counts: Counts, bases: Mapping[int, Collection[int]]) -> Measured:
        """What one epoch cost; `bases` are the base tables that each node is computed from."""
        changes = {table: one.total for table, one in counts.changes.items()}
        seen = {node: sum(changes.get(base, 0) for base in below) for node, below in bases.items()}
        return Measured(1, seen, counts)

    def plus(self, other: Measured) -> Measured:
        return add_up([self, other])

    def only(self, tables: Collection[int]) -> Measured:
        """Without tables that are gone."""
        seen = {table: count for table, count in self.seen.items() if table in tables}
        changes = {table: one for table, one in self.counts.changes.items() if table in tables}
        work = {table: one for table, one in self.counts.tables.items() if table in tables}
        return replace(self, seen=seen, counts=replace(self.counts, changes=changes, tables=work))

    def to_json(self) -> dict[str, object]:
        return {"format": _FORMAT} | fields_to_plain(self)

    @staticmethod
    def from_json(value: dict) -> Measured:
        """What was kept; nothing where it was kept by another release."""
        if value.get("format") != _FORMAT:
            return Measured()
        return from_plain(Measured, {name: part for name, part in value.items() if name != "format"})
