"""δ over cells: DELTA holds what is known of each row of a foreign table, and says how the row changes.

In: writes of cells, from several streams, in any order and some of them twice. Out: deltas old → new, as the table's own
readers would see the rows. Always: as for any DELTA, a function of the version below the epoch. A row whose cells do not
decode, or that is too large for a record, is no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.cellrows import CellRows, merge_by_key
from viewkeeper.model.images import cell_rows, rows_and_reasons
from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.operators.apply import Applier, Changes, Found, differs
from viewkeeper.operators.channels import ROWS, Channel
from viewkeeper.operators.operator import Operator
from viewkeeper.plan.nodes import CellDeltaNode


class CellDeltaOperator(Operator[CellDeltaNode]):
    """Input is what some writes say of rows; all that is said of one row counts."""

    def lessen(self, node: CellDeltaNode, channel: Channel, tables: Sequence[pa.Table]) -> pa.Table:
        return self.combine(node, channel, tables, 1)

    def combine(self, node: CellDeltaNode, channel: Channel, tables: Sequence[pa.Table], partitions: int) -> pa.Table:
        told = pa.concat_tables(tables).combine_chunks()
        at = (np.asarray(told["hash"]) % partitions).astype(np.int64)
        keys, rows = told["key"].combine_chunks(), cell_rows(node.source, told["row"])
        chosen, merged = merge_by_key(keys, rows, at)
        return _said(keys.take(pa.array(chosen)), np.asarray(told["hash"])[chosen], merged)

    def apply(self, applier: Applier, node: CellDeltaNode, inputs: Mapping[Channel, pa.Table]) -> Iterator[Changes]:
        found = applier.find(node.table, inputs[ROWS])
        known, said = (cell_rows(node.source, rows) for rows in (found.rows, found.input["row"]))
        both = known.merged_with(said).kept()
        applier.put(found, both.encode())
        (before, failed), (after, fails) = (
            rows_and_reasons(node.source, rows.seen, len(rows), rows.too_large) for rows in (known, both)
        )
        _list_reasons(applier, node, found, failed, fails)
        yield Changes(found, before, after)


def _list_reasons(applier: Applier, node: CellDeltaNode, found: Found, before: pa.Array, after: pa.Array) -> None:
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
