"""Where DuckDB's own upper and lower are used, they say what our tables say."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa
import pytest

from viewkeeper.codegen import letter_case
from viewkeeper.codegen.letter_case import lower, upper

CHARACTERS = [chr(code) for code in range(1, 0x30000) if not 0xD800 <= code < 0xE000]
UPPER = letter_case.UPPER | letter_case.UPPER_MANY
LOWER = letter_case.LOWER | letter_case.LOWER_MANY | {"Σ": "σ"}


def run(sql: str, texts: list[str]) -> list[str]:
    connection = duckdb.connect()
    connection.register("images", pa.table({"ord": range(len(texts)), "c1": texts}))
    return [row[0] for row in connection.sql(f"SELECT {sql} FROM images ORDER BY ord").fetchall()]


def test_duckdb_agrees_on_common_characters() -> None:
    for name, table, common in (
        ("upper", UPPER, letter_case.COMMON_UPPER),
        ("lower", LOWER, letter_case.COMMON_LOWER),
    ):
        known = [one for one in CHARACTERS if re.fullmatch(f"[{common}]", one) and one != "ß"]
        assert len(known) > 30_000
        assert run(f"{name}(c1)", known) == [table.get(one, one) for one in known]


def test_each_letter_becomes_what_the_tables_say() -> None:
    assert run(upper("c1"), list(UPPER)) == list(UPPER.values())
    assert run(lower("c1"), list(LOWER)) == list(LOWER.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ΟΔΟΣ", "οδος"),
        ("Σ", "σ"),
        ("ΑΣ.", "ας."),
        ("ΑΣ.Α", "ασ.α"),
        ("ΣΣ ΣΣΣ", "σς σσς"),
        ("1Σ", "1σ"),
        ("İ", "i\u0307"),
    ],
)
def test_the_last_sigma_of_a_word_is_another(text: str, expected: str) -> None:
    assert run(lower("c1"), [text]) == [expected]
