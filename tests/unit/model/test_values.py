"""What does not fit a column exactly is refused with the column's name; what fits comes back as it was given."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from viewkeeper.errors import BadRow, UnsupportedSql
from viewkeeper.model.json_codec import from_json_value, to_json_value
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.stored_values import from_stored, to_stored
from viewkeeper.model.types import decimal, parse_type

TYO = dt.timezone(dt.timedelta(hours=9))


def column(kind: str) -> Column:
    return Column("c", parse_type(kind))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("BOOLEAN", 1),
        ("BOOLEAN", "true"),
        ("INT", True),
        ("INT", 2**31),
        ("INT", -(2**31) - 1),
        ("INT", 1.0),
        ("BIGINT", 2**63),
        ("BIGINT", "1"),
        ("BIGINT", Decimal(1)),
        ("DOUBLE", True),
        ("DOUBLE", "1"),
        ("DOUBLE", Decimal("0.1")),
        ("DECIMAL(4,2)", 1.5),
        ("DECIMAL(4,2)", True),
        ("DECIMAL(4,2)", 100),
        ("DECIMAL(4,2)", Decimal("0.001")),
        ("DECIMAL(4,2)", Decimal("99.999")),
        ("DECIMAL(4,2)", Decimal("1E+50")),
        ("DECIMAL(4,2)", Decimal("1E-50")),
        ("DECIMAL(4,2)", Decimal("NaN")),
        ("DECIMAL(4,2)", Decimal("-Infinity")),
        ("STRING", b"a"),
        ("STRING", 1),
        ("STRING", "\ud800"),
        ("BINARY", "a"),
        ("BINARY", [1]),
        ("DATE", "2024-01-01"),
        ("DATE", dt.datetime(2024, 1, 1)),
        ("TIMESTAMP", dt.date(2024, 1, 1)),
        ("TIMESTAMP", 0),
    ],
)
def test_what_does_not_fit_is_refused_with_the_columns_name(kind: str, value: object) -> None:
    with pytest.raises(BadRow, match="column c is"):
        to_stored(column(kind), value)


@pytest.mark.parametrize(
    ("kind", "value", "back"),
    [
        ("BOOLEAN", False, False),
        ("INT", -(2**31), -(2**31)),
        ("BIGINT", 2**63 - 1, 2**63 - 1),
        ("DOUBLE", 3, 3.0),
        ("DECIMAL(4,2)", 7, Decimal("7.00")),
        ("DECIMAL(4,2)", Decimal("-99.99"), Decimal("-99.99")),
        ("DECIMAL(4,2)", Decimal("1.5000"), Decimal("1.50")),
        ("DECIMAL(4,2)", Decimal("1E+1"), Decimal("10.00")),
        ("DECIMAL(4,2)", Decimal("0E+60"), Decimal("0.00")),
        ("DECIMAL(4,2)", Decimal("0E-60"), Decimal("0.00")),
        ("DECIMAL(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
        ("STRING", "ß\x00", "ß\x00"),
        ("BINARY", bytearray(b"\x00"), b"\x00"),
        ("BINARY", memoryview(b"\xff"), b"\xff"),
        ("DATE", dt.date.min, dt.date.min),
        ("DATE", dt.date.max, dt.date.max),
        (
            "TIMESTAMP",
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        ),
        ("TIMESTAMP", dt.datetime(2024, 1, 1, 9, tzinfo=TYO), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ("STRING", None, None),
    ],
)
def test_what_fits_comes_back(kind: str, value: object, back: object) -> None:
    found = from_stored(column(kind), to_stored(column(kind), value))

    assert found == back
    assert str(found) == str(back)


@pytest.mark.parametrize(
    "text", ["BOOLEAN", "INT", "BIGINT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP", "DECIMAL(7,3)"]
)
def test_the_text_of_a_type_is_read_back(text: str) -> None:
    assert str(parse_type(text)) == text
    assert parse_type(f"  {text.lower()} ") == parse_type(text)


@pytest.mark.parametrize(
    "text", ["VARCHAR(3)", "ARRAY<INT>", "", "DECIMAL(39,0)", "DECIMAL(3,4)", "DECIMAL(0)", "INT(3)"]
)
def test_a_type_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedSql):
        parse_type(text)


def test_a_schema_goes_to_json_and_back() -> None:
    columns = (
        Column("K", parse_type("STRING"), nullable=False),
        Column("v", decimal(12, 2)),
        Column("k2", parse_type("INT")),
    )
    schema = TableSchema(3, "T", columns, ("k2", "K"))

    assert from_json_value(TableSchema, to_json_value(schema)) == schema
    assert [column.name for column in schema.key_columns] == ["k2", "K"]
    assert [column.name for column in schema.value_columns] == ["v"]
    assert schema.position("V") == 1


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "DOUBLE", "DECIMAL(10,2)"])
@pytest.mark.parametrize("value", [10**5_000, -(10**5_000), Decimal("9" * 5_000)], ids=["large", "small", "exact"])
def test_a_number_that_python_cannot_write_is_refused_like_any_other(kind: str, value: object) -> None:
    with pytest.raises(BadRow, match="column c is"):
        to_stored(column(kind), value)
