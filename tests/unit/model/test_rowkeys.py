"""Row keys of HBase's tables as keys of ours, and back; and which row keys a range of keys lies in."""

from __future__ import annotations

import datetime
import math
import struct
from bisect import bisect_left
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.model.foreign_rows import decode_row_keys, encode_row_keys
from viewkeeper.model.keys import after_prefix, encode_key
from viewkeeper.model.schema import Cell, Column, Foreign, TableId, TableSchema
from viewkeeper.model.stored_values import to_stored
from viewkeeper.model.types import Encoding, parse_type
from viewkeeper.stores.hbase.mapping import row_spans

VALUES = {
    "STRING": ["a", "ä", "x\0y", "\0", "zz"],
    "BINARY": [b"a", b"\0", b"\xff\0\xff"],
    "INT": [0, -1, 7, 10, -(2**31), 2**31 - 1],
    "BIGINT": [0, -1, 7, 10, 256, -(2**63), 2**63 - 1],
    "DOUBLE": [0.0, 1.5, -2.0, 1e300, math.inf, math.nan],
    "BOOLEAN": [True, False],
    "DECIMAL(9,2)": [Decimal("1.50"), Decimal("-3.00")],
    "DATE": [datetime.date(2024, 2, 29)],
    "TIMESTAMP": [datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=datetime.UTC)],
}
BOTH = [(kind, "text") for kind in VALUES] + [(kind, "bytes") for kind in list(VALUES)[:6]]


def mapped(kind: str, encoding: Encoding) -> TableSchema:
    columns = (Column("id", parse_type(kind), nullable=False), Column("v", parse_type("STRING")))
    foreign = Foreign("t", (Cell("f", "v", "text"),), encoding)
    return TableSchema(TableId(1), "t", columns, ("id",), TableId(2), foreign)


def keys_of(schema: TableSchema, values: list) -> list[bytes]:
    (column,) = schema.key_columns
    return [encode_key([column], [to_stored(column, value)]) for value in values]


@pytest.mark.parametrize(("kind", "encoding"), BOTH)
def test_keys_of_every_type_come_back(kind: str, encoding: Encoding) -> None:
    schema = mapped(kind, encoding)
    keys = keys_of(schema, VALUES[kind])
    found, wrong = decode_row_keys(schema, pa.array(encode_row_keys(schema, keys), pa.binary()))

    assert found.to_pylist() == keys
    assert not wrong.any()


def test_numbers_are_row_keys_as_clients_write_them() -> None:
    for encoding, written in (("text", [b"7", b"-1", b"10"]), ("bytes", [struct.pack(">q", n) for n in (7, -1, 10)])):
        schema = mapped("BIGINT", encoding)
        assert encode_row_keys(schema, keys_of(schema, [7, -1, 10])) == written


@pytest.mark.parametrize(
    ("kind", "encoding", "row_keys"),
    [
        ("BIGINT", "text", [b"07", b"+7", b" 7", b"7 ", b"-0", b"x", b"", b"\xff", b"9223372036854775808"]),
        ("BIGINT", "bytes", [b"7", struct.pack(">i", 7), bytes(9)]),
        ("DECIMAL(9,2)", "text", [b"1.5", b"01.50", b"1.500", b"1"]),
        ("DOUBLE", "text", [b"1.50", b"-0", b"-0.0", b"NaN"]),
        ("DOUBLE", "bytes", [struct.pack(">d", -0.0), b"\x7f\xf8" + bytes(5) + b"\x01"]),
        ("BOOLEAN", "bytes", [b"\x01", b"true"]),
        ("BOOLEAN", "text", [b"TRUE", b"1"]),
        ("DATE", "text", [b"2024-2-29", b"2024-02-30"]),
        ("STRING", "text", [b"\xff"]),
    ],
)
def test_a_row_key_that_is_written_otherwise_is_no_key(kind: str, encoding: Encoding, row_keys: list[bytes]) -> None:
    schema = mapped(kind, encoding)
    right = encode_row_keys(schema, keys_of(schema, VALUES[kind][:1]))
    found, wrong = decode_row_keys(schema, pa.array(row_keys + right, pa.binary()))

    assert wrong.tolist() == [True] * len(row_keys) + [False]
    assert found.is_null().to_pylist() == wrong.tolist()


NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300))
TEXTS = st.text(st.sampled_from("\0\x01aÿ"), min_size=1, max_size=4)


@pytest.mark.parametrize(("kind", "encoding", "values"), [("BIGINT", "bytes", NUMBERS), ("STRING", "text", TEXTS)])
def test_spans_of_row_keys_hold_a_range_of_keys_in_our_order(
    kind: str, encoding: Encoding, values: st.SearchStrategy
) -> None:
    schema = mapped(kind, encoding)

    @given(st.sets(values, min_size=1), st.data())
    def holds(numbers: set, data: st.DataObject) -> None:
        keys = sorted(keys_of(schema, list(numbers)))
        bounds = [b"", b"\x01", *keys, *(after_prefix(key) for key in keys), *(key[:-1] for key in keys), b"\x02"]
        start = data.draw(st.sampled_from(bounds))
        stop = data.draw(st.sampled_from([*bounds, None]))
        kept = dict(zip(encode_row_keys(schema, keys), keys, strict=True))
        spans = row_spans(schema, start, stop)
        met = [kept[row] for a, b in spans for row in sorted(kept) if a <= row and (b is None or row < b)]

        assert met == sorted(met)
        wanted = [key for key in keys if key >= start and (stop is None or key < stop)]
        assert [key for key in met if key >= start and (stop is None or key < stop)] == wanted
        if start in keys:
            assert met == [] or bisect_left(keys, met[0]) >= bisect_left(keys, start)

    holds()


def test_other_numbers_lie_in_another_order() -> None:
    assert row_spans(mapped("BIGINT", "text"), b"", None) is None
    assert row_spans(mapped("DOUBLE", "bytes"), b"", None) is None
