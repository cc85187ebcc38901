"""Exact sums: of integers in 64 or 128 bits; of DOUBLE by mantissas, binned by exponent, in 128 bits (R7).

In: integers, doubles or stored sums; tables whose rows are added up by key. Out: sums; of DOUBLE for each group canonical
bytes, and the double nearest to the exact sum; one row for each key. Always: a function of the multiset of what was added
and subtracted; a sum that leaves its bits stops the epoch instead of wrapping around; NaN and the infinities are counted,
so that subtracting the last one restores the finite sum. Numbers of more than 64 bits are added up by their quarters.

A finite double is `mantissa · 2^(unit − 1074)`; `unit` is 0 to 2045. A stored sum is a list of (bin u16, 128-bit sum),
a bin holding the 32 units from 32 · bin on; the three bins after those of the units count NaN, +∞ and −∞.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.keybatches import order_of_keys
from viewkeeper.model.varbinary import VarBinary, flat, offsets_of

WIDE = pa.decimal128(38, 0)


def limbs_of(array: pa.Array) -> np.ndarray:
    words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
    limbs = words.reshape(-1, 2)
    if array.null_count:
        limbs = limbs.copy()
        limbs[np.asarray(array.is_null())] = 0
    return limbs


def of_limbs(limbs: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(WIDE, len(limbs), [None, pa.py_buffer(np.ascontiguousarray(limbs))])


def narrow(array: pa.Array) -> np.ndarray | None:
    """The numbers in 64 bits; None unless all fit."""
    limbs = limbs_of(array).view(np.int64)
    return limbs[:, 0] if (limbs[:, 1] == limbs[:, 0] >> 63).all() else None


def widened(numbers: np.ndarray) -> pa.Array:
    """64-bit numbers in 128 bits."""
    return of_limbs(np.stack([numbers, numbers >> 63], axis=1).view(np.uint64))


def whole_of(column: pa.Array) -> np.ndarray:
    """Integers, or decimals without their point, in 64 bits; in limbs unless all fit. NULL is 0."""
    if not pa.types.is_decimal(column.type):
        return np.asarray(column.fill_null(0)).astype(np.int64)
    numbers = narrow(column)
    return limbs_of(column) if numbers is None else numbers


_LOW = (1 << 32) - 1
_ROWS_AT_ONCE = 1 << 20  # whose quarters, added up as doubles, are not rounded


def quarters_of(numbers: np.ndarray) -> np.ndarray:
    """Numbers, or their limbs, as four columns of 32 bits, the last with the sign; 2^31 of them can be added up."""
    if numbers.ndim == 1:
        numbers = np.stack([numbers, numbers >> 63], axis=1)
    low, high = numbers.view(np.int64).T
    return np.stack([low & _LOW, (low >> 32) & _LOW, high & _LOW, high >> 32], axis=1)


def of_quarters(sums: np.ndarray) -> pa.Array:
    """The numbers whose quarters these are, or add up to these, in 128 bits."""
    sums = sums.copy()
    for index in range(3):
        sums[:, index + 1] += sums[:, index] >> 32
        sums[:, index] &= _LOW
    if (np.abs(sums[:, 3] + 0.5) > 1 << 31).any():
        raise InvariantBroken("a sum does not fit 128 bits")
    return of_limbs((sums[:, ::2] | sums[:, 1::2] << 32).view(np.uint64))


def consolidate(
    tables: Sequence[pa.Table], sums: Sequence[str], *, within: str = "", keep_zeros: bool = False
) -> pa.Table:
    """For each `key`, and each value of the column `within`, the sum of each of `sums`, in their order.

    Other columns are taken from one of the rows. Without `keep_zeros`, rows whose sums are all 0 are left out.
    """
    rows = pa.concat_tables(tables).combine_chunks()
    groups = np.asarray(rows[within]).astype(np.int64) if within else np.zeros(len(rows), np.int64)
    order, starts = order_of_keys(rows["key"].combine_chunks(), groups=groups)
    if keep_zeros and len(starts) == len(rows):
        return rows.take(pa.array(order))  # nothing is to be added up
    added, is_kept = rows.take(pa.array(order[starts])), np.full(len(starts), keep_zeros)
    for name in sums if len(rows) else ():
        kind = rows.schema.field(name).type
        total = _sums_of_runs(whole_of(rows[name].combine_chunks()), order, starts, kind)
        is_kept |= np.asarray(pc.not_equal(total, pa.scalar(0, kind)))
        added = added.set_column(rows.column_names.index(name), name, total)
    return added if keep_zeros else added.filter(pa.array(is_kept))


def _sums_of_runs(numbers: np.ndarray, order: np.ndarray, starts: np.ndarray, kind: pa.DataType) -> pa.Array:
    if numbers.ndim == 1 and max(int(numbers.max()), -int(numbers.min())) * len(numbers) < 1 << 63:
        totals = np.add.reduceat(numbers[order], starts)
        return widened(totals) if kind == WIDE else pa.array(totals, kind)
    found = of_quarters(np.add.reduceat(quarters_of(numbers)[order], starts))
    return found if kind == WIDE else found.cast(kind)


_BIN_UNITS = 32
_NAN, _PLUS, _MINUS = 64, 65, 66
_BINS = 256  # more than there are
_LEAST = 1074  # the smallest subnormal is 2^-1074
_ENTRY = np.dtype([("bin", "<u2"), ("low", "<u8"), ("high", "<i8")])


def add_exactly(left: pa.Array, right: pa.Array | pa.ChunkedArray) -> pa.Array:
    """left + right of the same type, where NULL counts as 0."""
    right = flat(right)
    if pa.types.is_integer(left.type):
        return pc.add_checked(left.fill_null(0), right.fill_null(0))
    a, b = limbs_of(left), limbs_of(right)
    low = a[:, 0] + b[:, 0]
    high = a[:, 1] + b[:, 1] + (low < a[:, 0])
    first, second, added = (words >> np.uint64(63) for words in (a[:, 1], b[:, 1], high))  # signs
    if ((first == second) & (first != added)).any():
        raise InvariantBroken("a sum does not fit 128 bits")
    return of_limbs(np.stack([low, high], axis=1))


def are_exact(values: np.ndarray) -> bool:
    """Whether 64-bit integers, times 1, 0 or -1, can be added up as doubles in whatever order: no double is rounded."""
    return max(int(values.max(initial=0)), -int(values.min(initial=0))) * len(values) < 1 << 53


def sum_exact(indexes: np.ndarray, doubles: np.ndarray, count: int) -> pa.Array:
    """The sum at each of `count` places, of doubles that are exact, in 128 bits."""
    return widened(np.bincount(indexes, doubles, count).astype(np.int64))


def sum_any(indexes: np.ndarray, signs: np.ndarray, numbers: np.ndarray, count: int) -> pa.Array:
    """The sum at each of `count` places, of any numbers, or limbs of numbers, times 1, 0 or -1, in 128 bits."""
    sums = np.zeros((count, 4), np.int64)
    for start in range(0, len(indexes), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        for quarter, values in enumerate(quarters_of(numbers[some]).T):
            sums[:, quarter] += np.bincount(indexes[some], values * signs[some], count).astype(np.int64)
    return of_quarters(sums)


def split(values: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Unit and signed mantissa of each double; a special value is one of its own unit."""
    bits = values.view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & ((1 << 52) - 1)
    mantissa = np.where(exponent > 0, fraction | (1 << 52), fraction)
    units = np.maximum(exponent, 1) - 1
    mantissa = np.where(bits < 0, -mantissa, mantissa)
    special = exponent == 0x7FF
    if special.any():
        kinds = np.where(fraction != 0, _NAN, np.where(bits < 0, _MINUS, _PLUS)) * _BIN_UNITS
        units, mantissa = np.where(special, kinds, units), np.where(special, 1, mantissa)
    return [(units.astype(np.int16), mantissa)]


def split_squares(values: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The square of each finite double, (a · 2^27 + b)², in three parts of up to 54 bits; unit 0 stands for 2^-2148."""
    ((units, mantissas),) = split(values)
    finite = units < _NAN * _BIN_UNITS
    sizes, twice = np.where(finite, np.abs(mantissas), 0), np.where(finite, 2 * units, 0)
    high, low = sizes >> 27, sizes & ((1 << 27) - 1)
    return [(twice + 54, high * high), (twice + 28, high * low), (twice, low * low)]


# What is summed: for each kind of sum the parts (unit, mantissa) of each value.
DOUBLE_SUMS: dict[str, Callable[[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]] = {
    "sum": split,
    "squares": split_squares,
}


def add_sums(kept: pa.Array, groups: np.ndarray, units: np.ndarray, sums: pa.Array) -> pa.Array:
    """The stored sums (NULL: none) with `sums` of `units` added to the groups at the given indexes."""
    old_groups, old_bins, old_sums = _read(kept)
    bins = np.concatenate([old_bins, units.astype(np.int64) // _BIN_UNITS])
    codes = np.concatenate([old_groups, groups.astype(np.int64)]) * _BINS + bins
    if not len(codes):
        return kept.fill_null(b"")
    quarters = quarters_of(np.concatenate([limbs_of(old_sums), limbs_of(sums.cast(WIDE))]))
    quarters[len(old_bins) :] = _shifted(quarters[len(old_bins) :], units.astype(np.int64) % _BIN_UNITS)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    totals = of_quarters(np.add.reduceat(quarters[order], starts))
    is_kept = np.asarray(pc.not_equal(totals, pa.scalar(0, WIDE)))
    chosen = codes[order[starts]][is_kept]
    return _write(len(kept), chosen // _BINS, chosen % _BINS, totals.filter(pa.array(is_kept)))


def _shifted(quarters: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """The quarters of each number times two to the power of fewer than 32 bits."""
    wide = quarters << bits[:, np.newaxis]
    carried = wide[:, :3] >> 32
    wide[:, :3] &= _LOW
    wide[:, 1:] += carried
    return wide


def round_sums(kept: pa.Array) -> pa.Array:
    """The double nearest to each stored sum; 0.0 for an empty one."""
    groups, bins, sums = _read(kept)
    result = np.zeros(len(kept))
    if not len(groups):
        return pa.array(result)
    alone = np.bincount(groups, minlength=len(kept))[groups] == 1
    low, high = _low_and_high(sums)
    small = alone & (bins < _NAN) & (high == (low.view(np.int64) >> 63))
    result[groups[small]] = np.ldexp(low[small].view(np.int64).astype(np.float64), bins[small] * _BIN_UNITS - _LEAST)
    others = np.flatnonzero(~small)
    borders = np.flatnonzero(np.diff(groups[others], prepend=-1, append=-1))
    for start, stop in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        chosen = others[start:stop]
        values = (high[chosen].astype(object) << 64) + low[chosen].astype(object)
        result[groups[chosen[0]]] = _round(bins[chosen].tolist(), values.tolist())
    return pa.array(result)


def variances(freedom: int | pa.Array, count: pa.Array, sums: pa.Array, squares: pa.Array) -> pa.Array:
    """(n·Σx² − (Σx)²) / (n·(n − freedom)) of exact sums, rounded once; NaN where a value is not finite."""
    totals, special = _totals(sums)
    squared, _ = _totals(squares)
    numbers = zip(whole_numbers(freedom, len(count)), count.to_pylist(), totals, squared, strict=True)
    unit = 1 << _LEAST
    found = [exact_variance(f, n, total, square, unit) for f, n, total, square in numbers]
    return pa.array(np.where(special, math.nan, np.array(found, np.float64)))


def exact_variance(freedom: int, count: int, total: int, squares: int, unit: int) -> float:
    """The variance of `count` numbers that are whole in units of 1 / `unit`; Python rounds a quotient of integers once."""
    if count <= freedom:
        return 0.0  # which nobody shows
    try:
        return (count * squares - total * total) / (count * (count - freedom) * unit * unit)
    except OverflowError:
        return math.inf


def whole_numbers(values: int | pa.Array, count: int) -> list[int]:
    """A column of integers as Python's, or one that stands for a whole column."""
    return [values] * count if isinstance(values, int) else [int(value) for value in values.to_pylist()]


def sum_lists(kind: str, lists: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The exact sum of each list without NULLs; NULL of none."""
    lists = flat(lists)
    groups = np.repeat(np.arange(len(lists)), np.asarray(pc.fill_null(pc.list_value_length(lists), 0)))
    kept = pa.nulls(len(lists), pa.binary())
    for units, mantissas in DOUBLE_SUMS[kind](np.asarray(lists.flatten())):
        kept = add_sums(kept, groups, units, pa.array(mantissas))
    return pc.if_else(lists.is_valid(), kept, None)


def _round(bins: Sequence[int], sums: Sequence[int]) -> float:
    special = {kind: total for kind, total in zip(bins, sums, strict=True) if kind >= _NAN}
    if min(special.values(), default=0) < 0:
        raise InvariantBroken("more special values of a DOUBLE were taken away than added")
    if _NAN in special or (_PLUS in special and _MINUS in special):
        return math.nan
    if special:
        return math.inf if _PLUS in special else -math.inf
    total = sum(value << (_BIN_UNITS * number) for number, value in zip(bins, sums, strict=True))
    # Python rounds a large integer half to even; one bit represents all that is cut off, which keeps that exact.
    cut = max(0, abs(total).bit_length() - 64)
    head = abs(total) >> cut | bool(abs(total) & ((1 << cut) - 1))
    try:
        size = math.ldexp(float(head), cut - _LEAST)
    except OverflowError:
        size = math.inf
    return -size if total < 0 else size


def _totals(kept: pa.Array) -> tuple[list[int], np.ndarray]:
    """Each kept sum as an integer, and whether special values are counted in it: of squares no bin means that."""
    groups, bins, sums = _read(kept)
    low, high = _low_and_high(sums)
    totals, special = [0] * len(kept), np.zeros(len(kept), bool)
    special[groups[bins >= _NAN]] = True
    for group, number, above, below in zip(groups.tolist(), bins.tolist(), high.tolist(), low.tolist(), strict=True):
        totals[group] += ((above << 64) + below) << (_BIN_UNITS * number)
    return totals, special


def _read(kept: pa.Array) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """Group indexes, bins and sums of stored values, group after group."""
    whole = VarBinary.from_arrow(kept)
    counts = whole.lengths // _ENTRY.itemsize
    entries = np.frombuffer(np.ascontiguousarray(whole.data).tobytes(), _ENTRY, int(counts.sum()))
    sums = of_limbs(np.stack([entries["low"], entries["high"].view(np.uint64)], axis=1))
    return np.repeat(np.arange(len(kept)), counts), entries["bin"].astype(np.int64), sums


def _write(count: int, groups: np.ndarray, bins: np.ndarray, sums: pa.Array) -> pa.Array:
    entries = np.empty(len(groups), _ENTRY)
    entries["bin"] = bins
    entries["low"], entries["high"] = _low_and_high(sums)
    offsets = offsets_of(np.bincount(groups, minlength=count) * _ENTRY.itemsize)
    return VarBinary(np.frombuffer(entries.tobytes(), np.uint8), offsets).to_arrow()


def _low_and_high(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    limbs = limbs_of(array)
    return np.ascontiguousarray(limbs[:, 0]), np.ascontiguousarray(limbs[:, 1]).view(np.int64)
