"""Damages: what can have happened to the stored records of a table, one function for each kind.

In: an open database, a table, and a source of chance. Out: whether there was a record to damage so. Always: written behind
the system's back, as bytes; no epoch and no count learns of it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.record_reader import put_raw, raw_records, read_versions

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

_NEVER = 1 << 40


def _there(database: Database, table: int) -> list[tuple[int, bytes, bytes]]:
    """The records that are not tombstones."""
    return [one for one in raw_records(database, table) if read_versions(one[2])[0][1] is not None]


def _chain(*versions: tuple[int, bytes]) -> bytes:
    return b"".join(struct.pack("<QI", epoch, len(row)) + row for epoch, row in versions)


def _in_place(change: Callable[[bytes, random.Random], bytes | None]) -> Callable[..., bool]:
    """One record gets other bytes, or none."""

    def damage(database: Database, table: int, source: random.Random) -> bool:
        records = _there(database, table)
        if records:
            partition, key, chain = source.choice(records)
            put_raw(database, table, partition, key, change(chain, source))
        return bool(records)

    return damage


def _flipped(chain: bytes, source: random.Random) -> bytes:
    """One bit of the newest row."""
    (epoch, row), *_ = read_versions(chain)
    row = bytearray(row or b"")
    row[source.randrange(len(row))] ^= 1 << source.randrange(8)
    return _chain((epoch, bytes(row)))


def _of_epoch(epoch: int, *, is_on_top: bool) -> Callable[[bytes, random.Random], bytes]:
    return lambda chain, _: _chain((epoch, read_versions(chain)[0][1] or b"")) + (chain if is_on_top else b"")


def _enveloped(chain: bytes, source: random.Random) -> bytes:
    """The length of the newest version is another."""
    epoch, size = struct.unpack_from("<QI", chain)
    return struct.pack("<QI", epoch, source.choice((0, size + 1, size + 7, 1 << 30, 0xFFFFFFFE))) + chain[12:]


def _garbled_row(chain: bytes, source: random.Random) -> bytes:
    epoch, row = read_versions(chain)[0]
    return _chain((epoch, source.randbytes(len(row or b""))))


def _cut_row(chain: bytes, source: random.Random) -> bytes:
    epoch, row = read_versions(chain)[0]
    return _chain((epoch, (row or b"")[: source.randrange(len(row or b"x"))]))


def _elsewhere(*, is_moved: bool) -> Callable[..., bool]:
    def damage(database: Database, table: int, source: random.Random) -> bool:
        records = _there(database, table)
        if records:
            partition, key, chain = source.choice(records)
            others = [other for other in range(database.store.partitions) if other != partition]
            put_raw(database, table, source.choice(others), key, chain)
            if is_moved:
                put_raw(database, table, partition, key, None)
        return bool(records)

    return damage


def _swapped(database: Database, table: int, source: random.Random) -> bool:
    """Two records have each other's versions."""
    records = _there(database, table)
    if len({chain for _, _, chain in records}) < 2:
        return False
    one = source.choice(records)
    other = source.choice([record for record in records if record[2] != one[2]])
    put_raw(database, table, one[0], one[1], other[2])
    put_raw(database, table, other[0], other[1], one[2])
    return True


def _extra(database: Database, table: int, source: random.Random) -> bool:
    """A record under a key that is a little different, and perhaps none."""
    records = [one for one in _there(database, table) if one[1]]
    if records:
        partition, key, chain = source.choice(records)
        changed = bytearray(key)
        changed[source.randrange(len(key))] ^= 1 << source.randrange(8)
        put_raw(database, table, partition, bytes(changed), chain)
    return bool(records)


DAMAGES: dict[str, Callable[[Database, int, random.Random], bool]] = {
    "missing": _in_place(lambda chain, _: None),
    "flipped": _in_place(_flipped),
    "extra": _extra,
    "copied": _elsewhere(is_moved=False),
    "moved": _elsewhere(is_moved=True),
    "of an epoch that never was": _in_place(_of_epoch(_NEVER, is_on_top=False)),
    "below one of an epoch that never was": _in_place(_of_epoch(_NEVER, is_on_top=True)),
    "of no epoch": _in_place(_of_epoch(0, is_on_top=False)),
    "truncated": _in_place(lambda chain, source: chain[: source.randrange(1, len(chain))]),
    "garbage": _in_place(lambda chain, source: source.randbytes(len(chain))),
    "empty": _in_place(lambda chain, _: b""),
    "wrong length": _in_place(_enveloped),
    "garbled row": _in_place(_garbled_row),
    "cut row": _in_place(_cut_row),
    "swapped": _swapped,
    "version twice": _in_place(lambda chain, _: chain[: 12 + len(read_versions(chain)[0][1] or b"")] + chain),
}
