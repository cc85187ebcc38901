"""The index by epoch: what is put into it comes out, by epoch, in the form of today and in the one of before."""

from __future__ import annotations

import pytest

from viewkeeper.stores.kv.lmdb_maps import LIMIT
from viewkeeper.stores.local import partition

TABLE = b"\x00\x00\x00\x07"


@pytest.mark.parametrize("count", [0, 1, 2, 999, 1000, 1001, 2500])
@pytest.mark.parametrize("tail", [b"", b"\x00", b"x" * LIMIT], ids=["short", "zero", "long"])
def test_packed_keys_come_out_as_they_went_in(count: int, tail: bytes) -> None:
    keys = [TABLE + b"%05d" % number + tail * (number % 3) for number in range(count)]
    pairs = list(partition.packed_pairs(9, keys))

    assert [key for _, value in pairs for key in partition.keys_of(value)] == keys
    assert len(dict(pairs)) == len(pairs) == -(-count // 1000)
    assert all(partition.epoch_of(entry) == 9 and len(entry) <= LIMIT for entry, _ in pairs)


def test_an_entry_for_each_key_names_it_as_it_always_did() -> None:
    keys = [TABLE + b"a", TABLE + b"b" * LIMIT]
    entries = partition.index_entries(3, keys)

    assert entries[0] == (3).to_bytes(8, "big") + keys[0]
    assert [partition.keys_of(key) for key in keys] == [[key] for key in keys]
    assert list(partition.packed_pairs(3, keys[:1])) == [(entries[0], keys[0])]
