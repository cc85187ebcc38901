"""A kernel in this process's memory: maps that never change, of which a transaction puts new ones in their place.

In: pairs. Out: the same, in key order. Always: a reader sees the maps as they were when it began, and takes no lock. A
map is a list of chunks, each a dict in key order, and their first keys; a write copies the chunks that it touches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

from viewkeeper.stores.kv.kernel import Kernel, OrderedMap, Pair

CHUNK_KEYS = 256


class Pairs:
    """Keys and values in key order; `changed` makes another one."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self) -> None:
        self._chunks: list[dict[bytes, bytes]] = []  # none is empty
        self._firsts: list[bytes] = []

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def get(self, key: bytes) -> bytes | None:
        chunk = bisect_right(self._firsts, key) - 1
        return self._chunks[chunk].get(key) if chunk >= 0 else None

    def changed(self, changes: Mapping[bytes, bytes | None]) -> Pairs:
        """With new values; None deletes a key."""
        by_chunk: dict[int, dict[bytes, bytes | None]] = {}
        for key, value in changes.items():
            by_chunk.setdefault(max(0, bisect_right(self._firsts, key) - 1), {})[key] = value
        new = Pairs()
        new._chunks, new._firsts = self._chunks.copy(), self._firsts.copy()
        for at in sorted(by_chunk, reverse=True):
            chunks = list(_merged(self._chunks[at] if self._chunks else {}, by_chunk[at]))
            new._chunks[at : at + 1] = chunks
            new._firsts[at : at + 1] = [next(iter(chunk)) for chunk in chunks]
        return new

    def walk(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Pairs with start <= key < stop in key order, or in reverse."""
        first = max(0, bisect_right(self._firsts, start) - 1)
        last = len(self._chunks) if stop is None else bisect_left(self._firsts, stop)
        for number in range(last - 1, first - 1, -1) if reverse else range(first, last):
            pairs = list(self._chunks[number].items())
            low = bisect_left(pairs, (start,)) if number == first else 0
            high = bisect_left(pairs, (stop,)) if stop is not None and number == last - 1 else len(pairs)
            yield from reversed(pairs[low:high]) if reverse else pairs[low:high]


def _merged(chunk: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> Iterator[dict[bytes, bytes]]:
    """A chunk with changes, in pieces where it has become too long."""
    new = {key: value for key, value in (chunk | changes).items() if value is not None}
    pairs = sorted(new.items())
    size = CHUNK_KEYS if len(pairs) <= CHUNK_KEYS else CHUNK_KEYS // 2
    for at in range(0, len(pairs), size):
        yield dict(pairs[at : at + size])


_NONE = Pairs()


class MemoryMap(OrderedMap):
    """One map among those of a transaction, which are its own."""

    __slots__ = ("_maps", "_name")

    def __init__(self, maps: dict[str, Pairs], name: str) -> None:
        self._maps, self._name = maps, name

    @property
    def _pairs(self) -> Pairs:
        return self._maps.get(self._name, _NONE)

    def of(self, name: str) -> MemoryMap:
        return MemoryMap(self._maps, name)

    def __len__(self) -> int:
        return len(self._pairs)

    def get(self, key: bytes) -> bytes | None:
        return self._pairs.get(key)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self._maps[self._name] = self._pairs.changed(dict(zip(keys, values, strict=True)))

    def delete_many(self, keys: Sequence[bytes]) -> None:
        self._maps[self._name] = self._pairs.changed(dict.fromkeys(keys))

    def clear(self) -> None:
        self._maps[self._name] = _NONE

    def walk(self, start: bytes) -> Iterator[Pair]:
        return self._pairs.walk(start, None)

    def walk_back(self, start: bytes, stop: bytes | None) -> Iterator[Pair]:
        return self._pairs.walk(start, stop, reverse=True)


class MemoryKernel(Kernel):
    """Nothing of it survives its process."""

    synced = True

    def __init__(self) -> None:
        self.maps: dict[str, Pairs] = {}  # replaced, never changed
        self._writer = Lock()

    @contextmanager
    def read(self, name: str, *, buffers: bool = False) -> Iterator[MemoryMap]:
        yield MemoryMap(self.maps, name)

    held = read

    @contextmanager
    def write(self, name: str, *, buffers: bool = False) -> Iterator[MemoryMap]:
        with self._writer:
            maps = dict(self.maps)
            yield MemoryMap(maps, name)
            self.maps = maps

    def pass_writer_lock(self) -> None:
        with self._writer:
            pass

    def sync(self) -> None:
        """Nothing here survives a power loss."""

    def size(self) -> int:
        """The bytes of all keys and values."""
        return sum(len(key) + len(value) for pairs in self.maps.values() for key, value in pairs.walk(b"", None))
