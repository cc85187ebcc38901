"""Long keys: keys of 500 bytes or more; LMDB itself takes at most 511.

In: a transaction and whole keys. Out: values, in exact key order. Always: a long key is found under its first 500
bytes, its head. The only key with a head is stored there with the rest of its bytes. Several share a layer, keys of
their own that are `layer | rest`, and long ones there are stored the same way (Mao, Kohler, Morris: Cache Craftiness
for Fast Multicore Key-Value Storage, 2012, section 4.1). So a key costs by its length, not by how many begin like it;
no length is too deep.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain, islice

import lmdb

from viewkeeper.model.keys import after_prefix

LIMIT = 500  # table id included
LAYERS = b"\xff\xff\xff\xff"  # after every table; alone it is the key of the newest layer's number
_ALONE, _LAYER = b"\x00", b"\x01"
_REST = struct.Struct("<I")
_NUMBER = struct.Struct(">Q")
_LAYER_BYTES = len(LAYERS) + _NUMBER.size

Pair = tuple[bytes, bytes]


def get(transaction: lmdb.Transaction, key: bytes) -> bytes | None:
    heads, at, kept = _descend(transaction, key)
    if kept is None or len(heads[-1]) < LIMIT:
        return kept
    rest, value = _parse(kept)
    return value if rest == key[at:] else None


def put(transaction: lmdb.Transaction, key: bytes, value: bytes) -> None:
    heads, at, kept = _descend(transaction, key)
    head = heads[-1]
    if len(head) < LIMIT:
        transaction.put(head, value)
        return
    rest, other = (key[at:], b"") if kept is None else _parse(kept)
    if rest == key[at:]:
        transaction.put(head, _alone(rest, value))
        return
    two = key, key[:at] + rest
    its_head = head
    while head == its_head:  # as long as both begin alike, they share layers
        layer = _new_layer(transaction)
        transaction.put(head, _LAYER + layer)
        head, its_head = (layer + text[at : at + LIMIT - _LAYER_BYTES] for text in two)
        at += LIMIT - _LAYER_BYTES
    for stored, text, one in ((head, two[0], value), (its_head, two[1], other)):
        transaction.put(stored, one if len(stored) < LIMIT else _alone(text[at:], one))


def delete(transaction: lmdb.Transaction, key: bytes) -> None:
    """Delete a key, and the layers in which it was the last."""
    heads, at, kept = _descend(transaction, key)
    if kept is None or (len(heads[-1]) == LIMIT and _parse(kept)[0] != key[at:]):
        return
    transaction.delete(heads[-1])
    for head, below in zip(heads[-2::-1], heads[:0:-1], strict=True):
        if _is_there(transaction, below[:_LAYER_BYTES]):
            return
        transaction.delete(head)


def drop(transaction: lmdb.Transaction, prefix: bytes, *, limit: int) -> int:
    """Delete up to `limit` keys under a prefix, with all their layers; returns how many."""
    path, gone = [prefix], 0
    cursor = transaction.cursor()
    cursor.set_range(prefix)
    while gone < limit:
        if not cursor.key().startswith(path[-1]):
            path.pop()
            if not path:
                break
            cursor.set_range(path[-1])  # the head that led to the layer, which is now empty
            cursor.delete()
        elif len(cursor.key()) == LIMIT and cursor.value().startswith(_LAYER):
            path.append(cursor.value()[1:])
            cursor.set_range(path[-1])
        else:
            cursor.delete()
            gone += 1
    return gone


def walk(
    transaction: lmdb.Transaction, pairs: Iterator[Pair], start: bytes, stop: bytes, *, size: int, bytes_max: int
) -> Iterator[list[Pair]]:
    """Stored pairs, from the first that may hold a key from `start` on, as pairs of whole keys below `stop`, in lists.

    A list has up to `size` pairs, or about `bytes_max`.
    """
    levels = [_Level(start, stop)]
    levels[0].pairs = pairs
    while levels:
        taken = levels[-1].take(size, bytes_max)
        if taken is None:
            levels.pop()
            continue
        found, head = taken
        if found:
            yield found
        if head is not None:
            levels.append(levels[-1].below(*head))
            levels[-1].pairs = _forward(transaction, levels[-1].low)


def walk_back(transaction: lmdb.Transaction, start: bytes, stop: bytes) -> Iterator[Pair]:
    """Pairs of whole keys with start <= key < stop, from the last to the first."""
    pairs = _backward(transaction, stop)
    for stored, value in pairs:
        if len(stored) == LIMIT:
            yield from _walk_levels_back(transaction, chain([(stored, value)], pairs), start, stop)
            return
        if stored < start:
            return
        yield stored, value


def _walk_levels_back(
    transaction: lmdb.Transaction, pairs: Iterator[Pair], start: bytes, stop: bytes
) -> Iterator[Pair]:
    levels = [_Level(start, stop)]
    levels[0].pairs = pairs
    while levels:
        level = levels[-1]
        stored, value = next(level.pairs, (None, b""))
        if stored is None or stored < level.low[:LIMIT]:
            levels.pop()
        elif len(stored) == LIMIT and value.startswith(_LAYER):
            levels.append(level.below(stored, value[1:]))
            levels[-1].pairs = _backward(transaction, levels[-1].high)
        elif found := level.spell(stored, value):
            yield found


class _Level:
    """The position of a walk in one layer, its bounds, and how its keys are spelled out.

    `start` and `stop` are whole keys, of which `at` bytes are in the heads above; None where the layer lies between
    them. `low` and `high` are as much of them as a stored key can be compared with: no level looks at a key's whole
    length.
    """

    pairs: Iterator[Pair]

    def __init__(
        self, start: bytes | None, stop: bytes | None, *, layer: bytes = b"", at: int = 0, heads: tuple[bytes, ...] = ()
    ) -> None:
        self._start, self._stop, self._layer, self._at, self._heads = start, stop, layer, at, heads
        window = slice(at, at + LIMIT - len(layer) + 1)
        self.low = layer + (b"" if start is None else start[window])
        self.high = (after_prefix(layer) or b"") if stop is None else layer + stop[window]
        self._read: list[Pair] = []
        self._wanted = 1  # most layers lead to just one other
        self._ended = False

    def take(self, size: int, bytes_max: int) -> tuple[list[Pair], Pair | None] | None:
        """The next pairs, and the head of a layer that follows them; None at the end."""
        if not self._read and not self._ended:
            part = list(islice(self.pairs, self._wanted))
            inside = bisect_left(part, (self.high,))
            self._read, self._ended = part[:inside][::-1], inside < self._wanted
            heft = sum(len(value) for _, value in part)
            self._wanted = max(1, min(4 * self._wanted, size, bytes_max * len(part) // max(1, heft)))
        if not self._read:
            return None
        found: list[Pair] = []
        while self._read:
            stored, value = self._read.pop()
            if len(stored) == LIMIT and value.startswith(_LAYER):
                return found, (stored, value[1:])
            if pair := self.spell(stored, value):
                found.append(pair)
        return found, None

    def spell(self, stored: bytes, value: bytes) -> Pair | None:
        """The whole key and its value; None when it lies outside."""
        text = stored[len(self._layer) :]
        if len(stored) == LIMIT:
            rest, value = _parse(value)
            text += rest
        window = slice(self._at, self._at + len(text) + 1)
        if self._start is not None and text < self._start[window]:
            return None
        if self._stop is not None and text >= self._stop[window]:
            return None
        if len(self._heads) > 1:
            self._heads = (b"".join(self._heads),)
        return (self._heads[0] + text if self._heads else text), value

    def below(self, head: bytes, layer: bytes) -> _Level:
        """The layer under a head."""
        text = head[len(self._layer) :]
        start, stop = (
            bound if bound is not None and bound.startswith(text, self._at) else None
            for bound in (self._start, self._stop)
        )
        return _Level(start, stop, layer=layer, at=self._at + len(text), heads=(*self._heads, text))


def _forward(transaction: lmdb.Transaction, start: bytes) -> Iterator[Pair]:
    """Stored pairs from the first that may hold a key from `start` on."""
    cursor = transaction.cursor()
    return cursor.iternext() if cursor.set_range(start[:LIMIT]) else iter(())


def _backward(transaction: lmdb.Transaction, stop: bytes) -> Iterator[Pair]:
    """Stored pairs from the last that may hold a key below `stop`."""
    cursor = transaction.cursor()
    if not cursor.set_range(stop[:LIMIT]):
        found = cursor.last()
    else:
        # the cursor is at the first stored key that is not below `stop`; only the head of `stop` itself can lead to
        # keys below it
        found = (len(stop) > LIMIT and cursor.key() == stop[:LIMIT]) or cursor.prev()
    return cursor.iterprev() if found else iter(())


def _descend(transaction: lmdb.Transaction, key: bytes) -> tuple[list[bytes], int, bytes | None]:
    """What the key, or its head, is stored under in each layer, how much of it is in the last, and the value there."""
    heads, layer, at = [], b"", 0
    while True:
        room = LIMIT - len(layer)
        heads.append(layer + key[at : at + room])
        at += room
        kept = transaction.get(heads[-1])
        if kept is None or len(heads[-1]) < LIMIT or kept.startswith(_ALONE):
            return heads, at, kept
        layer = kept[1:]


def _alone(rest: bytes, value: bytes) -> bytes:
    return _ALONE + _REST.pack(len(rest)) + rest + value


def _parse(kept: bytes) -> tuple[bytes, bytes]:
    """The rest of the key, and the value, of a key that is alone under its head."""
    begin = 1 + _REST.size
    end = begin + _REST.unpack_from(kept, 1)[0]
    return kept[begin:end], kept[end:]


def _new_layer(transaction: lmdb.Transaction) -> bytes:
    newest = int.from_bytes(transaction.get(LAYERS) or b"", "big") + 1
    transaction.put(LAYERS, _NUMBER.pack(newest))
    return LAYERS + _NUMBER.pack(newest)


def _is_there(transaction: lmdb.Transaction, prefix: bytes) -> bool:
    cursor = transaction.cursor()
    return cursor.set_range(prefix) and cursor.key().startswith(prefix)
