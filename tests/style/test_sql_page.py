"""docs/sql.md lists every function and aggregate, and functions as their table has them."""

from __future__ import annotations

import pytest

from tests.support.source_tree import ROOT
from viewkeeper.algebra import aggregates
from viewkeeper.sql.function_reference import written_again
from viewkeeper.sql.function_table import NAMED, SECTIONS

PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")


def test_the_page_in_docs_is_current() -> None:
    assert written_again(PAGE) == PAGE, "run: python -m viewkeeper.sql.function_reference docs/sql.md"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_on_the_page(section: str) -> None:
    assert PAGE.count(f"<!-- functions: {section} -->") == 1


def test_every_name_is_on_the_page() -> None:
    assert [
        name
        for name in (*NAMED, *aggregates.FUNCTIONS)
        if f"`{name.upper()}`" not in PAGE and f"`{name.upper()}(" not in PAGE
    ] == []


def test_a_stale_table_is_replaced_and_nothing_else() -> None:
    stale = PAGE.replace("| `SIGN(x)`", "| `SIGN(y)`")

    assert stale != PAGE
    assert written_again(stale) == PAGE
