"""An ordered map of keys to values that never changes.

In: changes to a map. Out: a new map, which shares with the old one what is equal. Always: a map can be read at any time
without a lock; a write puts a new map in place of the old one.

A map is a list of chunks, each a dict in key order, and the first key of each. A change copies the chunks that it
touches.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from viewkeeper.model.positions import SplitPoints
from viewkeeper.stores.split_points import find_split_points

Pair = tuple[bytes, bytes]
CHUNK_KEYS = 512
_LIST_BYTES = 64 << 20
_BORDER_PAIRS = 4_096
_Item = TypeVar("_Item", bound=tuple[Any, ...])


class Pairs:
    """Keys and values in key order; `changed` makes another one."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self, chunks: Iterable[dict[bytes, bytes]] = ()) -> None:
        self._chunks = list(chunks)  # none is empty
        self._firsts = [next(iter(chunk)) for chunk in self._chunks]

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def size(self) -> int:
        """The size in bytes of keys and values."""
        return sum(len(key) + len(value) for chunk in self._chunks for key, value in chunk.items())

    def get(self, key: bytes) -> bytes | None:
        chunk = bisect_right(self._firsts, key) - 1
        return self._chunks[chunk].get(key) if chunk >= 0 else None

    def changed(self, changes: Mapping[bytes, bytes | None]) -> Pairs:
        """With new values; None deletes a key."""
        by_chunk: dict[int, dict[bytes, bytes | None]] = {}
        for key, value in changes.items():
            by_chunk.setdefault(max(0, bisect_right(self._firsts, key) - 1), {})[key] = value
        chunks, done = list[dict[bytes, bytes]](), 0
        for number in sorted(by_chunk):
            chunks += self._chunks[done:number]
            chunks += _merged(self._chunks[number] if self._chunks else {}, by_chunk[number])
            done = number + 1
        return Pairs([*chunks, *self._chunks[done:]])

    def walk(self, start: bytes, stop: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Pairs with start <= key < stop in key order, or in reverse."""
        first = max(0, bisect_right(self._firsts, start) - 1)
        last = len(self._chunks) if stop is None else bisect_left(self._firsts, stop)
        for number in range(last - 1, first - 1, -1) if reverse else range(first, last):
            pairs = list(self._chunks[number].items())
            low = bisect_left(pairs, (start,)) if number == first else 0
            high = bisect_left(pairs, (stop,)) if stop is not None and number == last - 1 else len(pairs)
            yield from reversed(pairs[low:high]) if reverse else pairs[low:high]

    def walk_after(self, low: bytes, high: bytes | None) -> Iterator[Pair]:
        """Pairs with low < key <= high; an empty low is below every key."""
        return self.walk(low + b"\x00" if low else low, None if high is None else high + b"\x00")

    def borders(self, after: bytes, *, rows_max: int, bytes_max: int, pieces: int) -> SplitPoints:
        """The next pairs after `after` in about equal pieces."""
        lists = in_lists(self.walk_after(after, None), _BORDER_PAIRS)
        return find_split_points(lists, after, rows_max=rows_max, bytes_max=bytes_max, pieces=pieces)


def _merged(chunk: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> Iterator[dict[bytes, bytes]]:
    """A chunk with changes, in pieces where it has become too long."""
    new = {key: value for key, value in (chunk | changes).items() if value is not None}
    pairs = sorted(new.items())
    size = CHUNK_KEYS if len(pairs) <= CHUNK_KEYS else CHUNK_KEYS // 2
    for at in range(0, len(pairs), size):
        yield dict(pairs[at : at + size])


def in_lists(items: Iterable[_Item], size: int, bytes_max: int = _LIST_BYTES) -> Iterator[list[_Item]]:
    """Tuples that end with a value, in lists of at most `size` and about so many bytes of values: one Arrow array each."""
    items = iter(items)
    while True:
        held, room = list[_Item](), bytes_max
        for item in itertools.islice(items, size):
            held.append(item)
            room -= len(item[-1])
            if room <= 0:
                break
        if not held:
            return
        yield held
