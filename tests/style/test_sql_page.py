"""docs/sql.md lists every function and aggregate, and functions as their table has them."""

from __future__ import annotations

import contextlib

import pytest
import sqlglot
from sqlglot.errors import ParseError

from tests.support.source_tree import ROOT
from viewkeeper.algebra import aggregates
from viewkeeper.sql.function_reference import written_again
from viewkeeper.sql.function_table import NAMED, SECTIONS
from viewkeeper.sql.query_parser import ViewSpark

PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")


def test_the_page_in_docs_is_current() -> None:
    assert written_again(PAGE) == PAGE, "run: python -m viewkeeper.sql.function_reference docs/sql.md"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_on_the_page(section: str) -> None:
    assert PAGE.count(f"<!-- functions: {section} -->") == 1


def test_every_name_is_on_the_page() -> None:
    assert [
        name
        for name in (*NAMED, *aggregates.AGGREGATE_NAMES)
        if f"`{name.upper()}`" not in PAGE and f"`{name.upper()}(" not in PAGE
    ] == []


def test_an_aggregate_has_no_name_that_is_not_on_the_page() -> None:
    accepted = []
    for name in ViewSpark.Parser.FUNCTIONS:
        with contextlib.suppress(ParseError, IndexError):  # what needs more arguments is no aggregate
            call = sqlglot.parse_one(f"{name}(x)", read=ViewSpark)
            accepted += [name] if type(call) in aggregates.NODES | aggregates.OF_CONDITIONS else []

    assert sorted(accepted) == sorted(name.upper() for name in aggregates.AGGREGATE_NAMES)


def test_a_stale_table_is_replaced_and_nothing_else() -> None:
    stale = PAGE.replace("| `SIGN(x)`", "| `SIGN(y)`")

    assert stale != PAGE
    assert written_again(stale) == PAGE
