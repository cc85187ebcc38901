"""Keyed copies: operators that keep one record for each row: σ, π and INDEX, and DELTA (`docs/epochs.md`, "keyed copy",
"δ").

In: rows that passed an edge; the last change of each row of a base table in the epoch; or writes of cells of a foreign
table, from several streams, in any order and some of them twice. Out: one record for each row; of a DELTA also changes
old → new for the readers of the table. Always: the last event of a record's key is its state. A change is taken from
the version of DELTA below the epoch, so that a re-run emits what the first run emitted (plain replay would not). A
foreign row whose cells do not decode, or that is too large for a record, is no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.foreign_rows import CellRows, cell_rows, merge_by_key, rows_and_reasons
from viewkeeper.model.keybatches import encode_keys, hashes_of_keys
from viewkeeper.operators.apply import AppliedChanges, Applier, FoundRecords, differs
from viewkeeper.operators.messages import ROWS, Channel
from viewkeeper.operators.operator import EdgeOperator, Operator, events
from viewkeeper.plan.nodes import CellDeltaNode, DeltaNode, ProjectNode


class ProjectOperator(EdgeOperator[ProjectNode]):
    """A record for each row that passes."""

    def input_of(self, node: ProjectNode, number: int, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
        keys, hashes = encode_keys(node.key, [rows[f"k{i}"] for i in range(len(node.key))], len(rows))
        yield ROWS, events(keys, hashes, rows, node.row)

    def apply(
        self, applier: Applier, node: ProjectNode, inputs: Mapping[Channel, pa.Table]
    ) -> Iterator[AppliedChanges]:
        if ROWS in inputs:
            yield applier.put_events(node.table, inputs[ROWS])


class DeltaOperator(Operator[DeltaNode]):
    """A record for each row of the base table."""

    def apply(self, applier: Applier, node: DeltaNode, inputs: Mapping[Channel, pa.Table]) -> Iterator[AppliedChanges]:
        yield applier.put_events(node.table, inputs[ROWS])


def log_events(node: DeltaNode, changes: pa.RecordBatch) -> pa.Table:
    """The events that log changes mean for DELTA."""
    hashes = pa.array(hashes_of_keys(node.source.key_columns, changes["key"]))
    return pa.table({"key": changes["key"], "hash": hashes, "ord": changes["position"], "row": changes["after"]})


class CellDeltaOperator(Operator[CellDeltaNode]):
    """Input is what some writes say of rows; all that is said of one row counts."""

    def pre_combine(self, node: CellDeltaNode, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        return self.combine(node, channel, tables, 1)

    def combine(self, node: CellDeltaNode, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        told = pa.concat_tables(tables).combine_chunks()
        at = (np.asarray(told["hash"]) % partitions).astype(np.int64)
        keys, rows = told["key"].combine_chunks(), cell_rows(node.source, told["row"])
        chosen, merged = merge_by_key(keys, rows, at)
        return _said(keys.take(pa.array(chosen)), np.asarray(told["hash"])[chosen], merged)

    def apply(
        self, applier: Applier, node: CellDeltaNode, inputs: Mapping[Channel, pa.Table]
    ) -> Iterator[AppliedChanges]:
        found = applier.find(node.table, inputs[ROWS])
        known, said = (cell_rows(node.source, rows) for rows in (found.rows, found.input["row"]))
        both = known.merged_with(said).kept()
        applier.put(found, both.encode())
        (before, failed), (after, fails) = (
            rows_and_reasons(node.source, rows.seen, len(rows), rows.too_large) for rows in (known, both)
        )
        _list_reasons(applier, node, found, failed, fails)
        yield AppliedChanges(found, before, after)


def _list_reasons(
    applier: Applier, node: CellDeltaNode, found: FoundRecords, before: pa.Array, after: pa.Array
) -> None:
    """List the rows of which a cell does not decode any more, and take those off the list that do again."""
    aside = None if node.source.foreign is None else node.source.foreign.aside
    changed = pa.array(differs(before, after))
    if aside is not None and pc.any(changed).as_py():
        applier.put(applier.find(aside, found.input.filter(changed)), after.filter(changed))


def cell_events(node: CellDeltaNode, cells: pa.RecordBatch) -> pa.Table:
    """What the cells of a log say of rows, a row for each cell."""
    hashes = hashes_of_keys(node.source.key_columns, cells["key"])
    return _said(cells["key"], hashes, CellRows.of_writes(len(node.source.value_columns), cells))


def _said(keys: pa.Array, hashes: np.ndarray, rows: CellRows) -> pa.Table:
    return pa.table({"key": keys, "hash": pa.array(hashes), "row": rows.encode()})
