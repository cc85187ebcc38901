"""Values as typed: `put` and `load` read the same texts as the same values."""

from __future__ import annotations

import datetime as dt

import duckdb
import pytest

from viewkeeper.cli.formats import parse_json, parse_text, read_json
from viewkeeper.errors import BadRow
from viewkeeper.load.text_values import value_of
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, BOOLEAN, DOUBLE, SqlType

NUMBERS = ["7", " 7 ", "-7", "+7", "007", "7.0", "7.", "7.5", "1_000", "1,5", "7x", "", "\u0661"]
DAYS = ["2026-01-31", " 2026-01-31 ", "2026-02-30", "2026-1-31", "20260131", "31.01.2026", "today", ""]
TIMES = [
    "T12:30",
    " 12:30",
    "T12:30:00",
    "T12:30:00.5",
    "T12:30:00.1234560",
    "T12:30:00.1234567",
    "T12",
    "T25:00",
    "T12:60",
]
OFFSETS = ["Z", " UTC", "+02:00", "-0230", "+02", " +02:00", "z", " Z", "UTC", "+2"]
TEXTS = {
    BOOLEAN: ["true", "FALSE", "t", "F", "Yes", "no", "y", "N", "1", "0", " true ", "2", "on", "10", "", "truth"],
    SqlType("INT"): NUMBERS,
    BIGINT: [*NUMBERS, "9223372036854775807", "-9223372036854775808", "9" * 41],
    SqlType("DECIMAL", 12, 2): ["1.5", ".5", "5.", "-12.50", " 7 ", "+1", "1,5", "0x10", "", "e5", "1.2.3"],
    SqlType("BINARY"): ["", "00ff", "00FF", "0", "0g", " 00", "00 ff"],
    SqlType("STRING"): ["", " a ", "NULL", "日本"],
    SqlType("DATE"): [*DAYS, "2026-01-31T00:00", "2026-01-31 00:00:00.000", "2026-01-31T12:00"],
    SqlType("TIMESTAMP"): [
        *DAYS,
        *(f"2026-01-31{time}" for time in TIMES),
        *(f"2026-01-31T12:30:00{offset}" for offset in OFFSETS),
    ],
    DOUBLE: [
        "1.5",
        ".5",
        "5.",
        "-1e300",
        "1e-400",
        " 7 ",
        "NaN",
        "-inf",
        "Infinity",
        "+1",
        "1e400",
        "-1e999",
        "9" * 400,
    ]
    + ["1_0", "1,5", "0x10", "", "e5", "infinit", "1e", "\u0661"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in TEXTS.items() for text in texts], ids=str)
def test_put_and_load_read_a_text_alike(kind: SqlType, text: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")  # as `load` does
        value = f"SELECT {value_of(kind, 't')} FROM (SELECT ?::VARCHAR AS t)"
        ((loaded,),) = connection.execute(value, [text]).fetchall()
    try:
        typed = parse_text(Column("c", kind), text)
    except BadRow:
        typed = None
    if isinstance(typed, dt.datetime) and typed.tzinfo is not None:
        typed = typed.astimezone(dt.UTC).replace(tzinfo=None)

    assert repr(typed) == repr(loaded) or (kind.kind == "DECIMAL" and typed == loaded)  # NaN is NaN


def test_json_beyond_the_largest_double_is_not_infinity() -> None:
    with pytest.raises(BadRow, match="beyond the largest DOUBLE"):
        parse_json(Column("lat", DOUBLE), read_json("1e400", "it"))
    assert parse_json(Column("flag", BOOLEAN), 1) is True
