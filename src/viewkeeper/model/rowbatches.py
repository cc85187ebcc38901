"""Row batches: the format of `rowcodec` over Arrow arrays, and the columns of tables and views as a reader sees them.

In: one Arrow array per column, or arrays of key bytes and row bytes. Out: the other. Always: the same bytes as `rowcodec`
makes; a NULL among row bytes (no row) decodes to NULL in every column; only the wanted columns are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.rowcodec import Layout, compact_rows, expand_rows, layout_of, segments_of
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.varbinary import Part, VarBinary, flat, gather, gather_fixed, join, pack_bits

CHANGES_SCHEMA = pa.schema(  # of the changes of a log
    [("position", pa.int64()), ("key", pa.binary()), ("before", pa.binary()), ("after", pa.binary())]
)


def encode_rows(
    columns: tuple[Column, ...], arrays: Sequence[pa.Array], count: int, tails: pa.Array | None = None
) -> pa.Array:
    """Row bytes of `count` rows; `arrays` follow `columns`, and `tails` hold segments that are not known here."""
    arrays = [flat(array) for array in arrays]
    (_, first), *added = segments_of(columns)
    parts = _encode_segment(first, arrays[: len(first)], count)
    if not added and tails is None:
        return join(parts).to_arrow()
    later: list[VarBinary] = [] if tails is None else [VarBinary.from_arrow(tails)]
    kept = later[0].lengths > 0 if later else np.zeros(count, bool)  # rows with data in this or a later segment
    for at, part in reversed(added):
        own = arrays[at : at + len(part)]
        kept = np.logical_or.reduce([kept, *(np.asarray(array.is_valid()) for array in own)])
        whole = join(_encode_segment(part, own, count))
        later.insert(0, gather(whole.data, whole.offsets[:-1], np.where(kept, whole.lengths, 0)))
    return join([*parts, *later]).to_arrow()


def encode_compact_rows(columns: tuple[Column, ...], arrays: Sequence[pa.Array], count: int) -> pa.Array:
    """Row bytes of `count` rows without zeros, where they are shorter so."""
    rows = encode_rows(columns, arrays, count)
    return compact_rows(rows) if layout_of(columns).is_fixed and len(segments_of(columns)) == 1 else rows


def _encode_segment(columns: tuple[Column, ...], arrays: Sequence[pa.Array], count: int) -> list[Part]:
    """The parts of a segment, to be joined row by row."""
    layout = layout_of(columns)
    fixed = np.zeros((count, layout.body), np.uint8)
    fixed[:, 0] = len(columns) & 0xFF
    fixed[:, 1] = len(columns) >> 8
    for i, array in enumerate(arrays):
        if array.null_count:
            fixed[:, 2 + i // 8] |= np.asarray(array.is_null()).astype(np.uint8) << (i % 8)
    for i in layout.fixed:
        start, width = layout.offsets[i], columns[i].type.width or 0
        fixed[:, start : start + width] = _fixed_bytes(columns[i], arrays[i])
    if not layout.varying:
        return [fixed]
    bodies = [VarBinary.from_arrow(arrays[i]) for i in layout.varying]
    ends = np.cumsum(np.stack([body.lengths for body in bodies], axis=1), axis=1).astype("<u4")
    return [fixed, ends.view(np.uint8).reshape(count, 4 * len(bodies)), *bodies]


def decode_rows(columns: tuple[Column, ...], rows: pa.Array, wanted: Sequence[int] | None = None) -> list[pa.Array]:
    """One Arrow array per wanted column (all by default)."""
    wanted = range(len(columns)) if wanted is None else wanted
    rows = flat(rows)
    if rows.null_count == len(rows):
        return [pa.nulls(len(rows), columns[i].type.arrow) for i in wanted]
    if layout_of(columns).is_fixed:
        rows = expand_rows(rows, layout_of(columns).head_size)
    whole = VarBinary.from_arrow(rows)
    at, stops = whole.offsets[:-1].copy(), whole.offsets[1:]
    found: dict[int, pa.Array] = {}
    for first, part in segments_of(columns):
        inside = [i for i in wanted if first <= i < first + len(part)]
        there = at < stops
        decoded = _decode_segment(part, whole.data, at[there], [i - first for i in inside])
        found |= {i: _spread(array, there) for i, array in zip(inside, decoded, strict=True)}
        if all(i < first + len(part) for i in wanted):
            break
        at[there] += _sizes(part, whole.data, at[there])
    return [found[i] for i in wanted]


def tails_of(columns: tuple[Column, ...], rows: pa.Array) -> pa.Array | None:
    """For each row the segments after those of `columns`, empty where there are none; None when no row has any."""
    whole = VarBinary.from_arrow(rows)
    at, stops = whole.offsets[:-1].copy(), whole.offsets[1:]
    for _, part in segments_of(columns):
        there = at < stops
        if there.any():
            at[there] += _sizes(part, whole.data, at[there])
    return gather(whole.data, at, stops - at).to_arrow() if (at < stops).any() else None


def _spread(array: pa.Array, there: np.ndarray) -> pa.Array:
    """The values where `there` is True, NULL elsewhere."""
    return array if there.all() else array.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _counts(columns: tuple[Column, ...], data: np.ndarray, starts: np.ndarray) -> np.ndarray:
    counts = gather_fixed(data, starts, 2).copy().view("<u2")[:, 0]
    if counts.max() > len(columns):
        raise InvariantBroken(f"a row of {counts.max()} columns was read with a schema of {len(columns)}")
    return counts


def _sizes(columns: tuple[Column, ...], data: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The sizes in bytes of the segments that begin at `starts`."""
    sizes = np.zeros(len(starts), np.int64)
    counts = _counts(columns, data, starts) if len(starts) else sizes
    for count in np.unique(counts).tolist():
        layout, chosen = layout_of(columns[:count]), counts == count
        sizes[chosen] = layout.head_size
        if layout.varying:
            last = starts[chosen] + layout.head_size - 4
            sizes[chosen] += gather_fixed(data, last, 4).copy().view("<u4")[:, 0]
    return sizes


def _decode_segment(
    columns: tuple[Column, ...], data: np.ndarray, starts: np.ndarray, wanted: Sequence[int]
) -> list[pa.Array]:
    if not len(starts):
        return [pa.nulls(0, columns[i].type.arrow) for i in wanted]
    counts = _counts(columns, data, starts)
    if (counts == counts[0]).all():
        return _decode_alike(columns, int(counts[0]), data, starts, wanted)
    # rows written under several versions of the schema: decoded separately, then put back in order
    order = np.argsort(counts, kind="stable")
    pieces = [_decode_alike(columns, int(count), data, starts[counts == count], wanted) for count in np.unique(counts)]
    back = pa.array(np.argsort(order, kind="stable"))
    return [pa.concat_arrays([piece[i] for piece in pieces]).take(back) for i in range(len(wanted))]


def _decode_alike(
    columns: tuple[Column, ...], count: int, data: np.ndarray, starts: np.ndarray, wanted: Sequence[int]
) -> list[pa.Array]:
    layout = layout_of(columns[:count])
    arrays = []
    for i in wanted:
        if i >= count:
            arrays.append(pa.nulls(len(starts), columns[i].type.arrow))
            continue
        null_byte = gather_fixed(data, starts + (2 + i // 8), 1)[:, 0]
        valid = (null_byte >> (i % 8)) & 1 == 0
        decode = _decode_varying if columns[i].type.width is None else _decode_fixed
        arrays.append(decode(columns[i], layout, i, data, starts, valid))
    return arrays


def _decode_fixed(
    column: Column, layout: Layout, i: int, data: np.ndarray, starts: np.ndarray, valid: np.ndarray
) -> pa.Array:
    body = np.ascontiguousarray(gather_fixed(data, starts + layout.offsets[i], column.type.width or 0))
    if column.type.kind == "BOOLEAN":
        return pa.array(body[:, 0] == 1, pa.bool_(), mask=None if valid.all() else ~valid)
    bits = None if valid.all() else pack_bits(valid)
    return pa.Array.from_buffers(column.type.arrow, len(starts), [bits, pa.py_buffer(body)])


def _decode_varying(
    column: Column, layout: Layout, i: int, data: np.ndarray, starts: np.ndarray, valid: np.ndarray
) -> pa.Array:
    rank, first = layout.offsets[i], starts + layout.body
    ends = gather_fixed(data, first + 4 * rank, 4).copy().view("<u4")[:, 0].astype(np.int64)
    begins = np.zeros(len(starts), np.int64)
    if rank:
        begins = gather_fixed(data, first + 4 * (rank - 1), 4).copy().view("<u4")[:, 0].astype(np.int64)
    body = gather(data, starts + layout.head_size + begins, ends - begins)
    return body.to_arrow(valid=valid, text=column.type.kind == "STRING")


def _fixed_bytes(column: Column, array: pa.Array) -> np.ndarray:
    """The values of a fixed-width column as a matrix of bytes, zeros where NULL."""
    width = column.type.width or 0
    if column.type.kind == "BOOLEAN":
        return np.asarray(array.fill_null(False)).astype(np.uint8)[:, None]
    if array.type != column.type.arrow:
        array = array.cast(column.type.arrow)
    data = np.frombuffer(array.buffers()[1], np.uint8)
    matrix = data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)
    if array.null_count:
        matrix = matrix.copy()
        matrix[np.asarray(array.is_null())] = 0
    return matrix


StoredIndex = tuple[str, int]  # where a column is stored: in the "key" or in the "row", at which index


def stored_indexes(schema: TableSchema) -> dict[str, StoredIndex]:
    """Where the columns of a table are stored, by name in declared order."""
    stored = {name: ("key", index) for index, name in enumerate(schema.key)}
    stored |= {column.name: ("row", index) for index, column in enumerate(schema.value_columns)}
    return {column.name: stored[column.name] for column in schema.columns}


def decode_indexes(
    key: tuple[Column, ...], row: tuple[Column, ...], positions: Sequence[StoredIndex], keys: pa.Array, rows: pa.Array
) -> list[pa.Array]:
    """The columns at those places; inside ViewKeeper, so a TIMESTAMP is naive."""
    wanted = sorted({index for part, index in positions if part == "row"})
    values = dict(zip(wanted, decode_rows(row, rows, wanted), strict=True)) if wanted else {}
    parts = decode_keys(key, keys) if any(part == "key" for part, _ in positions) else []
    return [parts[index] if part == "key" else values[index] for part, index in positions]


def decode_columns(schema: TableSchema, names: Sequence[str], keys: pa.Array, rows: pa.Array) -> list[pa.Array]:
    """The columns of a table with those names, as users see them."""
    positions = stored_indexes(schema)
    wanted = [positions[name] for name in names]
    return [*map(as_users_see, decode_indexes(schema.key_columns, schema.value_columns, wanted, keys, rows))]


def as_users_see(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """An array as users see it: inside ViewKeeper a TIMESTAMP is naive and means UTC."""
    return array.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(array.type) else array
