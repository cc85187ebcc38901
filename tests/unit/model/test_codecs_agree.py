"""Keys and rows: the codecs for one row and for whole columns give the same bytes, and bytes keep the values' order."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.errors import InvariantBroken
from viewkeeper.model import keys
from viewkeeper.model.keybatches import decode_after, decode_keys, encode_keys, hash_all
from viewkeeper.model.rowbatches import decode_rows, encode_rows, tails_of
from viewkeeper.model.rowcodec import decode_row, decode_some, encode_row, tail_of
from viewkeeper.model.schema import Column
from viewkeeper.model.stored_values import from_stored, to_stored
from viewkeeper.model.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, decimal
from viewkeeper.model.varbinary import VarBinary

TYPES = (BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP, decimal(12, 2), decimal(38, 10))
_EXACT = Context(prec=60)
VALUES = {
    "BOOLEAN": st.booleans(),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(),
    "STRING": st.text(st.characters(codec="utf-8"), max_size=6)
    | st.sampled_from(["", "\x00", "a\x00", "a\x00\x00b", "é", "\U0010ffff"]),
    "BINARY": st.binary(max_size=6) | st.sampled_from([b"", b"\x00", b"\x00\xff", b"\xff\xff"]),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(timezones=st.just(dt.UTC)),
}


def values_of(column: Column) -> st.SearchStrategy:
    if column.type.kind == "DECIMAL":
        most = 10**column.type.precision - 1
        return st.integers(-most, most).map(lambda unscaled: Decimal(unscaled).scaleb(-column.type.scale, _EXACT))
    return VALUES[column.type.kind]


@st.composite
def tables(draw: st.DrawFn, *, columns_max: int = 5) -> tuple[tuple[Column, ...], list[list[object]]]:
    """Columns of any types, and rows of Python values with NULLs."""
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=columns_max))
    columns = tuple(Column(f"c{place}", kind) for place, kind in enumerate(kinds))
    row = st.tuples(*(st.none() | values_of(column) for column in columns))
    return columns, [list(values) for values in draw(st.lists(row, max_size=12))]


def stored_rows(columns: tuple[Column, ...], rows: list[list[object]]) -> list[list[object]]:
    return [[to_stored(column, value) for column, value in zip(columns, row, strict=True)] for row in rows]


def arrays_of(columns: tuple[Column, ...], rows: list[list[object]]) -> list[pa.Array]:
    def plain(value: object) -> object:
        return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value

    return [pa.array([plain(row[place]) for row in rows], column.type.arrow) for place, column in enumerate(columns)]


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return left == right


def all_same(left: list[list[object]], right: list[list[object]]) -> bool:
    return len(left) == len(right) and all(
        len(a) == len(b) and all(map(same, a, b)) for a, b in zip(left, right, strict=True)
    )


def shown(columns: tuple[Column, ...], stored: list[list[object]]) -> list[list[object]]:
    return [[from_stored(column, value) for column, value in zip(columns, row, strict=True)] for row in stored]


def columns_to_rows(arrays: list[pa.Array]) -> list[list[object]]:
    def aware(value: object) -> object:
        return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) else value

    return [[aware(value) for value in row] for row in zip(*(array.to_pylist() for array in arrays), strict=True)]


@given(tables())
def test_a_row_decodes_to_what_was_encoded_one_by_one_and_by_column(table: tuple) -> None:
    columns, rows = table
    stored = stored_rows(columns, rows)
    one_by_one = [encode_row(columns, row) for row in stored]
    batch = encode_rows(columns, arrays_of(columns, rows), len(rows))

    assert batch.to_pylist() == one_by_one
    assert all_same(shown(columns, [decode_row(columns, row) for row in one_by_one]), rows)
    assert all_same(columns_to_rows(decode_rows(columns, batch)), rows)


@given(tables())
def test_a_key_decodes_to_what_was_encoded_one_by_one_and_by_column(table: tuple) -> None:
    columns, rows = table
    one_by_one = [keys.encode_key(columns, row) for row in stored_rows(columns, rows)]
    batch, hashes = encode_keys(columns, arrays_of(columns, rows), len(rows))
    normal = [[value + 0.0 if isinstance(value, float) else value for value in row] for row in rows]

    assert batch.to_pylist() == one_by_one
    assert hashes.tolist() == [keys.placement_hash(key[: keys.part_end(columns[0], key)]) for key in one_by_one]
    assert all_same(shown(columns, [keys.decode_key(columns, key) for key in one_by_one]), normal)
    if rows:
        assert all_same(columns_to_rows(decode_keys(columns, batch)), normal)


def rank(value: object) -> tuple:
    """The order that keys promise: NULL first, NaN last, text by its UTF-8 bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value + 0.0)
    return (1, value.encode() if isinstance(value, str) else value)


@given(tables(columns_max=3))
def test_the_order_of_key_bytes_is_the_order_of_values(table: tuple) -> None:
    columns, rows = table
    encoded = [keys.encode_key(columns, row) for row in stored_rows(columns, rows)]
    ranks = [[rank(value) for value in row] for row in rows]
    by_bytes = sorted(range(len(rows)), key=lambda place: encoded[place])

    assert [ranks[place] for place in by_bytes] == sorted(ranks)
    for left, key in enumerate(encoded):
        assert all((key == other) == (ranks[left] == ranks[right]) for right, other in enumerate(encoded))


@given(tables(columns_max=3), st.integers(0, 3))
def test_a_key_begins_with_each_of_its_prefixes(table: tuple, parts: int) -> None:
    columns, rows = table
    for row in stored_rows(columns, rows):
        key = keys.encode_key(columns, row)
        prefix = keys.encode_key(columns, row[:parts])
        after = keys.after_prefix(prefix)

        assert key.startswith(prefix)
        assert after is None or prefix <= key < after


@given(st.lists(st.binary(max_size=9), max_size=9))
def test_the_hash_of_many_strings_is_the_hash_of_each(strings: list[bytes]) -> None:
    hashes = hash_all(VarBinary.from_arrow(pa.array(strings, pa.binary())))

    assert hashes.tolist() == [keys.placement_hash(string) for string in strings]


@given(tables(), st.integers(0, 4), st.integers(0, 4))
def test_a_part_of_an_array_encodes_like_the_whole(table: tuple, skip: int, short: int) -> None:
    columns, rows = table
    stop = max(skip, len(rows) - short)
    kept = rows[skip:stop]
    arrays = [array.slice(skip, stop - skip) for array in arrays_of(columns, rows)]
    stored = stored_rows(columns, kept)

    assert encode_rows(columns, arrays, len(kept)).to_pylist() == [encode_row(columns, row) for row in stored]
    assert encode_keys(columns, arrays, len(kept))[0].to_pylist() == [keys.encode_key(columns, row) for row in stored]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_no_rows_are_encoded_and_decoded(kind: object) -> None:
    """An epoch of a selection in which nothing passes has no rows, and must end all the same."""
    columns = (Column("a", kind), Column("b", STRING))
    arrays = arrays_of(columns, [])
    encoded = encode_rows(columns, arrays, 0)
    key, hashes = encode_keys(columns, arrays, 0)

    assert len(encoded) == len(key) == len(hashes) == 0
    assert [len(array) for array in decode_rows(columns, encoded)] == [0, 0]
    assert [len(array) for array in decode_keys(columns, key)] == [0, 0]


@given(tables(), st.integers(0, 4))
def test_a_row_from_before_columns_were_added_has_null_in_them(table: tuple, added: int) -> None:
    columns, rows = table
    wider = columns + tuple(Column(f"n{place}", TYPES[place]) for place in range(added))
    encoded = [encode_row(columns, row) for row in stored_rows(columns, rows)]
    mixed = encoded + [encode_row(wider, [*row, *[None] * added]) for row in stored_rows(columns, rows)]
    expected = [[*row, *[None] * added] for row in rows]

    assert all_same(shown(wider, [decode_row(wider, row) for row in encoded]), expected)
    if rows:
        assert all_same(columns_to_rows(decode_rows(wider, pa.array(mixed, pa.binary()))), expected + expected)


@given(tables(), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_columns_that_a_reader_does_not_know_are_ignored_and_kept(table: tuple, sizes: list[int]) -> None:
    """Each number of columns known, from those of CREATE TABLE on, reads what it knows of rows with all of them."""
    columns, rows = table
    steps = [step for step, size in enumerate(sizes) for _ in range(size)]
    altered = tuple(replace(c, added=step) for c, step in zip(columns, steps, strict=False))
    for known in {sum(column.added <= step for column in altered) for step in range(len(sizes))}:
        stored = [row[: len(altered)] for row in stored_rows(columns, rows)]
        older = altered[:known]
        encoded = [encode_row(altered, row) for row in stored]
        batch = pa.array(encoded, pa.binary())
        tails = [tail_of(older, row) for row in encoded]

        assert encode_rows(altered, arrays_of(altered, rows), len(rows)).to_pylist() == encoded
        expected = [row[:known] for row in rows]
        assert all_same(shown(older, [decode_row(older, row) for row in encoded]), expected)
        if rows and known:
            assert all_same(columns_to_rows(decode_rows(older, batch)), expected)
        batch_tails = tails_of(older, batch)
        assert (batch_tails.to_pylist() if batch_tails else [b""] * len(rows)) == tails
        again = [encode_row(older, row[:known], tail) for row, tail in zip(stored, tails, strict=True)]
        assert again == encoded
        assert encode_rows(older, arrays_of(older, rows), len(rows), batch_tails).to_pylist() == encoded


@given(tables())
def test_an_absent_row_among_others_decodes_to_nulls(table: tuple) -> None:
    columns, rows = table
    encoded: list[bytes | None] = [encode_row(columns, row) for row in stored_rows(columns, rows)]
    holes = [None, *(item for row in encoded for item in (row, None))]
    expected = [[None] * len(columns), *(item for row in rows for item in (row, [None] * len(columns)))]

    assert all_same(columns_to_rows(decode_rows(columns, pa.array(holes, pa.binary()))), expected)


def test_a_row_with_more_columns_than_the_schema_is_refused() -> None:
    columns = (Column("a", INT), Column("b", INT))
    row = encode_row(columns, [1, 2])

    with pytest.raises(InvariantBroken, match="2 columns"):
        decode_row(columns[:1], row)
    with pytest.raises(InvariantBroken, match="2 columns"):
        decode_rows(columns[:1], pa.array([row]))


def test_only_wanted_columns_are_decoded_and_in_the_order_asked() -> None:
    columns = (Column("a", INT), Column("b", STRING), Column("c", BIGINT))
    rows = pa.array([encode_row(columns, [1, "x", 3]), encode_row(columns, [4, None, 6])])

    assert [array.to_pylist() for array in decode_rows(columns, rows, [2, 1])] == [[3, 6], ["x", None]]


def test_zero_and_nan_have_one_key_each() -> None:
    column = (Column("f", DOUBLE),)
    odd_nan = np.frombuffer(np.array([0xFFF8_0000_0000_0001], np.uint64).tobytes(), np.float64)[0]

    assert keys.encode_key(column, [-0.0]) == keys.encode_key(column, [0.0])
    assert keys.encode_key(column, [float(odd_nan)]) == keys.encode_key(column, [math.nan])
    batch, _ = encode_keys(column, [pa.array([-0.0, 0.0, float(odd_nan), math.nan])], 4)
    assert len(set(batch.to_pylist())) == 2


def test_the_empty_key_has_one_place() -> None:
    batch, hashes = encode_keys((), [], 2)

    assert batch.to_pylist() == [b"", b""]
    assert hashes.tolist() == [keys.placement_hash(b"")] * 2


@given(tables(), st.data())
def test_the_first_parts_of_a_key_are_cut_from_it(table: tuple, data: st.DataObject) -> None:
    columns, rows = table
    width = data.draw(st.integers(0, len(columns)))
    stored = stored_rows(columns, rows)
    encoded = pa.array([keys.encode_key(columns, row) for row in stored], pa.binary())
    arrays, prefixes = decode_after(columns[:width], columns[width:], encoded)

    assert all_same(columns_to_rows(arrays), columns_to_rows(decode_keys(columns, encoded)))
    assert prefixes.to_pylist() == [keys.encode_key(columns[:width], row[:width]) for row in stored]


@pytest.mark.parametrize("length", [64, 65, 700, 100_000])
def test_long_keys_of_one_length_are_placed_as_single_ones(length: int) -> None:
    strings = [bytes([first]) * length for first in (0, 1, 7, 255)]

    hashes = hash_all(VarBinary.from_arrow(pa.array(strings, pa.binary())))

    assert hashes.tolist() == [keys.placement_hash(string) for string in strings]


@given(tables(), st.data())
def test_some_columns_of_a_row_are_those_of_the_whole(table: tuple, data: st.DataObject) -> None:
    columns, rows = table
    wanted = data.draw(st.lists(st.integers(0, len(columns) - 1), max_size=4))
    for values in stored_rows(columns, rows):
        row = encode_row(columns, values)
        whole = decode_row(columns, row)
        assert repr(decode_some(columns, row, wanted)) == repr([whole[place] for place in wanted])
