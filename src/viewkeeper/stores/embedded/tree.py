"""Tree: ordered keys of any length on LMDB, whose keys are at most 511 bytes.

In: a transaction, a table id and whole keys. Out: values, in exact key order. Always: a key shorter than the limit is
stored as it is, and so costs what LMDB costs; `longkeys` handles the others. No short key can be taken for the head of
a long one, because a head has exactly the limit's length and no short key has.
"""

from __future__ import annotations

import heapq
import itertools
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

import lmdb

from viewkeeper.model.keys import after_prefix
from viewkeeper.model.positions import SplitPoints
from viewkeeper.stores.embedded import long_keys
from viewkeeper.stores.embedded.long_keys import LAYERS, LIMIT
from viewkeeper.stores.split_points import find_split_points

LIST_BYTES = 64 << 20
_TABLE = struct.Struct(">I")
TABLE_BYTES = _TABLE.size
_FIRST_PAIRS = 16  # of a scan of unknown length
_LIST_PAIRS = 4_096  # read at once, when it turns out to be long
_KEY_OF = itemgetter(0)
_VALUE_OF = itemgetter(1)


def table_prefix(table: int) -> bytes:
    return _TABLE.pack(table)


def table_of(key: bytes) -> int:
    """The table whose prefix a key carries."""
    return _TABLE.unpack_from(key)[0]


def get(transaction: lmdb.Transaction, key: bytes) -> bytes | None:
    """The value under a key that carries its table prefix."""
    return transaction.get(key) if len(key) < LIMIT else long_keys.get(transaction, key)


def get_many(transaction: lmdb.Transaction, keys: Sequence[bytes]) -> list[bytes | None]:
    """The value of each key, None where absent."""
    if max(map(len, keys), default=0) < LIMIT:
        return list(map(transaction.cursor().get, keys))  # a cursor that stays near need not start at the root
    return [get(transaction, key) for key in keys]


def put(transaction: lmdb.Transaction, key: bytes, value: bytes) -> None:
    if len(key) < LIMIT:
        transaction.put(key, value)
    else:
        long_keys.put(transaction, key, value)


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
    else:
        long_keys.delete(transaction, key)


def scan(
    transaction: lmdb.Transaction, start: bytes, stop: bytes | None, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Pairs with start <= key < stop in key order, or in reverse."""
    if reverse:
        return long_keys.walk_back(transaction, start, LAYERS if stop is None else stop)
    lists = scan_lists(transaction, start, stop, size=_LIST_PAIRS, first=_FIRST_PAIRS)
    return itertools.chain.from_iterable(lists)


def scan_table(
    transactions: Sequence[lmdb.Transaction], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of a table with start <= key < stop, in key order across several environments; keys without its prefix."""
    prefix = table_prefix(table)
    low, high = prefix + start, after_prefix(prefix) if stop is None else prefix + stop
    if reverse:
        parts = [scan(transaction, low, high, reverse=True) for transaction in transactions]
        found: Iterable[tuple[bytes, bytes]] = heapq.merge(*parts, key=_KEY_OF, reverse=True)
    else:
        sizes = {"size": _LIST_PAIRS, "first": _FIRST_PAIRS}
        lists = [scan_lists(transaction, low, high, **sizes) for transaction in transactions]
        found = itertools.chain.from_iterable(merged(lists))
    return ((key[TABLE_BYTES:], value) for key, value in found)


def merged(sources: Sequence[Iterator[list[tuple[bytes, bytes]]]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Lists of pairs in key order across all sources, each of which yields lists in key order."""
    heads = [(pairs, source) for source in sources if (pairs := next(source, None))]
    while len(heads) > 1:
        bound = min(pairs[-1][0] for pairs, _ in heads)  # what is not read yet comes after it
        taken, left = [], []
        for pairs, source in heads:
            end = bisect_right(pairs, bound, key=_KEY_OF)
            taken += pairs[:end]
            rest = pairs[end:] or next(source, [])
            if rest:
                left.append((rest, source))
        taken.sort()
        yield taken
        heads = left
    for pairs, source in heads:
        yield pairs
        yield from source


def scan_lists(
    transaction: lmdb.Transaction,
    start: bytes,
    stop: bytes | None,
    *,
    size: int,
    first: int | None = None,
    bytes_max: int = LIST_BYTES,
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Pairs with start <= key < stop in key order, in lists of about `size`, the first of `first` and then growing.

    A list is shorter where its values have about `bytes_max`; how many are read at once is estimated from earlier ones.
    """
    cursor, end = transaction.cursor(), LAYERS if stop is None else stop
    if not cursor.set_range(start[:LIMIT]):
        return
    pairs, wanted, step = cursor.iternext(), first or size, _FIRST_PAIRS
    held: list[tuple[bytes, bytes]] = []
    room = bytes_max
    while part := list(itertools.islice(pairs, min(step, wanted - len(held)))):
        inside = bisect_left(part, (end,))
        found = part if inside == len(part) else part[:inside]
        if max(map(len, map(_KEY_OF, found)), default=0) >= LIMIT:
            if held:
                yield held
            yield from long_keys.walk(
                transaction, itertools.chain(part, pairs), start, end, size=size, bytes_max=bytes_max
            )
            return
        held = held + found if held else found
        if found is not part:
            break
        heft = weigh(part)
        room -= heft
        if len(held) >= wanted or room <= 0:
            yield held
            held, room, wanted = [], bytes_max, min(4 * wanted, size)
        step = max(1, min(4 * len(part), room * len(part) // max(1, heft)))
    if held:
        yield held


def weigh(pairs: Sequence[tuple[bytes, bytes]]) -> int:
    """The size in bytes of the values of pairs."""
    return sum(map(len, map(_VALUE_OF, pairs)))


def scan_prefix(transaction: lmdb.Transaction, prefix: bytes, *, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Pairs whose key begins with `prefix`, in key order, in lists of about `size`; the first ones are small."""
    return scan_lists(transaction, prefix, after_prefix(prefix), size=size, first=min(_FIRST_PAIRS, size))


def drop(transaction: lmdb.Transaction, prefix: bytes, *, limit: int) -> int:
    """Delete up to `limit` keys under a table's prefix; returns how many."""
    return long_keys.drop(transaction, prefix, limit=limit)


def borders(
    transaction: lmdb.Transaction, prefix: bytes, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
) -> SplitPoints:
    """Keys (without the prefix) that cut the next pairs after `after` in about `pieces`; see `row_borders`."""
    lists = scan_lists(transaction, *range_after(prefix, after, None), size=_LIST_PAIRS)
    found = find_split_points(lists, prefix + after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)
    return replace(found, keys=tuple(key and key[len(prefix) :] for key in found.keys))


def count(transaction: lmdb.Transaction, prefix: bytes) -> int:
    """The approximate number of pairs under a prefix: long keys that share their first bytes count once."""
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


def range_after(prefix: bytes, low: bytes, high: bytes | None) -> tuple[bytes, bytes | None]:
    """The range of keys that begin with `prefix` and whose rest lies in (low, high]."""
    start = prefix + low + b"\x00" if low else prefix
    return start, (prefix + high + b"\x00" if high is not None else after_prefix(prefix))
