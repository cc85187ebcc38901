"""Cells of a foreign store: values as its own clients write them, and bytes that are none."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from viewkeeper.errors import InputError
from viewkeeper.model.foreign_rows import decode_cells, encode_cells, require_encoding
from viewkeeper.model.types import parse_type

WIDE = {
    "INT": [0, -1, 2**31 - 1, -(2**31), None],
    "BIGINT": [0, 7, 2**63 - 1, -(2**63), None],
    "DOUBLE": [0.0, -0.0, 1.5, float("inf"), 5e-324, None],
    "BOOLEAN": [True, False, None],
}
FORMATS = {"INT": ">i", "BIGINT": ">q", "DOUBLE": ">d"}
TEXTS = {
    **WIDE,
    "STRING": ["", "ä", "x\0y", None],
    "DECIMAL(10,2)": [Decimal("1.50"), Decimal("-99999999.99"), None],
    "DATE": [datetime.date(2024, 2, 29), datetime.date(1, 1, 1), None],
    "TIMESTAMP": [datetime.datetime(2024, 2, 29, 12, 30, 1, 5), None],
}


def as_hbase_writes(kind: str, value: object) -> bytes | None:
    """`Bytes.toBytes` of Java, by its documentation."""
    if value is None:
        return None
    return (b"\xff" if value else b"\0") if kind == "BOOLEAN" else struct.pack(FORMATS[kind], value)


@pytest.mark.parametrize("kind", WIDE)
def test_numbers_are_read_and_written_as_java_clients_do(kind: str) -> None:
    type_ = parse_type(kind)
    values = pa.array(WIDE[kind], type_.arrow)
    cells = pa.array([as_hbase_writes(kind, value) for value in WIDE[kind]], pa.binary())
    assert encode_cells(values, type_, "bytes") == cells
    found, wrong = decode_cells(cells, type_, "bytes")
    assert repr(found.to_pylist()) == repr(WIDE[kind])
    assert not wrong.any()


@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_read_as_it_was_written(kind: str) -> None:
    type_ = parse_type(kind)
    cells = encode_cells(pa.array(TEXTS[kind], type_.arrow), type_, "text")
    found, wrong = decode_cells(cells, type_, "text")
    assert repr(found.to_pylist()) == repr(TEXTS[kind])
    assert not wrong.any()


@pytest.mark.parametrize(
    ("kind", "encoding", "cell"),
    [
        ("INT", "bytes", b"\0" * 8),
        ("BIGINT", "bytes", b""),
        ("BIGINT", "text", b"7 apples"),
        ("INT", "text", b"99999999999"),
        ("DOUBLE", "text", b"\xff\xfe"),
        ("STRING", "text", b"\xc3"),
        ("DATE", "text", b"2023-02-29"),
        ("DATE", "text", b"0000-01-01"),
        ("TIMESTAMP", "text", b"9999-12-31T23:59:59-05:00"),
        ("TIMESTAMP", "text", b"0001-01-01T00:00:00+05:00"),
        ("TIMESTAMP", "text", b"soon"),
        ("DECIMAL(4,2)", "text", b"123.45"),
    ],
)
def test_a_cell_that_is_no_value_is_told_and_others_beside_it_are_read(kind: str, encoding: str, cell: bytes) -> None:
    type_ = parse_type(kind)
    good = encode_cells(pa.array(TEXTS[kind][:1] if kind in TEXTS else [Decimal("1.25")], type_.arrow), type_, encoding)
    cells = pa.concat_arrays([good, pa.array([cell, None], pa.binary())])
    found, wrong = decode_cells(cells, type_, encoding)
    assert wrong.tolist() == [False, True, False]
    assert found.is_valid().to_pylist() == [True, False, False]


def test_a_type_without_bytes_of_its_own_asks_for_text() -> None:
    with pytest.raises(InputError, match="DATE has no encoding as bytes"):
        require_encoding(parse_type("DATE"), "bytes")
    require_encoding(parse_type("DATE"), "text")
    require_encoding(parse_type("BIGINT"), "bytes")


def test_spaces_around_a_number_and_leading_zeros_are_no_fault() -> None:
    found, wrong = decode_cells(pa.array([b" 7", b"007\n"]), parse_type("INT"), "text")
    assert found.to_pylist() == [7, 7]
    assert not wrong.any()


def test_a_timestamp_with_an_offset_is_the_same_instant_in_utc() -> None:
    cells = pa.array([b"2024-02-29 12:30:01Z", b"2024-02-29T13:30:01.000000+01:00", b"2024-02-29 12:30:01", b"noon"])
    found, wrong = decode_cells(cells, parse_type("TIMESTAMP"), "text")
    assert found.to_pylist() == [datetime.datetime(2024, 2, 29, 12, 30, 1)] * 3 + [None]
    assert wrong.tolist() == [False] * 3 + [True]
