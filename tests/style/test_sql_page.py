"""docs/sql.md lists every function and aggregate, and functions as their table has them."""

from __future__ import annotations

import pytest

from tests.support.source_tree import ROOT
from viewkeeper.sql import aggregates
from viewkeeper.sql.function_table import NAMED, SECTIONS
from viewkeeper.sql.reference import made_anew

PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")


def test_the_page_in_docs_is_current() -> None:
    assert made_anew(PAGE) == PAGE, "run: python -m viewkeeper.sql.reference docs/sql.md"


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
    assert made_anew(stale) == PAGE
