"""Kernel: what a local store asks of the engine that keeps its bytes: ordered maps, for many tables each, and transactions.

In: keys and values as bytes. Out: the same, in key order. Always: a transaction sees all maps of its kernel. A read
transaction is one state of the kernel, and waits for nobody. One write transaction is open at a time; it sees what it
wrote itself, and its end makes all of that visible at once, or nothing when the block raises. The maps `rows` and
`records` take keys of any length; the keys of the others have at most 511 bytes.
"""

from __future__ import annotations

import heapq
import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain, islice, takewhile
from operator import itemgetter

from viewkeeper.model.keys import after_prefix
from viewkeeper.model.positions import SplitPoints
from viewkeeper.stores.split_points import find_split_points

Pair = tuple[bytes, bytes]
LONG_KEYS = frozenset({"rows", "records"})  # the maps whose keys have any length
LIST_BYTES = 64 << 20
LIST_PAIRS = 4_096  # read at once, when a scan turns out to be long
FIRST_PAIRS = 16  # of a scan of unknown length
_TABLE = struct.Struct(">I")
TABLE_BYTES = _TABLE.size
table_prefix: Callable[[int], bytes] = _TABLE.pack
_KEY_OF = itemgetter(0)
_VALUE_OF = itemgetter(1)


class OrderedMap(ABC):
    """One map of an open transaction; its methods end with the transaction."""

    __slots__ = ()

    @abstractmethod
    def of(self, name: str) -> OrderedMap:
        """Another map of the same transaction."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of pairs; approximate where keys may be long."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value under a key."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, None where absent; cheapest when keys are in order."""
        return list(map(self.get, keys))

    def put(self, key: bytes, value: bytes, *, is_last: bool = False) -> None:
        """Write one pair; `is_last`: no key of the map is greater."""
        self.put_many((key,), (value,))

    @abstractmethod
    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Write a value under each key; cheapest when keys are in order."""

    @abstractmethod
    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Delete keys, whether or not they are there."""

    def pop_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Like `get_many`, and delete them."""
        found = self.get_many(keys)
        self.delete_many(keys)
        return found

    def drop(self, prefix: bytes, *, limit: int) -> int:
        """Delete up to `limit` pairs under a prefix; returns how many."""
        under = takewhile(lambda pair: pair[0].startswith(prefix), self.walk(prefix))
        keys = [key for key, _ in islice(under, limit)]
        self.delete_many(keys)
        return len(keys)

    @abstractmethod
    def clear(self) -> None:
        """Delete all pairs."""

    @abstractmethod
    def walk(self, start: bytes) -> Iterator[Pair]:
        """Pairs from the first key at or after `start` on, read one by one; not for maps with long keys."""

    @abstractmethod
    def walk_back(self, start: bytes, stop: bytes | None) -> Iterator[Pair]:
        """Pairs with start <= key < stop, from the last to the first."""

    def lists(
        self, start: bytes, stop: bytes | None, *, size: int = LIST_PAIRS, first: int | None = None
    ) -> Iterator[list[Pair]]:
        """Pairs with start <= key < stop in key order, in lists of `first`, then up to `size`, or about `LIST_BYTES`."""
        held, room, wanted = list[Pair](), LIST_BYTES, first or size
        for pair in self.walk(start):
            if stop is not None and pair[0] >= stop:
                break
            held.append(pair)
            room -= len(pair[1])
            if len(held) == wanted or room <= 0:
                yield held
                held, room, wanted = [], LIST_BYTES, min(4 * wanted, size)
        if held:
            yield held

    def count(self, start: bytes, stop: bytes | None) -> int:
        """About how many pairs have start <= key < stop."""
        return sum(map(len, self.lists(start, stop)))


class Kernel(ABC):
    """The maps of one part of a store, open in this process."""

    synced: bool  # a write transaction that has ended survives a power loss

    @abstractmethod
    def read(self, name: str, *, buffers: bool = False) -> AbstractContextManager[OrderedMap]:
        """The map of that name in a read transaction; with `buffers`, values may be views that end with it."""

    @abstractmethod
    def write(self, name: str, *, buffers: bool = False) -> AbstractContextManager[OrderedMap]:
        """The map of that name in the write transaction."""

    @abstractmethod
    def held(self, name: str) -> AbstractContextManager[OrderedMap]:
        """Like `read`, for a transaction that outlives many others."""

    @abstractmethod
    def pass_writer_lock(self) -> None:
        """Return when every write transaction that was open at the call has ended."""

    @abstractmethod
    def sync(self) -> None:
        """From here on everything written so far survives a power loss, as far as anything here can."""

    def require_in_place(self) -> None:
        """Raise StoreReplaced where the part was removed or replaced since it was opened."""
        return None

    def look(self) -> None:
        """Like `require_in_place`, but only now and then: cheap enough for every read."""
        return None

    def let_go_of_pages(self) -> None:
        """Release memory that holds what was read."""
        return None

    def translated(self) -> AbstractContextManager[None]:
        """Within the block the engine's errors are raised as ours; `read` and `write` do so by themselves."""
        return nullcontext()


# Many tables lie in one map, in the order of their numbers, each under its number as a prefix of its keys.


def table_of(key: bytes) -> int:
    """The table whose prefix a key carries."""
    return _TABLE.unpack_from(key)[0]


def scan_table(
    maps: Sequence[OrderedMap], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
) -> Iterator[Pair]:
    """Pairs of a table with start <= key < stop, in key order across several maps; keys without its prefix."""
    prefix = table_prefix(table)
    low, high = prefix + start, after_prefix(prefix) if stop is None else prefix + stop
    if reverse:
        found: Iterable[Pair] = heapq.merge(*(each.walk_back(low, high) for each in maps), key=_KEY_OF, reverse=True)
    else:
        found = chain.from_iterable(merged([each.lists(low, high, first=FIRST_PAIRS) for each in maps]))
    return ((key[TABLE_BYTES:], value) for key, value in found)


def merged(sources: Sequence[Iterator[list[Pair]]]) -> Iterator[list[Pair]]:
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


def weigh(pairs: Sequence[Pair]) -> int:
    """The size in bytes of the values of pairs."""
    return sum(map(len, map(_VALUE_OF, pairs)))


def borders(pairs: OrderedMap, table: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> SplitPoints:
    """Keys (without the prefix) that cut the table's next pairs after `after` in about `pieces`; see `row_borders`."""
    prefix = table_prefix(table)
    lists = pairs.lists(*range_after(prefix, after, None))
    found = find_split_points(lists, prefix + after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)
    return replace(found, keys=tuple(key and key[TABLE_BYTES:] for key in found.keys))


def range_after(prefix: bytes, low: bytes, high: bytes | None) -> tuple[bytes, bytes | None]:
    """The range of keys that begin with `prefix` and whose rest lies in (low, high]."""
    start = prefix + low + b"\x00" if low else prefix
    return start, (prefix + high + b"\x00" if high is not None else after_prefix(prefix))
