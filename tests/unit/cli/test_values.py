"""Values as typed: `put` and `load` read the same texts as the same values."""

from __future__ import annotations

import duckdb
import pytest

from viewkeeper.cli.values import parse_json, parse_text, read_json
from viewkeeper.errors import BadRow
from viewkeeper.load.textvalues import value_of
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BOOLEAN, DOUBLE, SqlType

TEXTS = {
    BOOLEAN: ["true", "FALSE", "t", "F", "Yes", "no", "y", "N", "1", "0", " true ", "2", "on", "10", "", "truth"],
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
    relation = duckdb.sql(f"SELECT {value_of(kind, 't')} FROM (SELECT ?::VARCHAR AS t)", params=[text])
    ((loaded,),) = relation.fetchall()
    try:
        typed = parse_text(Column("c", kind), text)
    except BadRow:
        typed = None

    assert repr(typed) == repr(loaded)  # NaN is NaN


def test_json_beyond_the_largest_double_is_not_infinity() -> None:
    with pytest.raises(BadRow, match="beyond the largest DOUBLE"):
        parse_json(Column("lat", DOUBLE), read_json("1e400", "it"))
    assert parse_json(Column("flag", BOOLEAN), 1) is True
