"""γ: groups with exact accumulators (`epochs.md`, "γ fold").

In: images, then contributions of many managers. Out: signed contributions for each group, then the new row of each
group's record. Always: a function of the multiset of its inputs (R7): integers and DECIMAL in 128 bits, so neither order
nor partition changes a byte; a row changed twice in an epoch needs no collapse, because its images cancel in the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.keybatches import decode_keys, encode_keys
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.plan.physical import FoldNode
from viewkeeper.views.duck import as_type, run_sql
from viewkeeper.views.exact import add_exactly
from viewkeeper.views.images import Images


def contribute(node: FoldNode, images: Images) -> list[pa.Table]:
    """Signed contributions (key, hash, s0…) of images to their groups."""
    after = _grouped(node, images.after, sign=1)
    return [part for part in (after, _grouped(node, images.before, sign=-1)) if part is not None]


def first_contribution(node: FoldNode) -> list[pa.Table]:
    """What a backfill gives a record that exists over an empty base too: nothing, under the empty key."""
    if not node.always:
        return []
    keys, hashes = encode_keys((), [], 1)
    zeros = {f"s{i}": pa.array([0], column.type.arrow) for i, column in enumerate(node.state)}
    return [pa.table({"key": keys, "hash": pa.array(hashes), "sign": pa.array([1], pa.int8()), **zeros})]


def empty_row(node: FoldNode) -> bytes:
    """The row of a record over an empty base."""
    (contribution,) = first_contribution(node)
    return fold(node, contribution, pa.nulls(1, pa.binary()))[0].as_py()


def combine(node: FoldNode, parts: Sequence[pa.Table]) -> pa.Table:
    """One contribution for each group, in key order."""
    sums = ", ".join(
        f"CAST(sum(CAST(sign AS {column.type.duckdb}) * CAST(s{i} AS {column.type.duckdb})) AS {column.type.duckdb}) AS s{i}"
        for i, column in enumerate(node.state)
    )
    sql = (
        f"SELECT key, any_value(hash) AS hash, CAST(1 AS TINYINT) AS sign, {sums} FROM parts GROUP BY key ORDER BY key"
    )
    return run_sql(sql, parts=pa.concat_tables(parts))


def fold(node: FoldNode, contributions: pa.Table, rows: pa.Array) -> pa.Array:
    """The records' new rows: old state plus contribution; NULL where the group is gone."""
    count = len(contributions)
    old = decode_rows(node.row, rows, range(len(node.state)))
    sums = [add_exactly(was, contributions[f"s{i}"]) for i, was in enumerate(old)]
    columns = {f"s{i}": array for i, array in enumerate(sums)}
    if node.finish_reads_key:
        parts = decode_keys(node.key, contributions["key"])
        columns |= {f"k{i}": array for i, array in enumerate(parts)}
    states = pa.table(columns)
    live = _live_groups(node, states)
    arrays = list(sums)
    if node.values:
        finished = run_sql(node.finish, states=states)
        arrays += [as_type(finished[f"v{i}"], column.type.arrow) for i, column in enumerate(node.values)]
    encoded = encode_rows(node.row, arrays, count)
    return encoded if live.all() else pc.if_else(pa.array(live), encoded, pa.scalar(None, encoded.type))


def _grouped(node: FoldNode, images: pa.Table, *, sign: int) -> pa.Table | None:
    if not len(images):
        return None
    grouped = run_sql(node.contribute, images=images)
    count = len(grouped)
    keys, hashes = encode_keys(node.key, [grouped[f"k{i}"] for i in range(len(node.key))], count)
    columns = {"key": keys, "hash": pa.array(hashes), "sign": pa.array(np.full(count, sign, np.int8))}
    return pa.table(columns | {f"s{i}": as_type(grouped[f"s{i}"], c.type.arrow) for i, c in enumerate(node.state)})


def _live_groups(node: FoldNode, states: pa.Table) -> np.ndarray:
    rows = np.asarray(states["s0"])
    if (rows < 0).any():
        raise InvariantBroken(f"a group of table {node.table} would hold {rows.min()} rows")
    if node.always:
        return np.ones(len(rows), bool)
    empty = rows == 0
    if empty.any():
        left = states.filter(pa.array(empty))
        sums = [left[f"s{i}"] for i in range(len(node.state))]
        if any(pc.any(pc.not_equal(column, 0)).as_py() for column in sums):
            raise InvariantBroken(f"a group of table {node.table} has no rows and yet a sum")
    return ~empty
