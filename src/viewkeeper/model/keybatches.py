"""Key batches: the format of `keys` over Arrow arrays, and the order of many keys.

In: one Arrow array per key column, or an array of key bytes. Out: key bytes with the placement hash of each key's first
part; columns; or indexes in the order of the keys. Always: the same bytes and hashes as `keys` computes. To order keys, only
the bits in which they differ are compared, packed into words of 64, each word only where the previous ones tie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model import keys
from viewkeeper.model.schema import Column
from viewkeeper.model.varbinary import VarBinary, flat, gather, gather_fixed, join, pack_bits

_COLUMNS_MAX = 64  # of keys of one length that are added up column by column
_ORDERED = {"INT": ">u4", "DATE": ">u4", "BIGINT": ">u8", "TIMESTAMP": ">u8"}


def encode_keys(columns: Sequence[Column], arrays: Sequence[pa.Array], count: int) -> tuple[pa.Array, np.ndarray]:
    """Key bytes of `count` rows, and the placement hash of their first parts."""
    if not columns:  # aggregates without GROUP BY: the empty key
        return pa.array([b""] * count, pa.binary()), np.full(count, keys.placement_hash(b""), np.uint32)
    parts = [_encode_part(column.type.kind, flat(array)) for column, array in zip(columns, arrays, strict=True)]
    return join(parts).to_arrow(), hash_all(parts[0])


def hash_all(part: VarBinary | np.ndarray) -> np.ndarray:
    """`keys.placement_hash` of every string."""
    shaped = part.as_matrix() if isinstance(part, VarBinary) else part
    if isinstance(shaped, np.ndarray):
        return _spread(_sums_of_rows(shaped))
    if not len(shaped.data):
        return np.full(len(shaped), keys.placement_hash(b""), np.uint32)
    powers = _powers(int(shaped.lengths.max()))
    terms = shaped.data * powers[np.arange(len(shaped.data)) - np.repeat(shaped.offsets[:-1], shaped.lengths)]
    running = np.zeros(len(terms) + 1, np.uint64)  # may wrap around; the differences are still right
    np.cumsum(terms, out=running[1:])
    return _spread(running[shaped.offsets[1:]] - running[shaped.offsets[:-1]])


def _sums_of_rows(matrix: np.ndarray) -> np.ndarray:
    if matrix.shape[1] > _COLUMNS_MAX:
        return matrix.astype(np.uint64) @ _powers(matrix.shape[1])
    sums, same = np.zeros(len(matrix), np.uint64), np.uint64(0)
    for column, power in zip(matrix.T, _powers(matrix.shape[1]), strict=True):
        if (column == column[:1]).all():  # most bytes of a key are: tags, and the leading ones
            same += column[:1].sum(dtype=np.uint64) * power
        else:
            sums += column * power
    return sums + same


def _spread(sums: np.ndarray) -> np.ndarray:
    return ((sums % keys.PRIME * np.uint64(keys.SPREAD)) >> np.uint64(32)).astype(np.uint32)


def hashes_of_keys(columns: Sequence[Column], encoded: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """The placement hash of encoded keys, by their first part."""
    whole = VarBinary.from_arrow(encoded)
    if len(columns) <= 1:  # none: the empty key
        return hash_all(whole)
    starts = whole.offsets[:-1]
    _, ends = _decode_part(columns[0], whole, starts.copy())
    return hash_all(gather(whole.data, starts, ends - starts))


def decode_keys(columns: Sequence[Column], encoded: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """One Arrow array per key column."""
    whole = VarBinary.from_arrow(encoded)
    return _decode_parts(columns, whole, whole.offsets[:-1].copy())[0]


def decode_after(first: Sequence[Column], rest: Sequence[Column], encoded: pa.Array) -> tuple[list[pa.Array], pa.Array]:
    """One Arrow array for each column of keys made of `first` and `rest`, and the bytes of `first` alone."""
    whole = VarBinary.from_arrow(encoded)
    arrays, at = _decode_parts(first, whole, whole.offsets[:-1].copy())
    prefixes = gather(whole.data, whole.offsets[:-1], at - whole.offsets[:-1]).to_arrow()
    return arrays + _decode_parts(rest, whole, at)[0], prefixes


def _decode_parts(columns: Sequence[Column], whole: VarBinary, at: np.ndarray) -> tuple[list[pa.Array], np.ndarray]:
    """The columns that begin at `at` in each key, and where they end."""
    arrays = []
    for column in columns:
        array, at = _decode_part(column, whole, at)
        arrays.append(array)
    return arrays, at


def _powers(count: int) -> np.ndarray:
    """256^i modulo the prime, for i below `count`."""
    return _powers_up_to(count.bit_length())[:count]


@lru_cache
def _powers_up_to(bits: int) -> np.ndarray:
    powers = accumulate(range(1, 1 << bits), lambda power, _: power * 256 % keys.PRIME, initial=1)
    return np.fromiter(powers, np.uint64, 1 << bits)


def _encode_part(kind: str, array: pa.Array) -> VarBinary | np.ndarray:
    valid = None if not array.null_count else np.asarray(array.is_valid())
    if kind in ("STRING", "BINARY"):
        body: VarBinary | np.ndarray = _encode_text(array)
    elif kind == "DECIMAL":
        body = _encode_decimal(array)
    elif kind == "BOOLEAN":
        body = np.asarray(array.fill_null(False)).astype(np.uint8)[:, None]
    elif kind == "DOUBLE":
        body = _encode_double(np.asarray(array.fill_null(0.0)))
    else:
        integers = pa.int64() if _ORDERED[kind] == ">u8" else pa.int32()
        signed = np.asarray(array.cast(integers, safe=False).fill_null(0))
        width = signed.dtype.itemsize
        flipped = signed.view(f"u{width}") ^ np.array(1 << (8 * width - 1), f"u{width}")
        body = flipped.astype(_ORDERED[kind]).view(np.uint8).reshape(-1, width)
    tag = np.ones((len(array), 1), np.uint8) if valid is None else valid.astype(np.uint8)[:, None]
    end = np.zeros((len(array), 2), np.uint8)
    if valid is None and isinstance(body, np.ndarray):
        return np.concatenate([tag, body], axis=1)
    whole = join([tag, body, end] if isinstance(body, VarBinary) else [tag, body])
    if valid is None:
        return whole
    return gather(whole.data, whole.offsets[:-1], np.where(valid, whole.lengths, 1))


def _encode_text(array: pa.Array) -> VarBinary:
    body = VarBinary.from_arrow(array)
    if not (body.data == 0).any():
        return body
    escaped = [(text or b"").replace(b"\x00", keys.ESCAPE) for text in array.cast(pa.binary()).to_pylist()]
    return VarBinary.from_arrow(pa.array(escaped, pa.binary()))


def _encode_double(values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # of a NaN that signals, as damaged bytes may hold one
        bits = (values + 0.0).view(np.uint64).copy()
    bits[np.isnan(values)] = keys.NAN_BITS
    sign = np.uint64(1 << 63)
    ordered = np.where(bits & sign, ~bits, bits | sign)
    return ordered.astype(">u8").view(np.uint8).reshape(-1, 8)


def _encode_decimal(array: pa.Array) -> np.ndarray:
    data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * 16 : (array.offset + len(array)) * 16]
    big = data.reshape(-1, 16)[:, ::-1].copy()
    big[:, 0] ^= 0x80
    return big


def _decode_part(column: Column, whole: VarBinary, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    kind = column.type.kind
    valid = whole.data[at] == 1 if len(at) else np.empty(0, bool)
    start = at + 1
    if kind in ("STRING", "BINARY"):
        return _decode_text(kind, whole, start, valid)
    width = 1 if kind == "BOOLEAN" else keys.INTEGER_WIDTHS.get(kind, 8)
    body = np.zeros((len(at), width), np.uint8)
    body[valid] = gather_fixed(whole.data, start[valid], width)
    return _decode_fixed(column, body, valid), np.where(valid, start + width, start)


def _decode_fixed(column: Column, body: np.ndarray, valid: np.ndarray) -> pa.Array:
    kind = column.type.kind
    bits = None if valid.all() else pack_bits(valid)
    if kind == "BOOLEAN":
        return pa.array(body[:, 0] == 1, pa.bool_(), mask=~valid)
    if kind == "DECIMAL":
        body[:, 0] ^= 0x80
        data = np.ascontiguousarray(body[:, ::-1])
    else:
        width = body.shape[1]
        flipped = body.view(f">u{width}")[:, 0].astype(f"u{width}")
        sign = np.array(1 << (8 * width - 1), f"u{width}")
        data = np.where(flipped & sign, flipped & ~sign, ~flipped) if kind == "DOUBLE" else flipped ^ sign
    return pa.Array.from_buffers(column.type.arrow, len(body), [bits, pa.py_buffer(data)])


def _decode_text(kind: str, whole: VarBinary, start: np.ndarray, valid: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    if (alike := _texts_of_one_length(whole, start)) is not None and valid.all():
        return VarBinary.of_matrix(alike).to_arrow(text=kind == "STRING"), start + alike.shape[1] + 2
    zeros = np.flatnonzero(whole.data == 0)
    first = np.where(valid, start, 0)
    end = zeros[np.minimum(np.searchsorted(zeros, first), len(zeros) - 1)] if len(zeros) else first
    following = whole.data[np.minimum(end + 1, len(whole.data) - 1)] if len(whole.data) else np.empty(0, np.uint8)
    if (following[valid] != 0).any():  # an escaped NUL somewhere: find the true ends one by one
        return _decode_escaped(kind, whole, start, valid)
    body = gather(whole.data, first, np.where(valid, end - first, 0))
    return body.to_arrow(valid=valid, text=kind == "STRING"), np.where(valid, end + 2, start)


def _texts_of_one_length(whole: VarBinary, start: np.ndarray) -> np.ndarray | None:
    """The texts that begin at `start`, if all keys are as long as each other, and all texts too."""
    matrix = whole.as_matrix()
    if not isinstance(matrix, np.ndarray) or (start - whole.offsets[:-1] != start[0]).any():
        return None
    first = int(start[0])
    length = matrix[0, first:].tobytes().find(b"\x00\x00")
    texts = np.ascontiguousarray(matrix[:, first : first + length])
    if length < 0 or matrix[:, first + length : first + length + 2].any() or not texts.all():
        return None
    return texts


def _decode_escaped(kind: str, whole: VarBinary, start: np.ndarray, valid: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    data = whole.data.tobytes()
    texts: list[bytes | None] = []
    ends = start.copy()
    for i in range(len(start)):
        if not valid[i]:
            texts.append(None)
            continue
        end = keys.find_terminator(data, int(start[i]))
        texts.append(data[int(start[i]) : end].replace(keys.ESCAPE, b"\x00"))
        ends[i] = end + 2
    array = pa.array(texts, pa.binary())
    return pc.cast(array, pa.string()) if kind == "STRING" else array, ends


_WIDTH_MAX = 128  # longer keys are compared string by string


def order_of_keys(keys: pa.Array, *, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The indexes of all keys by `groups` and then in ascending order, equal keys of one group in no order; and where in it
    each key of a group begins."""
    strings = VarBinary.from_arrow(keys)
    if not len(strings):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if int(strings.lengths.max()) > _WIDTH_MAX:
        return _order_of_long_keys(keys, groups)
    order, begins = np.arange(len(strings)), np.zeros(len(strings), bool)
    begins[0] = True
    for word in _packed([(groups.astype(np.uint64), 64), *_parts(strings)]):
        order = _sort_ties(order, begins, word)
        begins[1:] |= (sorted_word := word[order])[1:] != sorted_word[:-1]
    return order, np.flatnonzero(begins)


def last_of_keys(keys: pa.Array, within: np.ndarray, *, groups: np.ndarray) -> np.ndarray:
    """The index of each key of a group where `within` is largest, in the same order."""
    order, starts = order_of_keys(keys, groups=groups)
    if len(starts) == len(order):
        return order
    ordered, counts = within[order], np.diff(starts, append=len(order))
    is_largest = ordered == np.repeat(np.maximum.reduceat(ordered, starts), counts)
    ties = np.repeat(np.arange(len(starts)), counts)[is_largest]
    return order[is_largest][np.append(ties[1:] != ties[:-1], True)]


def _parts(strings: VarBinary) -> list[tuple[np.ndarray, int]]:
    """Eight bytes of the keys after the other as numbers, and last the lengths where they differ: "a" is before "a\\0"."""
    lengths = strings.lengths
    width = int(lengths.max())
    shaped = strings.as_matrix()
    padded = np.zeros((len(strings), -(-width // 8) * 8), np.uint8)
    if isinstance(shaped, np.ndarray):
        padded[:, :width] = shaped
    else:
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = strings.data
    words = [(word.astype(np.uint64), 8) for word in padded.view(">u8").T]
    return words if isinstance(shaped, np.ndarray) else [*words, (lengths.astype(np.uint64), 64)]


def _packed(parts: list[tuple[np.ndarray, int]]) -> Iterator[np.ndarray]:
    """Numbers packed into words, the first most significant: of each `step` bits only those that differ."""
    packed, room = np.zeros(0, np.uint64), 0
    for numbers, step in parts:
        differing = int(np.bitwise_or.reduce(numbers ^ numbers[0]))
        for shift in range(64 - step, -1, -step):
            bits = differing >> shift & (1 << step) - 1
            if not bits:
                continue
            low = shift + (bits & -bits).bit_length() - 1
            width = shift + bits.bit_length() - low
            if width > room:
                if len(packed):
                    yield packed
                packed, room = np.zeros(len(numbers), np.uint64), 64
            room -= width
            packed |= (numbers >> np.uint64(low) & np.uint64((1 << width) - 1)) << np.uint64(room)
    if len(packed):
        yield packed


def _sort_ties(order: np.ndarray, begins: np.ndarray, word: np.ndarray) -> np.ndarray:
    """The indexes sorted by `word` where they were equal so far: between two of `begins`."""
    tied = ~begins
    tied[:-1] |= ~begins[1:]
    if begins.sum() == 1:
        return order[np.argsort(word[order])]
    if not tied.any():
        return order
    among = order[tied]
    group = np.cumsum(begins)[tied]
    order[tied] = among[np.lexsort((word[among], group))]
    return order


def _order_of_long_keys(keys: pa.Array, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    columns = pa.table({"group": pa.array(groups), "key": keys})
    order = np.asarray(pc.sort_indices(columns, [("group", "ascending"), ("key", "ascending")])).astype(np.int64)
    ordered, ordered_groups = keys.take(pa.array(order)), groups[order]
    differs = ~np.asarray(pc.equal(ordered[1:], ordered[:-1])) | (ordered_groups[1:] != ordered_groups[:-1])
    return order, np.flatnonzero(np.append(True, differs))
