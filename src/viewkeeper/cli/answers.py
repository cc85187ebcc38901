"""Results: rows on stdout, as they arrive, in the chosen form.

In: column names, and Arrow tables or rows. Out: a table for people, JSON lines or CSV. Always: a page is written before
the next one is requested, so that a result of any length begins at once and is never held as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from viewkeeper.cli.jsonlines import to_json_text
from viewkeeper.cli.output import print_text, styled, terminal_width, write_out
from viewkeeper.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from viewkeeper.cli.cells import Cells
    from viewkeeper.client.result import Result

_PAGE_ROWS = 1_000


class Form(StrEnum):
    """How rows are printed. TEXT is a table or, on a terminal too narrow for it, EXPANDED: a line for each value."""

    TEXT = "text"
    TABLE = "table"
    EXPANDED = "expanded"
    JSON = "json"
    CSV = "csv"


def form_of(*, json: bool, csv: bool) -> Form:
    """The form that the options select."""
    if json and csv:
        raise InputError("rows are printed as JSON or as CSV, not both", "leave one of them out")
    return Form.JSON if json else Form.CSV if csv else Form.TEXT


def print_result(result: Result, form: Form) -> None:
    """A statement's result."""
    is_text = form not in (Form.JSON, Form.CSV)
    if result.columns in (("plan",), ("statement",)) and is_text:
        print_text("\n".join(str(row[0]) for row in result.rows))
    elif result.columns and not isinstance(result.answer, tuple):
        print_tables(result.columns, _pieces(result.answer), form)
    elif result.columns:
        print_rows(result.columns, result.rows, form)
        if result.message and is_text:
            print_text(result.message)
    elif form is Form.JSON:
        write_out(to_json_text({"message": result.message}) + "\n")
    elif result.message:
        print_text(result.message, stderr=form is Form.CSV)  # a message is not a line of a CSV file


def print_tables(columns: Sequence[str], tables: Iterable[pa.Table], form: Form = Form.TEXT) -> None:
    """Rows given as Arrow tables."""
    from viewkeeper.cli.cells import cells_of_table, json_of_table

    if form is Form.JSON:
        for table in tables:
            write_out(json_of_table(table))
    else:
        _print_pages(columns, map(cells_of_table, tables), form)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], form: Form = Form.TEXT) -> None:
    """Rows of Python values."""
    from viewkeeper.cli.cells import cells_of_rows

    pages = _pages(rows)
    if form is Form.JSON:
        for page in pages:
            write_out("".join(f"{to_json_text(dict(zip(columns, row, strict=True)))}\n" for row in page))
    else:
        _print_pages(columns, map(cells_of_rows, pages), form)


def _print_pages(columns: Sequence[str], pages: Iterator[Sequence[Cells]], form: Form) -> None:
    if form is Form.CSV:
        _print_csv(columns, pages)
        return
    from viewkeeper.cli.table import Table

    first = next(pages, [])
    table = Table(columns, first)
    expanded = form is Form.EXPANDED or (form is Form.TEXT and table.width > terminal_width())
    if not expanded or not first:
        write_out(table.head())
    count = 0
    for page in itertools.chain([first] if first else [], pages):
        write_out(table.records(page, count + 1) if expanded else table.lines(page))
        count += len(page[0].texts)
    write_out(styled(f"({count:,} {'row' if count == 1 else 'rows'})", "dim") + "\n")


def _print_csv(columns: Sequence[str], pages: Iterator[Sequence[Cells]]) -> None:
    from viewkeeper.cli.cells import Cells, cells_of_rows, csv_of_cells

    head = [Cells(cells.texts, is_number=False) for cells in cells_of_rows([columns])]
    for page in itertools.chain([head], pages):
        write_out(csv_of_cells(page))


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, len(table), _PAGE_ROWS):
        yield table.slice(start, _PAGE_ROWS)


def _pages(rows: Iterable[Sequence[object]]) -> Iterator[list[Sequence[object]]]:
    iterator = iter(rows)
    while page := list(itertools.islice(iterator, _PAGE_ROWS)):
        yield page
