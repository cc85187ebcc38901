"""γ: contributions of rows to their groups (`epochs.md`, "γ fold" and "γ min/max").

In: images, then contributions of many managers. Out: signed contributions for each group, for each entry of a
PRE-AGGREGATION and for each exact sum of DOUBLE, consolidated. Always: a function of the multiset of its inputs (R7):
neither order nor partition changes a byte; a row changed twice in an epoch needs no collapse, because its images cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.ragged import Ragged
from viewkeeper.plan.physical import Entries, FoldNode
from viewkeeper.views import doubles
from viewkeeper.views.aside import aside_events
from viewkeeper.views.duck import as_type, run_sql
from viewkeeper.views.images import Images, ImageTable
from viewkeeper.views.parts import ASIDE, MAIN, double_part, entries_part


def contribute(node: FoldNode, images: Images) -> Iterator[tuple[int, pa.Table]]:
    """Signed contributions of images, each with the part it belongs to."""
    for side, sign in ((images.after, 1), (images.before, -1)):
        if len(side):
            yield from _contributions(node, side, sign)


def _contributions(node: FoldNode, side: ImageTable, sign: int) -> Iterator[tuple[int, pa.Table]]:
    if node.aside is None and not node.entries and not node.doubles:
        # one reader of the rows: DuckDB need not hand them out
        grouped = run_sql(f"WITH rows AS ({node.rows}) {node.contribute}", images=side.relation)
        yield MAIN, _signed(node, grouped, sign)
        return
    rows = run_sql(node.rows, images=side.relation)
    if node.aside is not None:
        aside = aside_events(side, rows, came=sign > 0)
        if aside is not None:
            yield ASIDE, aside
    yield MAIN, _signed(node, run_sql(node.contribute, rows=rows), sign)
    for place, entries in enumerate(node.entries):
        yield entries_part(place), _entries(node, entries, run_sql(entries.contribute, rows=rows), sign)
    for place, argument in enumerate(node.doubles):
        yield double_part(node, place), _mantissas(node, argument, rows, sign)


def first_contribution(node: FoldNode) -> pa.Table:
    """What a backfill gives a record that exists over an empty base too: nothing, under the empty key."""
    keys, hashes = encode_keys((), [], 1)
    zeros = {f"s{i}": pa.array([0], column.type.arrow) for i, column in enumerate(node.state)}
    return pa.table({"key": keys, "hash": pa.array(hashes), "sign": pa.array([1], pa.int8()), **zeros})


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


def combine_entries(parts: Sequence[pa.Table]) -> pa.Table:
    """For each entry whose multiplicity changes by how much, in key order."""
    sql = (
        "SELECT key, any_value(hash) AS hash, any_value(size) AS size, CAST(sum(n) AS BIGINT) AS n FROM parts "
        "GROUP BY key HAVING sum(n) <> 0 ORDER BY key"
    )
    return run_sql(sql, parts=pa.concat_tables(parts))


def combine_doubles(parts: Sequence[pa.Table]) -> pa.Table:
    """For each group and unit the sum of mantissas, in that order."""
    sql = (
        "SELECT key, any_value(hash) AS hash, unit, CAST(sum(CAST(m AS HUGEINT)) AS HUGEINT) AS m FROM parts "
        "GROUP BY key, unit HAVING sum(CAST(m AS HUGEINT)) <> 0 ORDER BY key, unit"
    )
    return run_sql(sql, parts=pa.concat_tables(parts))


def _signed(node: FoldNode, grouped: pa.Table, sign: int) -> pa.Table:
    keys, hashes = _keys(node, grouped)
    columns = {"key": keys, "hash": hashes, "sign": pa.array(np.full(len(grouped), sign, np.int8))}
    return pa.table(columns | {f"s{i}": as_type(grouped[f"s{i}"], c.type.arrow) for i, c in enumerate(node.state)})


def _entries(node: FoldNode, entries: Entries, grouped: pa.Table, sign: int) -> pa.Table:
    """Entries lie where their group lies: an entry's key is the group's key, `size` bytes of it, and the values behind it."""
    groups, hashes = _keys(node, grouped)
    columns = (*node.key, *entries.values)
    arrays = [grouped[f"k{i}"] for i in range(len(node.key))]
    arrays += [grouped[f"e{i}"] for i in range(len(entries.values))]
    keys, _ = encode_keys(columns, arrays, len(grouped))
    sizes = Ragged.from_arrow(groups).lengths.astype(np.int32)
    number = np.asarray(grouped["n"]).astype(np.int64) * sign
    return pa.table({"key": keys, "hash": hashes, "size": pa.array(sizes), "n": pa.array(number)})


def _mantissas(node: FoldNode, argument: int, rows: pa.Table, sign: int) -> pa.Table:
    """Mantissas by group and unit: split in numpy, because SQL cannot look into a double."""
    keys = [f"k{i}" for i in range(len(node.key))]
    values = rows[f"a{argument}"]
    present = values.is_valid()
    if node.aside is not None:
        present = pa.compute.and_(present, pa.compute.invert(rows["fails"]))
    units, mantissas = doubles.split(np.asarray(values.filter(present)).astype(np.float64))
    split = {"unit": pa.array(units), "m": pa.array(mantissas * sign)}
    split |= {key: rows[key].filter(present).combine_chunks() for key in keys}
    by = "".join(f"{key}, " for key in keys)
    sql = f"SELECT {by}unit, CAST(sum(m) AS HUGEINT) AS m FROM parts GROUP BY {by}unit"
    grouped = run_sql(sql, parts=pa.table(split))
    encoded, hashes = _keys(node, grouped)
    mantissa = as_type(grouped["m"], pa.decimal128(38, 0))
    return pa.table({"key": encoded, "hash": hashes, "unit": grouped["unit"], "m": mantissa})


def _keys(node: FoldNode, grouped: pa.Table) -> tuple[pa.Array, pa.Array]:
    keys, hashes = encode_keys(node.key, [grouped[f"k{i}"] for i in range(len(node.key))], len(grouped))
    return keys, pa.array(hashes)
