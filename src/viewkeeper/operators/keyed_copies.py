"""Keyed copies: operators that keep one record for each row: σ, π, INDEX and DELTA (`docs/epochs.md`, "keyed copy", "δ").

In: rows that passed an edge; the last change of each row of a base table in the epoch; or writes of cells of a foreign
table, in any order and some of them twice. Out: one record for each row; of a DELTA also changes old → new for the readers
of the table. Always: the last event of a key is its state. The old row of a change is the version of DELTA below the epoch,
so that a re-run emits the same. A foreign row whose cells do not decode, or that is too large for a record, is no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.foreign_rows import CellRows, cell_rows, foreign_of, merge_by_key, rows_and_reasons
from viewkeeper.model.keybatches import encode_keys, hashes_of_keys
from viewkeeper.operators.apply import AppliedChanges, Applier, differs
from viewkeeper.operators.messages import ROWS, Channel
from viewkeeper.operators.operator import Operator, RowsOperator, events
from viewkeeper.plan.nodes import CellDeltaNode, DeltaNode, ProjectNode


class ProjectOperator(RowsOperator[ProjectNode]):
    """A record for each row that passes."""

    def input_of(self, node: ProjectNode, number: int, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
        keys, hashes = encode_keys(node.key, [rows[f"k{i}"] for i in range(len(node.key))], len(rows))
        yield ROWS, events(keys, hashes, rows, node.row)


class DeltaOperator(Operator[DeltaNode]):
    """A record for each row of the base table."""


def log_events(node: DeltaNode, changes: pa.RecordBatch) -> pa.Table:
    """The events that log changes mean for DELTA."""
    hashes = pa.array(hashes_of_keys(node.source.key_columns, changes["key"]))
    return pa.table({"key": changes["key"], "hash": hashes, "ord": changes["position"], "row": changes["after"]})


class CellDeltaOperator(Operator[CellDeltaNode]):
    """Input is writes of cells, merged by row, of which none overrides the others."""

    def pre_combine(self, node: CellDeltaNode, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        return self.combine(node, channel, tables, 1)

    def combine(self, node: CellDeltaNode, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        given = pa.concat_tables(tables).combine_chunks()
        keys, hashes, rows = (
            given["key"].combine_chunks(),
            np.asarray(given["hash"]),
            cell_rows(node.source, given["row"]),
        )
        chosen, merged = merge_by_key(keys, rows, (hashes % partitions).astype(np.int64))
        return _input(keys.take(pa.array(chosen)), hashes[chosen], merged)

    def apply(
        self, applier: Applier, node: CellDeltaNode, inputs: Mapping[Channel, pa.Table]
    ) -> Iterator[AppliedChanges]:
        found = applier.find(node.table, inputs[ROWS])
        known, given = (cell_rows(node.source, rows) for rows in (found.rows, found.input["row"]))
        both = known.merged_with(given).kept()
        applier.put(found, both.encode())
        (before, failed), (after, fails) = (
            rows_and_reasons(node.source, rows.seen, len(rows), rows.too_large) for rows in (known, both)
        )
        # list the rows that no longer decode, and take those off the list that do again
        changed, aside = pa.array(differs(failed, fails)), foreign_of(node.source).aside
        if aside is not None and pc.any(changed).as_py():
            applier.put(applier.find(aside, found.input.filter(changed)), fails.filter(changed))
        yield AppliedChanges(found, before, after)


def cell_events(node: CellDeltaNode, cells: pa.RecordBatch) -> pa.Table:
    """The input that the cells of a log mean, a row for each cell."""
    hashes = hashes_of_keys(node.source.key_columns, cells["key"])
    return _input(cells["key"], hashes, CellRows.of_writes(len(node.source.value_columns), cells))


def _input(keys: pa.Array, hashes: np.ndarray, rows: CellRows) -> pa.Table:
    return pa.table({"key": keys, "hash": pa.array(hashes), "row": rows.encode()})
