"""Top-n: the first rows of an order, kept by rank.

In: events of rows under (order, row key). Out: the ranks whose row changed. Always: the order is total, because the row
key is its last part; of the entries as of the epoch before only the limit plus the number of deleted ones is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.model.schema import Column
from viewkeeper.model.types import INT
from viewkeeper.model.varbinary import VarBinary, join
from viewkeeper.operators.apply import Applier, differs
from viewkeeper.operators.delta_rows import Delta, delta_of_output
from viewkeeper.operators.messages import ROWS, Channel
from viewkeeper.operators.operator import RowsOperator, events
from viewkeeper.plan.nodes import TopNode

_RANK = Column("rank", INT, nullable=False)
_NULL_FIRST, _PRESENT, _NULL_LAST = b"\x00", b"\x01", b"\x02"


class TopOperator(RowsOperator[TopNode]):
    """Every row in order, and the ranks of the first ones."""

    def input_of(self, node: TopNode, number: int, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
        yield ROWS, ranked_events(node, rows)

    def apply(self, applier: Applier, node: TopNode, inputs: Mapping[Channel, pa.Table]) -> Iterator[Delta]:
        """Put the entries; yields the rows that left or took a rank."""
        if ROWS not in inputs:
            return
        changes, partitions = applier.put_events(node.table, inputs[ROWS]).table()
        if not len(changes):
            return
        keys, rows = (changes[name].combine_chunks() for name in ("key", "after"))
        deleted = len(changes) - changes["before"].null_count
        old_keys, old_rows = _first_entries(applier, node, int(partitions[0]), node.limit + deleted)
        stays, there = pc.invert(pc.is_in(old_keys, value_set=keys)), rows.is_valid()
        now_keys = pa.concat_arrays([old_keys.filter(stays), keys.filter(there)])
        now_rows = pa.concat_arrays([old_rows.filter(stays), rows.filter(there)])
        order = pc.sort_indices(now_keys)[: node.limit]
        yield _delta(node, old_rows[: node.limit], now_rows.take(order))


def ranked_events(node: TopNode, rows: pa.Table) -> pa.Table:
    """The events of entries; all lie in one partition, because any two may be neighbours."""
    count, parts = len(rows), list[VarBinary]()
    for i, column in enumerate(node.order):
        parts += _ordered(column, rows[f"o{i}"], descending=node.descending[i], nulls_first=node.nulls_first[i])
    last, _ = encode_keys(node.key, [rows[f"k{i}"] for i in range(len(node.key))], count)
    keys = join([*parts, VarBinary.from_arrow(last)]).to_arrow() if count else pa.array([], pa.binary())
    _, hashes = encode_keys((), [], count)
    return events(keys, hashes, rows, node.row)


def _first_entries(applier: Applier, node: TopNode, partition: int, wanted: int) -> tuple[pa.Array, pa.Array]:
    keys, rows, count = [pa.array([], pa.binary())], [pa.array([], pa.binary())], 0
    for batch in applier.store.scan_prefixes(partition, node.table, [b""], applier.epoch, rows_max=wanted):
        keys.append(batch["key"])
        rows.append(batch["row"])
        count += len(batch)
        if count >= wanted:
            break
    return pa.concat_arrays(keys), pa.concat_arrays(rows)


def _delta(node: TopNode, before: pa.Array, after: pa.Array) -> Delta:
    """The ranks whose row changed; a rank past the end of one list has a row in the other only."""
    width = max(len(before), len(after))
    old, new = (pa.concat_arrays([rows, pa.nulls(width - len(rows), pa.binary())]) for rows in (before, after))
    other = differs(old, new)
    columns = dict(zip(node.places, node.row, strict=True)) | {node.rank_place: _RANK}

    def side(rows: pa.Array) -> dict[int, pa.Array]:
        chosen = np.flatnonzero(other & np.asarray(rows.is_valid()))
        values = decode_rows(node.row, rows.take(pa.array(chosen)))
        ranks = pa.array((chosen + 1).astype(np.int32))
        return dict(zip(node.places, values, strict=True)) | {node.rank_place: ranks}

    inserted, deleted = side(new), side(old)
    counts = len(inserted[node.rank_place]), len(deleted[node.rank_place])
    return delta_of_output(inserted, deleted, columns, (node.rank_place,), counts=counts)


def _ordered(column: Column, array: pa.ChunkedArray, *, descending: bool, nulls_first: bool) -> list[VarBinary]:
    """A mark for NULL and the value's bytes, in the order asked for; for a NULL only the mark counts."""
    flat = array.combine_chunks()
    marks = pc.if_else(flat.is_valid(), _PRESENT, _NULL_FIRST if nulls_first else _NULL_LAST)
    whole = VarBinary.from_arrow(encode_keys((column,), [flat], len(flat))[0])
    return [VarBinary.from_arrow(marks), VarBinary(~whole.data, whole.offsets) if descending else whole]
