"""Log entries: many at a time they decode to what was written one by one, and a damaged one is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.errors import CorruptStore, NewerFormat
from viewkeeper.model.rowbatches import CHANGES_SCHEMA
from viewkeeper.stores.local import log_format
from viewkeeper.stores.local.log_batches import decode_entries

IMAGES = st.none() | st.binary(max_size=9)
CHANGES = st.lists(st.tuples(st.binary(min_size=1, max_size=9), IMAGES, IMAGES), min_size=1, max_size=5)


def entry(changes: list, *, table: int = 1, stamp: int = 7, ends: bool = True) -> bytes:
    body = log_format.encode_changes(*map(list, zip(*changes, strict=True)))
    return log_format.encode_entry(
        body, flags=int(ends), table=table, stream=2, count=len(changes), stamp=stamp, begins=5
    )


@given(st.lists(st.tuples(st.integers(1, 3), CHANGES), min_size=1, max_size=8))
def test_entries_decode_to_the_changes_of_each_table_in_log_order(log: list) -> None:
    entries = [entry(changes, table=table) for table, changes in log]
    expected: dict[int, list[tuple]] = {}
    positions, position = [], 0
    for table, changes in log:
        for change in changes:
            position += 1
            expected.setdefault(table, []).append((position, *change))
        positions.append(position)
    found = dict(decode_entries(entries, positions))

    assert {table: [tuple(row.values()) for row in batch.to_pylist()] for table, batch in found.items()} == expected
    assert all(batch.schema == CHANGES_SCHEMA for batch in found.values())


@given(CHANGES, st.booleans(), st.integers(0, 2**64 - 1))
def test_a_header_says_what_was_written(changes: list, ends: bool, stamp: int) -> None:
    header = log_format.decode_header(entry(changes, table=9, stamp=stamp, ends=ends))

    assert (header.table, header.stream, header.count, header.stamp) == (9, 2, len(changes), stamp)
    assert header.flags == (log_format.ENDS_TRANSACTION if ends else 0)
    assert len(entry(changes)) % 4 == 0


@given(CHANGES, st.data())
def test_a_flipped_bit_behind_the_header_is_noticed(changes: list, data: st.DataObject) -> None:
    whole = bytearray(entry(changes))
    at = data.draw(st.integers(log_format.HEADER.size, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(CorruptStore, match="checksum"):
        list(decode_entries([entry([(b"k", None, b"")]), bytes(whole)], [1, 1 + len(changes)]))


def test_an_entry_of_a_newer_format_is_refused() -> None:
    newer = bytes([log_format.FORMAT + 1]) + entry([(b"k", None, b"v")])[1:]

    with pytest.raises(NewerFormat):
        log_format.decode_header(newer)
    with pytest.raises(NewerFormat):
        list(decode_entries([newer], [1]))


def test_an_empty_image_is_not_an_absent_one() -> None:
    ((_, batch),) = decode_entries([entry([(b"k", b"", None), (b"l", None, b"")])], [2])

    assert batch["before"].to_pylist() == [b"", None]
    assert batch["after"].to_pylist() == [None, b""]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=9))
def test_the_order_of_position_keys_is_the_order_of_positions(positions: list[int]) -> None:
    keys = [log_format.position_key(position) for position in positions]

    assert sorted(keys) == [log_format.position_key(position) for position in sorted(positions)]
    assert [log_format.position_of(key) for key in keys] == positions
