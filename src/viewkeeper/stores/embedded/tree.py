"""Tree: ordered keys of any length on LMDB, whose keys are at most 511 bytes.

In: a transaction, a table id and whole keys. Out: values, in exact key order. Always: a key shorter than the limit stands
for itself; longer ones that share their first bytes live together in one bucket under these bytes, sorted by the rest.
No direct key can equal a bucket's, because every bucket key has exactly the limit's length and no direct key has.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter

import lmdb

from viewkeeper.model.fills import Borders
from viewkeeper.model.keys import after_prefix

LIMIT = 500  # table id included
LIST_BYTES = 64 << 20
_TABLE = struct.Struct(">I")
TABLE_BYTES = _TABLE.size
_SIZES = struct.Struct("<II")
_FIRST_PAIRS = 16  # of a scan whose length nobody knows
_LIST_PAIRS = 4_096  # are read at once, once it turns out to be long
_KEY_OF = itemgetter(0)
_VALUE_OF = itemgetter(1)


def table_prefix(table: int) -> bytes:
    return _TABLE.pack(table)


def get(transaction: lmdb.Transaction, key: bytes) -> bytes | None:
    """The value under a key that carries its table prefix."""
    if len(key) < LIMIT:
        return transaction.get(key)
    suffixes, values = _read_bucket(transaction, key[:LIMIT])
    at = bisect_left(suffixes, key[LIMIT:])
    return values[at] if at < len(suffixes) and suffixes[at] == key[LIMIT:] else None


def get_many(transaction: lmdb.Transaction, keys: Sequence[bytes]) -> list[bytes | None]:
    """The value of each key, None where absent."""
    if max(map(len, keys), default=0) < LIMIT:
        return list(map(transaction.cursor().get, keys))  # a cursor that stays near by needs no way from the root
    return [get(transaction, key) for key in keys]


def put(transaction: lmdb.Transaction, key: bytes, value: bytes) -> None:
    if len(key) < LIMIT:
        transaction.put(key, value)
        return
    suffixes, values = _read_bucket(transaction, key[:LIMIT])
    at = bisect_left(suffixes, key[LIMIT:])
    if at < len(suffixes) and suffixes[at] == key[LIMIT:]:
        values[at] = value
    else:
        suffixes.insert(at, key[LIMIT:])
        values.insert(at, value)
    _write_bucket(transaction, key[:LIMIT], suffixes, values)


def put_many(transaction: lmdb.Transaction, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Write all pairs; cheapest when keys are in order."""
    if max(map(len, keys), default=0) < LIMIT:
        transaction.cursor().putmulti(zip(keys, values, strict=True))
        return
    for key, value in zip(keys, values, strict=True):
        put(transaction, key, value)


def delete(transaction: lmdb.Transaction, key: bytes) -> None:
    if len(key) < LIMIT:
        transaction.delete(key)
        return
    suffixes, values = _read_bucket(transaction, key[:LIMIT])
    at = bisect_left(suffixes, key[LIMIT:])
    if at < len(suffixes) and suffixes[at] == key[LIMIT:]:
        del suffixes[at], values[at]
        _write_bucket(transaction, key[:LIMIT], suffixes, values)


def scan(
    transaction: lmdb.Transaction, start: bytes, stop: bytes | None, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Pairs with start <= key < stop in key order, or in reverse."""
    if not reverse:
        lists = scan_lists(transaction.cursor(), start, stop, size=_LIST_PAIRS, first=_FIRST_PAIRS)
        yield from itertools.chain.from_iterable(lists)
        return
    for stored, value in _backward(transaction, stop):
        for key, one in reversed(_expanded(stored, value)):
            if key < start:
                return
            if stop is None or key < stop:
                yield key, one


def scan_lists(
    cursor: lmdb.Cursor,
    start: bytes,
    stop: bytes | None,
    *,
    size: int,
    first: int | None = None,
    bytes_max: int = LIST_BYTES,
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Pairs with start <= key < stop in key order, in lists of about `size`, the first of `first` and then more and more.

    A list is shorter where its values have about `bytes_max`; how many are read at once is guessed from those before.
    """
    if not cursor.set_range(start[:LIMIT]):
        return
    pairs, wanted, step = cursor.iternext(), first or size, _FIRST_PAIRS
    held: list[tuple[bytes, bytes]] = []
    room = bytes_max
    while part := list(itertools.islice(pairs, min(step, wanted - len(held)))):
        read = len(part)
        if max(map(len, map(_KEY_OF, part))) >= LIMIT:
            part = [pair for stored in part for pair in _expanded(*stored) if pair[0] >= start]
        inside = len(part) if stop is None else bisect_left(part, (stop,))
        held = held + part[:inside] if held else part[:inside]
        if inside < len(part):
            break
        heft = weigh(part)
        room -= heft
        if len(held) >= wanted or room <= 0:
            yield held
            held, room, wanted = [], bytes_max, min(4 * wanted, size)
        step = max(1, min(4 * read, room * read // max(1, heft)))
    if held:
        yield held


def weigh(pairs: Sequence[tuple[bytes, bytes]]) -> int:
    """How many bytes the values of pairs have."""
    return sum(map(len, map(_VALUE_OF, pairs)))


def scan_prefix(cursor: lmdb.Cursor, prefix: bytes, *, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Pairs whose key begins with `prefix`, in key order, in lists of about `size`; the first ones are small."""
    return scan_lists(cursor, prefix, after_prefix(prefix), size=size, first=min(_FIRST_PAIRS, size))


def drop(transaction: lmdb.Transaction, prefix: bytes, *, limit: int) -> int:
    """Delete up to `limit` stored entries under a table's prefix; answers how many went."""
    cursor, gone = transaction.cursor(), 0
    if not cursor.set_range(prefix):
        return 0
    while gone < limit and cursor.key().startswith(prefix):
        cursor.delete()
        gone += 1
    return gone


def borders(
    transaction: lmdb.Transaction, prefix: bytes, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
) -> Borders:
    """Keys (without the prefix) that cut the next pairs behind `after` in about `pieces`; see `row_borders`."""
    row_step, byte_step = max(1, -(-rows_max // pieces)), max(1, -(-bytes_max // pieces))
    found: list[bytes | None] = [after]
    rows = size = rows_cut = size_cut = 0  # so far, and up to the last border
    for pairs in scan_lists(transaction.cursor(), *range_behind(prefix, after, None), size=_LIST_PAIRS):
        pairs = pairs[: rows_max - rows]
        sizes = list(itertools.accumulate(map(len, map(_VALUE_OF, pairs)), initial=size))
        is_light = sizes[-1] < min(bytes_max, size_cut + byte_step)
        for at in range(row_step - 1 - (rows - rows_cut), len(pairs), row_step) if is_light else range(len(pairs)):
            heft, count = sizes[at + 1], rows + at + 1
            if is_light or count - rows_cut >= row_step or heft - size_cut >= byte_step or heft >= bytes_max:
                found.append(pairs[at][0][len(prefix) :])
                rows_cut, size_cut = count, heft
            if heft >= bytes_max:
                return Borders(tuple(found), count, heft)
        rows, size = rows + len(pairs), sizes[-1]
        if rows >= rows_max:
            last = () if rows_cut == rows else (pairs[-1][0][len(prefix) :],)
            return Borders((*found, *last), rows, size)
    if rows and rows_cut == rows:
        found.pop()
    return Borders((*found, None), rows, size)


def count(transaction: lmdb.Transaction, prefix: bytes) -> int:
    """About how many pairs stand under a prefix: long keys that share a bucket count once."""
    cursor, stop, rows = transaction.cursor(), after_prefix(prefix), 0
    if not cursor.set_range(prefix):
        return 0
    keys = cursor.iternext(keys=True, values=False)
    while part := list(itertools.islice(keys, _LIST_PAIRS)):
        inside = len(part) if stop is None else bisect_left(part, stop)
        rows += inside
        if inside < len(part):
            break
    return rows


def range_behind(prefix: bytes, low: bytes, high: bytes | None) -> tuple[bytes, bytes | None]:
    """The range of keys that begin with `prefix` and lie in (low, high] behind it."""
    start = prefix + low + b"\x00" if low else prefix
    return start, (prefix + high + b"\x00" if high is not None else after_prefix(prefix))


def prefix_range(prefix: bytes) -> tuple[bytes, bytes | None]:
    return prefix, after_prefix(prefix)


def _backward(transaction: lmdb.Transaction, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    cursor = transaction.cursor()
    if stop is None or not cursor.set_range(stop[:LIMIT]):
        if not cursor.last():
            return
    else:
        # the cursor stands on the first stored key that is not below `stop`; only a bucket that `stop` itself falls
        # into can hold keys below it
        inside_bucket = len(stop) > LIMIT and cursor.key() == stop[:LIMIT]
        if not inside_bucket and not cursor.prev():
            return
    yield from cursor.iterprev()


def _expanded(stored: bytes, value: bytes) -> list[tuple[bytes, bytes]]:
    """What is stored under a key: itself, or the pairs of a bucket."""
    if len(stored) < LIMIT:
        return [(stored, value)]
    return [(stored + suffix, one) for suffix, one in zip(*_parse_bucket(value), strict=True)]


def _read_bucket(transaction: lmdb.Transaction, stored: bytes) -> tuple[list[bytes], list[bytes]]:
    return _parse_bucket(transaction.get(stored) or b"")


def _parse_bucket(bucket: bytes) -> tuple[list[bytes], list[bytes]]:
    suffixes, values, at = [], [], 0
    while at < len(bucket):
        suffix_size, value_size = _SIZES.unpack_from(bucket, at)
        at += _SIZES.size
        suffixes.append(bucket[at : at + suffix_size])
        values.append(bucket[at + suffix_size : at + suffix_size + value_size])
        at += suffix_size + value_size
    return suffixes, values


def _write_bucket(
    transaction: lmdb.Transaction, stored: bytes, suffixes: Sequence[bytes], values: Sequence[bytes]
) -> None:
    if not suffixes:
        transaction.delete(stored)
        return
    pieces = []
    for suffix, value in zip(suffixes, values, strict=True):
        pieces += [_SIZES.pack(len(suffix), len(value)), suffix, value]
    transaction.put(stored, b"".join(pieces))
