"""γ: contributions of rows to their groups (`docs/epochs.md`, "γ" and "γ min/max").

In: delta rows, then contributions of many managers. Out: contributions to each group, for each entry of a
PRE-AGGREGATION and for each exact sum of DOUBLE, consolidated. Always: a function of the multiset of its inputs (R7):
neither order nor partition changes a byte; a row changed twice in an epoch needs no collapse, because its delta rows cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.varbinary import VarBinary, join
from viewkeeper.operators import exact_sums
from viewkeeper.operators.delta_rows import by_sign
from viewkeeper.operators.duck import as_type, run_sql
from viewkeeper.operators.exact_sums import are_few, consolidate
from viewkeeper.operators.messages import GROUPS, Channel
from viewkeeper.plan.nodes import AggregateNode, DoubleSum, Entries


def contribute(node: AggregateNode, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
    """Contributions of the rows that an edge emitted, each with its channel."""
    for sign, side in sides(rows):
        yield GROUPS, signed_contribution(node, run_sql(node.contribute, rows=side), sign)
    for place, entries in enumerate(node.entries):
        grouped = run_sql(entries.contribute, rows=rows)
        values = [grouped[f"e{i}"] for i in range(len(entries.values))]
        yield Channel("entries", place), entry_changes(entries, *keys_of_groups(node, grouped), values, grouped["n"])
    yield from contribute_sums(node, rows)


def contribute_sums(node: AggregateNode, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
    """The contributions to exact sums of DOUBLE."""
    for place, one in enumerate(node.exact_sums):
        yield Channel("sums", place), _mantissas(node, one, rows)


def contribute_each(node: AggregateNode, given: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
    """The contributions of few rows, each by itself, from what `node.contribute_each` returned."""
    if not len(given):
        return
    keys, hashes = keys_of_groups(node, given)
    states = {f"s{i}": as_type(given[f"s{i}"], column.type.arrow) for i, column in enumerate(node.state)}
    yield GROUPS, pa.table({"key": keys, "hash": hashes, "sign": given["sign"].cast(pa.int8()), **states})
    for place, entries in enumerate(node.entries):
        values = [given[f"e{place}_{i}"] for i in range(len(entries.values))]
        there = pa.array(np.logical_and.reduce([np.asarray(value.is_valid()) for value in values]))
        owners, values = (keys.filter(there), hashes.filter(there)), [value.filter(there) for value in values]
        counts = given["sign"].filter(there).cast(pa.int64())
        yield Channel("entries", place), entry_changes(entries, *owners, values, counts)
    yield from contribute_sums(node, given)


def sides(relation: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The inserted and the deleted rows, if any."""
    for sign, side in zip((1, -1), by_sign(relation), strict=True):
        if len(side):
            yield sign, side


def first_contribution(node: AggregateNode) -> pa.Table:
    """What a backfill contributes to a record that exists even over an empty base: nothing, under the empty key."""
    keys, hashes = encode_keys((), [], 1)
    zeros = {f"s{i}": pa.array([0], column.type.arrow) for i, column in enumerate(node.state)}
    return pa.table({"key": keys, "hash": pa.array(hashes), "sign": pa.array([1], pa.int8()), **zeros})


def combine(node: AggregateNode, channel: Channel, parts: Sequence[pa.Table]) -> pa.Table:
    """One contribution for each group, entry or unit of a group, in key order; only a group's may be nothing."""
    if channel == GROUPS:
        states = [f"s{i}" for i in range(len(node.state))]
        return consolidate(parts, ["key"], states, factor="sign", keep_zeros=True)
    if channel.kind == "entries":
        return consolidate(parts, ["key"], ["n"])
    return consolidate(parts, ["key", "unit"], ["m"])


def signed_contribution(node: AggregateNode, grouped: pa.Table, sign: int) -> pa.Table:
    """A node's contributions (`k…`, `s…`) under their encoded keys."""
    keys, hashes = keys_of_groups(node, grouped)
    states = {f"s{i}": as_type(grouped[f"s{i}"], column.type.arrow) for i, column in enumerate(node.state)}
    return pa.table({"key": keys, "hash": hashes, "sign": pa.array(np.full(len(grouped), sign, np.int8)), **states})


def entry_changes(
    entries: Entries, groups: pa.Array, hashes: pa.Array, values: Sequence[pa.Array], counts: pa.Array
) -> pa.Table:
    """Entries lie with their group: an entry's key is the group's key, `size` bytes of it, then the values."""
    behind, _ = encode_keys(entries.values, values, len(groups))
    whole = VarBinary.from_arrow(groups)
    keys = join([whole, VarBinary.from_arrow(behind)]).to_arrow()
    return pa.table({"key": keys, "hash": hashes, "size": pa.array(whole.lengths.astype(np.int32)), "n": counts})


def keys_of_groups(node: AggregateNode, grouped: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The encoded keys of groups (`k…`), and their hashes."""
    keys, hashes = encode_keys(node.key, [grouped[f"k{i}"] for i in range(len(node.key))], len(grouped))
    return keys, pa.array(hashes)


def _mantissas(node: AggregateNode, one: DoubleSum, rows: pa.Table) -> pa.Table:
    """Mantissas by group and unit: split in numpy, because SQL cannot look into a double."""
    keys = [f"k{i}" for i in range(len(node.key))]
    present = rows[f"a{one.argument}"].is_valid()
    if "fails" in rows.column_names:
        present = pc.and_(present, pc.invert(rows["fails"]))
    chosen, parts = rows.filter(present), []
    values = np.asarray(chosen[f"a{one.argument}"]).astype(np.float64)
    for units, mantissas in exact_sums.SPLITS[one.kind](values):
        signed = mantissas * np.asarray(chosen["sign"])
        parts.append(pa.table({"unit": pa.array(units), "m": pa.array(signed)} | {key: chosen[key] for key in keys}))
    grouped = pa.concat_tables(parts)
    if not are_few([grouped]):
        by = "".join(f"{key}, " for key in keys)
        sql = f"SELECT {by}unit, CAST(sum(m) AS HUGEINT) AS m FROM parts GROUP BY {by}unit"
        grouped = run_sql(sql, parts=grouped)
    encoded, hashes = keys_of_groups(node, grouped)
    mantissa = as_type(grouped["m"], pa.decimal128(38, 0))
    return pa.table({"key": encoded, "hash": hashes, "unit": grouped["unit"], "m": mantissa})
