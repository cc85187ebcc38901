"""Index by epoch: the keys of records that an epoch wrote or deleted, in a database of their own.

In: an epoch and keys. Out: pairs for the index, and the keys of such a pair. Always: a pair is under its epoch and the
first of its keys, so those of an epoch that was passed are the first. The value of one key is the key, that of many
begins with a mark that no key begins with, because it is no table's id.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence

from viewkeeper.stores.embedded.longkeys import LIMIT

_EPOCH = struct.Struct(">Q")
_MARK = b"\xff\xff\xff\xff"
_PACKED_KEYS_MAX = 1_000  # a purge of them is one step


def epoch_of(entry: bytes) -> int:
    return _EPOCH.unpack_from(entry)[0]


def pairs_of_each(epoch: int, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """A pair for each key; one that is too long for LMDB is indexed by a digest."""
    head = _EPOCH.pack(epoch)
    return ((head + (key if len(key) < LIMIT else _digest(key)), key) for key in keys)


def packed_pairs(epoch: int, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """A pair for many keys."""
    for start in range(0, len(keys), _PACKED_KEYS_MAX):
        packed = keys[start : start + _PACKED_KEYS_MAX]
        ((entry, value),) = pairs_of_each(epoch, packed[:1])
        if len(packed) > 1:
            sizes = struct.pack(f">{len(packed) + 1}I", len(packed), *map(len, packed))
            value = b"".join((_MARK, sizes, *packed))
        yield entry, value


def keys_of(value: bytes) -> list[bytes]:
    """The keys of a pair."""
    if not value.startswith(_MARK):
        return [value]
    (count,) = struct.unpack_from(">I", value, len(_MARK))
    sizes = struct.unpack_from(f">{count}I", value, len(_MARK) + 4)
    keys, at = [], len(_MARK) + 4 + 4 * count
    for size in sizes:
        keys.append(value[at : at + size])
        at += size
    return keys


def _digest(key: bytes) -> bytes:
    return key[: LIMIT - 40] + hashlib.blake2b(key, digest_size=32).digest()
