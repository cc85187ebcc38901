"""Row batches: the format of `rows`, over Arrow arrays.

In: one Arrow array per column, or an array of row bytes. Out: the other. Always: the same bytes as `rows` gives for each
row, and a NULL among row bytes (no row) decodes to NULL in every column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.ragged import Ragged, gather, gather_fixed, join, pack_bits
from viewkeeper.model.rows import Layout, layout_of
from viewkeeper.model.schema import Column


def encode_rows(columns: tuple[Column, ...], arrays: Sequence[pa.Array], count: int) -> pa.Array:
    """Row bytes of `count` rows; `arrays` follow `columns`."""
    layout = layout_of(columns)
    flat = [a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for a in arrays]
    fixed = np.zeros((count, layout.body), np.uint8)
    fixed[:, 0] = len(columns) & 0xFF
    fixed[:, 1] = len(columns) >> 8
    for i, array in enumerate(flat):
        if array.null_count:
            fixed[:, 2 + i // 8] |= np.asarray(array.is_null()).astype(np.uint8) << (i % 8)
    for i in layout.fixed:
        place, width = layout.places[i], columns[i].type.width or 0
        fixed[:, place : place + width] = _fixed_bytes(columns[i], flat[i])
    if not layout.varying:
        return join([fixed]).to_arrow()
    bodies = [Ragged.from_arrow(flat[i]) for i in layout.varying]
    ends = np.cumsum(np.stack([body.lengths for body in bodies], axis=1), axis=1).astype("<u4")
    return join([fixed, ends.view(np.uint8).reshape(count, 4 * len(bodies)), *bodies]).to_arrow()


def decode_rows(columns: tuple[Column, ...], rows: pa.Array, wanted: Sequence[int] | None = None) -> list[pa.Array]:
    """One Arrow array per wanted column (all by default)."""
    wanted = range(len(columns)) if wanted is None else wanted
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    if rows.null_count == len(rows):
        return [pa.nulls(len(rows), columns[i].type.arrow) for i in wanted]
    whole = Ragged.from_arrow(rows)
    present = np.asarray(rows.is_valid()) if rows.null_count else None
    starts = whole.offsets[:-1] if present is None else whole.offsets[:-1][present]
    counts = gather_fixed(whole.data, starts, 2).copy().view("<u2")[:, 0]
    if counts.max() > len(columns):
        raise InvariantBroken(f"a row of {counts.max()} columns was read with a schema of {len(columns)}")
    if (counts == counts[0]).all():
        arrays = _decode_alike(columns, int(counts[0]), whole.data, starts, wanted)
    else:
        arrays = _decode_mixed(columns, counts, whole.data, starts, wanted)
    if present is None:
        return arrays
    index = pa.array(np.cumsum(present) - 1, mask=~present)
    return [array.take(index) for array in arrays]


def _decode_mixed(
    columns: tuple[Column, ...], counts: np.ndarray, data: np.ndarray, starts: np.ndarray, wanted: Sequence[int]
) -> list[pa.Array]:
    """Rows written under several versions of the schema: decoded apart, then put back in order."""
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
    body = np.ascontiguousarray(gather_fixed(data, starts + layout.places[i], column.type.width or 0))
    if column.type.kind == "BOOLEAN":
        return pa.array(body[:, 0] == 1, pa.bool_(), mask=None if valid.all() else ~valid)
    bits = None if valid.all() else pack_bits(valid)
    return pa.Array.from_buffers(column.type.arrow, len(starts), [bits, pa.py_buffer(body)])


def _decode_varying(
    column: Column, layout: Layout, i: int, data: np.ndarray, starts: np.ndarray, valid: np.ndarray
) -> pa.Array:
    rank = layout.places[i]
    ends = gather_fixed(data, starts + layout.body + 4 * rank, 4).copy().view("<u4")[:, 0].astype(np.int64)
    if rank:
        begins = gather_fixed(data, starts + layout.body + 4 * (rank - 1), 4).copy().view("<u4")[:, 0].astype(np.int64)
    else:
        begins = np.zeros(len(starts), np.int64)
    body = gather(data, starts + layout.head_size + begins, ends - begins)
    return body.to_arrow(valid=valid, text=column.type.kind == "STRING")


def _fixed_bytes(column: Column, array: pa.Array) -> np.ndarray:
    """The values of a fixed-width column as a matrix of bytes, zeros where NULL."""
    width = column.type.width or 0
    if column.type.kind == "BOOLEAN":
        return np.asarray(array.fill_null(False)).astype(np.uint8)[:, None]
    if array.type != column.type.arrow:
        array = array.cast(column.type.arrow)
    data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    matrix = data.reshape(-1, width)
    if array.null_count:
        matrix = matrix.copy()
        matrix[np.asarray(array.is_null())] = 0
    return matrix
