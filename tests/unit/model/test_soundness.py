"""Soundness: exactly those keys and rows are sound that decode to values which encode to the same bytes."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.model.test_codecs_agree import arrays_of, stored_rows, tables
from viewkeeper.model import keys
from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.rowbatches import encode_compact_rows, encode_rows
from viewkeeper.model.rowcodec import decode_row, encode_row, layout_of
from viewkeeper.model.schema import Column
from viewkeeper.model.soundness import DAMAGE, sound_keys, sound_rows

Columns = tuple[Column, ...]


@settings(max_examples=40)
@given(tables())
def test_whatever_was_encoded_is_sound(table: tuple[Columns, list]) -> None:
    columns, rows = table
    arrays, count = arrays_of(columns, rows), len(rows)
    assert sound_rows(columns, encode_rows(columns, arrays, count)).all()
    assert sound_rows(columns, encode_compact_rows(columns, arrays, count)).all()
    assert sound_keys(columns, encode_keys(columns, arrays, count)[0]).all()


@settings(max_examples=40)
@given(tables(), st.data())
def test_damaged_bytes_among_others_are_told_apart(table: tuple[Columns, list], data: st.DataObject) -> None:
    columns, rows = table
    whole = [encode_row(columns, row) for row in stored_rows(columns, rows)]
    compact = encode_compact_rows(columns, arrays_of(columns, rows), len(rows)).to_pylist()
    given_rows = [*whole, *(damaged(data, row) for row in whole + compact), *compact]
    found = sound_rows(columns, pa.array(given_rows, pa.binary())).tolist()
    assert found == [is_row(columns, row) for row in given_rows]

    encoded = [keys.encode_key(columns, row) for row in stored_rows(columns, rows)]
    given_keys = [*encoded, *(damaged(data, key) for key in encoded), *encoded]
    found = sound_keys(columns, pa.array(given_keys, pa.binary())).tolist()
    assert found == [is_key(columns, key) for key in given_keys]


def damaged(data: st.DataObject, whole: bytes) -> bytes:
    """Cut off, with one byte changed, longer, empty, or something else."""
    place, byte = data.draw(st.integers(0, len(whole) - 1)), bytes([data.draw(st.integers(0, 255))])
    ways = [whole[:place], whole[:place] + byte + whole[place + 1 :], whole + byte, b"", byte * len(whole)]
    return data.draw(st.sampled_from(ways))


def is_row(columns: Columns, row: bytes) -> bool:
    try:
        values = decode_row(columns, row)
        again = encode_row(columns, values)
    except DAMAGE:
        return False
    if row[:2] == b"\xff\xff" and layout_of(columns).is_fixed:
        size = -(-layout_of(columns).head_size // 8)
        bits = int.from_bytes(row[2 : 2 + size], "little")
        is_filled = bits.bit_count() == len(row) - 2 - size and not bits >> layout_of(columns).head_size
        there = bytes(byte for byte in again if byte)
        return is_filled and there == row[2 + size :] and all(map(_fits, columns, values))
    return again == row and all(map(_fits, columns, values))


def is_key(columns: Columns, key: bytes) -> bool:
    try:
        values = keys.decode_key(columns, key)
        return keys.encode_key(columns, values) == key and all(map(_fits, columns, values))
    except DAMAGE:
        return False


def _fits(column: Column, value: object) -> bool:
    return column.type.kind != "DECIMAL" or value is None or abs(value) < 10**column.type.precision
