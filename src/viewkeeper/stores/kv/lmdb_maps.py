"""Ordered maps on LMDB, some of them with keys of any length; LMDB's own keys have at most 511 bytes.

In: a transaction of LMDB and its databases by name. Out: their maps. Always: a key shorter than `LIMIT` is stored as it
is, and so costs what LMDB costs. A long key is found under its first 500 bytes, its head; no short key has that length.
The only key with a head is stored there with the rest of its bytes. Several share a layer, keys of their own that are
`layer | rest`, and long ones there are stored the same way (Mao, Kohler, Morris: Cache Craftiness for Fast Multicore
Key-Value Storage, 2012, section 4.1). So a key costs by its length, not by how many begin like it; no length is too deep.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from operator import itemgetter

import lmdb

from viewkeeper.model.keys import after_prefix
from viewkeeper.stores.kv.kernel import FIRST_PAIRS, LIST_BYTES, LIST_PAIRS, LONG_KEYS, OrderedMap, Pair

LIMIT = 500  # table id included
LAYERS = b"\xff\xff\xff\xff"  # after every table; alone it is the key of the newest layer's number
_ALONE, _LAYER = b"\x00", b"\x01"
_REST = struct.Struct("<I")
_NUMBER = struct.Struct(">Q")
_LAYER_BYTES = len(LAYERS) + _NUMBER.size
_KEY_OF = itemgetter(0)
_VALUE_OF = itemgetter(1)


def map_of(transaction: lmdb.Transaction, databases: Mapping[str, object], name: str) -> LmdbMap:
    return (LmdbMapOfLongKeys if name in LONG_KEYS else LmdbMap)(transaction, databases, databases[name])


class LmdbMap(OrderedMap):
    """A database of LMDB; its keys are short."""

    _has_long_keys = False
    __slots__ = ("_database", "_databases", "_transaction")

    def __init__(self, transaction: lmdb.Transaction, databases: Mapping[str, object], database: object) -> None:
        self._transaction, self._databases, self._database = transaction, databases, database

    def of(self, name: str) -> LmdbMap:
        return map_of(self._transaction, self._databases, name)

    def __len__(self) -> int:
        return self._transaction.stat(self._database)["entries"]

    def get(self, key: bytes) -> bytes | None:
        return self._transaction.get(key, None, self._database)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._cursor().get, keys))  # a cursor that stays near need not start at the root

    def put(self, key: bytes, value: bytes, *, is_last: bool = False) -> None:
        self._transaction.put(key, value, append=is_last, db=self._database)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        self._cursor().putmulti(zip(keys, values, strict=True))  # a list of pairs would cost a pass of the collector

    def delete_many(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._transaction.delete(key, b"", self._database)

    def pop_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._cursor().pop, keys))

    def clear(self) -> None:
        self._transaction.drop(self._database, delete=False)

    def walk(self, start: bytes) -> Iterator[Pair]:
        cursor = self._cursor()
        return cursor.iternext() if cursor.set_range(start) else iter(())

    def walk_back(self, start: bytes, stop: bytes | None) -> Iterator[Pair]:
        cursor = self._cursor()
        found = cursor.prev() if stop is not None and cursor.set_range(stop) else cursor.last()
        return takewhile(lambda pair: pair[0] >= start, cursor.iterprev() if found else ())

    def lists(
        self, start: bytes, stop: bytes | None, *, size: int = LIST_PAIRS, first: int | None = None
    ) -> Iterator[list[Pair]]:
        """How many pairs are read at once is estimated from earlier ones."""
        cursor, end = self._cursor(), LAYERS if stop is None and self._has_long_keys else stop
        if not cursor.set_range(start[:LIMIT] if self._has_long_keys else start):
            return
        pairs, wanted, step = cursor.iternext(), first or size, FIRST_PAIRS
        held, room = list[Pair](), LIST_BYTES
        while part := list(islice(pairs, min(step, wanted - len(held)))):
            inside = len(part) if end is None else bisect_left(part, (end,))
            found = part if inside == len(part) else part[:inside]
            if self._has_long_keys and max(map(len, map(_KEY_OF, found)), default=0) >= LIMIT:
                if held:
                    yield held
                yield from self._whole_keys(chain(part, pairs), start, end or LAYERS, size)
                return
            held = held + found if held else found
            if found is not part:
                break
            heft = sum(map(len, map(_VALUE_OF, part)))
            room -= heft
            if len(held) >= wanted or room <= 0:
                yield held
                held, room, wanted = [], LIST_BYTES, min(4 * wanted, size)
            step = max(1, min(4 * len(part), room * len(part) // max(1, heft)))
        if held:
            yield held

    def _whole_keys(self, pairs: Iterator[Pair], start: bytes, stop: bytes, size: int) -> Iterator[list[Pair]]:
        """Stored pairs, from the first that may hold a key from `start` on, as lists of pairs of whole keys below `stop`."""
        levels = [_Level(start, stop)]
        levels[0].pairs = pairs
        while levels:
            taken = levels[-1].take(size)
            if taken is None:
                levels.pop()
                continue
            found, head = taken
            if found:
                yield found
            if head is not None:
                levels.append(levels[-1].below(*head))
                levels[-1].pairs = self.walk(levels[-1].low[:LIMIT])

    def count(self, start: bytes, stop: bytes | None) -> int:
        """Long keys that share their first bytes count once."""
        cursor, rows = self._cursor(), 0
        if not cursor.set_range(start):
            return 0
        keys = cursor.iternext(keys=True, values=False)
        while part := list(islice(keys, LIST_PAIRS)):
            inside = len(part) if stop is None else bisect_left(part, stop)
            rows += inside
            if inside < len(part):
                break
        return rows

    def _cursor(self) -> lmdb.Cursor:
        return self._transaction.cursor(self._database)


class LmdbMapOfLongKeys(LmdbMap):
    """A database of LMDB whose keys have any length."""

    _has_long_keys = True
    __slots__ = ()

    def get(self, key: bytes) -> bytes | None:
        if len(key) < LIMIT:
            return self._transaction.get(key, None, self._database)
        heads, at, kept = self._descend(key)
        if kept is None or len(heads[-1]) < LIMIT:
            return kept
        rest, value = _parse(kept)
        return value if rest == key[at:] else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return super().get_many(keys) if _are_short(keys) else list(map(self.get, keys))

    def put(self, key: bytes, value: bytes, *, is_last: bool = False) -> None:
        if len(key) < LIMIT:
            super().put(key, value, is_last=is_last)
            return
        heads, at, kept = self._descend(key)
        head = heads[-1]
        if len(head) < LIMIT:
            super().put(head, value)
            return
        rest, other = (key[at:], b"") if kept is None else _parse(kept)
        if rest == key[at:]:
            super().put(head, _alone(rest, value))
            return
        two = key, key[:at] + rest
        its_head = head
        while head == its_head:  # as long as both begin alike, they share layers
            newest = _NUMBER.pack(int.from_bytes(super().get(LAYERS) or b"", "big") + 1)
            super().put(LAYERS, newest)
            layer = LAYERS + newest
            super().put(head, _LAYER + layer)
            head, its_head = (layer + text[at : at + LIMIT - _LAYER_BYTES] for text in two)
            at += LIMIT - _LAYER_BYTES
        for stored, text, one in ((head, two[0], value), (its_head, two[1], other)):
            super().put(stored, one if len(stored) < LIMIT else _alone(text[at:], one))

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        if _are_short(keys):
            super().put_many(keys, values)
            return
        for key, value in zip(keys, values, strict=True):
            self.put(key, value)

    def delete_many(self, keys: Sequence[bytes]) -> None:
        if _are_short(keys):
            super().delete_many(keys)
            return
        for key in keys:
            if len(key) < LIMIT:
                super().delete_many((key,))
            else:
                self._delete_long(key)

    def _delete_long(self, key: bytes) -> None:
        """Delete a key, and the layers in which it was the last."""
        heads, at, kept = self._descend(key)
        if kept is None or (len(heads[-1]) == LIMIT and _parse(kept)[0] != key[at:]):
            return
        super().delete_many(heads[-1:])
        for head, below in zip(heads[-2::-1], heads[:0:-1], strict=True):
            cursor, layer = self._cursor(), below[:_LAYER_BYTES]
            if cursor.set_range(layer) and cursor.key().startswith(layer):
                return
            super().delete_many((head,))

    def pop_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return super().pop_many(keys) if _are_short(keys) else OrderedMap.pop_many(self, keys)

    def drop(self, prefix: bytes, *, limit: int) -> int:
        """The layers of the keys go too."""
        path, gone = [prefix], 0
        cursor = self._cursor()
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

    def walk_back(self, start: bytes, stop: bytes | None) -> Iterator[Pair]:
        end = LAYERS if stop is None else stop
        pairs = self._backward(end)
        for stored, value in pairs:
            if len(stored) == LIMIT:
                break
            if stored < start:
                return
            yield stored, value
        else:
            return
        levels = [_Level(start, end)]
        levels[0].pairs = chain([(stored, value)], pairs)
        while levels:
            level = levels[-1]
            pair = next(level.pairs, None)
            if pair is None or pair[0] < level.low[:LIMIT]:
                levels.pop()
            elif len(pair[0]) == LIMIT and pair[1].startswith(_LAYER):
                levels.append(level.below(pair[0], pair[1][1:]))
                levels[-1].pairs = self._backward(levels[-1].high)
            elif found := level.spell(*pair):
                yield found

    def _backward(self, stop: bytes) -> Iterator[Pair]:
        """Stored pairs from the last that may hold a key below `stop`."""
        cursor = self._cursor()
        if not cursor.set_range(stop[:LIMIT]):
            found = cursor.last()
        else:  # at the first stored key that is not below `stop`; only the head of `stop` itself can lead to keys below it
            found = (len(stop) > LIMIT and cursor.key() == stop[:LIMIT]) or cursor.prev()
        return cursor.iterprev() if found else iter(())

    def _descend(self, key: bytes) -> tuple[list[bytes], int, bytes | None]:
        """What the key, or its head, is stored under in each layer, how much of it is in the last, and the value there."""
        heads, layer, at = [], b"", 0
        while True:
            room = LIMIT - len(layer)
            heads.append(layer + key[at : at + room])
            at += room
            kept = super().get(heads[-1])
            if kept is None or len(heads[-1]) < LIMIT or kept.startswith(_ALONE):
                return heads, at, kept
            layer = kept[1:]


class _Level:
    """The position of a walk in one layer, its bounds, and how its keys are spelled out.

    `start` and `stop` are whole keys, with `at` bytes in the heads above; None where the layer lies between them. `low` and
    `high` are as much of them as a stored key can be compared with: no level looks at a key's whole length.
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

    def take(self, size: int) -> tuple[list[Pair], Pair | None] | None:
        """The next pairs, and the head of a layer that follows them; None at the end."""
        if not self._read and not self._ended:
            part = list(islice(self.pairs, self._wanted))
            inside = bisect_left(part, (self.high,))
            self._read, self._ended = part[:inside][::-1], inside < self._wanted
            heft = sum(len(value) for _, value in part)
            self._wanted = max(1, min(4 * self._wanted, size, LIST_BYTES * len(part) // max(1, heft)))
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


def _are_short(keys: Iterable[bytes]) -> bool:
    return max(map(len, keys), default=0) < LIMIT


def _alone(rest: bytes, value: bytes) -> bytes:
    return _ALONE + _REST.pack(len(rest)) + rest + value


def _parse(kept: bytes) -> tuple[bytes, bytes]:
    """The rest of the key, and the value, of a key that is alone under its head."""
    begin = 1 + _REST.size
    end = begin + _REST.unpack_from(kept, 1)[0]
    return kept[begin:end], kept[end:]
