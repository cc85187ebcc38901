"""Render: rows on stdout, as they arrive, in the chosen form.

In: column names, and Arrow tables or rows of Python values. Out: a table for people, JSON lines or CSV. Always: a page is
written before the next one is requested, so an answer of any length begins at once and is never held as a whole; a value's
text is what `put` takes for it. Work is done for a whole column at a time: only types and characters without an Arrow
kernel are handled in Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from viewkeeper.cli.formats import escape, plain, plain_double, speaks_unicode, to_json_text
from viewkeeper.cli.options import Form
from viewkeeper.cli.terminal import print_text, styled, terminal_width, write_out
from viewkeeper.model.wording import counted

if TYPE_CHECKING:
    from viewkeeper.client.result import Result

_PAGE_ROWS = 1_000
_PLACES_MAX = 6  # Arrow writes smaller decimals as 1E-7
_TO_QUOTE = '[",\r\n]|^ | $|^$'
_GAP = "  "
_NULL = "NULL"


def print_result(result: Result, form: Form) -> None:
    is_text = form not in (Form.JSON, Form.CSV)
    if result.columns in (("plan",), ("statement",)) and is_text:
        print_text("\n".join(str(row[0]) for row in result.rows))
    elif result.columns and not isinstance(result.answer, tuple):
        answer = result.answer
        pages = (answer.slice(start, _PAGE_ROWS) for start in range(0, len(answer), _PAGE_ROWS))
        print_tables(result.columns, pages, form)
    elif result.columns:
        print_rows(result.columns, result.rows, form)
        if result.message and is_text:
            print_text(result.message)
    elif form is Form.JSON:
        write_out(to_json_text({"message": result.message}) + "\n")
    elif result.message:
        print_text(result.message, stderr=form is Form.CSV)  # a message is not a line of a CSV file


def print_tables(columns: Sequence[str], tables: Iterable[pa.Table], form: Form = Form.TEXT) -> None:
    if form is Form.JSON:
        for table in tables:
            write_out(_json_lines(table))
    else:
        _print_pages(columns, map(_columns_of_table, tables), form)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], form: Form = Form.TEXT) -> None:
    iterator = iter(rows)
    pages = iter(lambda: list(itertools.islice(iterator, _PAGE_ROWS)), [])
    if form is Form.JSON:
        for page in pages:
            write_out("".join(f"{to_json_text(dict(zip(columns, row, strict=True)))}\n" for row in page))
    else:
        _print_pages(columns, map(_columns_of_rows, pages), form)


@dataclass(frozen=True, slots=True)
class Texts:
    """A column as strings, in which NULL stays NULL; numbers are aligned right."""

    texts: pa.Array
    is_number: bool


Page = Sequence[Texts]


def _print_pages(columns: Sequence[str], pages: Iterator[Page], form: Form) -> None:
    if form is Form.CSV:
        for page in itertools.chain([[Texts(pa.array([name]), is_number=False) for name in columns]], pages):
            write_out(_lines([_csv_fields(column.texts) for column in page], ","))
        return
    first = next(pages, [])
    table = Table(columns, first)
    is_expanded = form is Form.EXPANDED or (form is Form.TEXT and table.width > terminal_width())
    if not is_expanded or not first:
        write_out(table.head())
    count = 0
    for page in itertools.chain([first] if first else [], pages):
        write_out(table.expanded(page, count + 1) if is_expanded else table.lines(page))
        count += len(page[0].texts)
    write_out(styled(f"({counted(count, 'row')})", "dim") + "\n")


class Table:
    """The layout of rows: columns are as wide as the first page needs, and nothing waits for a later one.

    A longer value further down shifts the rest of its line; no value breaks a line or controls the terminal.
    """

    def __init__(self, names: Sequence[str], first: Page) -> None:
        self._names = [pa.array([escape(name)], pa.string()) for name in names]
        self._rights = [column.is_number for column in first] or [False] * len(names)
        needed = [_width(_escaped(column.texts.fill_null(_NULL))) for column in first] or [0] * len(names)
        own = [_width(name) for name in self._names]
        self._widths = [max(pair) for pair in zip(own, needed, strict=True)]
        self._names_width = max(own, default=0)
        self._rule = "─" if speaks_unicode() else "-"
        self.width = sum(self._widths) + len(_GAP) * (len(names) - 1)

    def head(self) -> str:
        names = [Texts(name, right) for name, right in zip(self._names, self._rights, strict=True)]
        return f"{styled(self.lines(names).rstrip(), 'bold')}\n{self._rule * self.width}\n"

    def lines(self, page: Page) -> str:
        columns = []
        for index, (column, width, right) in enumerate(zip(page, self._widths, self._rights, strict=True)):
            is_last = index == len(page) - 1
            columns.append(_filled(column.texts, 0 if is_last and not right else width, right=right))
        return _lines(columns, _GAP)

    def expanded(self, page: Page, first: int) -> str:
        """A line for each value, under the number of its row, counted from `first`."""
        numbers = pa.array(range(first, first + len(page[0].texts))).cast(pa.string())
        columns = [pc.binary_join_element_wise(f"{self._rule} ", numbers, f" {self._rule * 30}", "")]
        for name, column in zip(self._names, page, strict=True):
            label = _padded(name, self._names_width, right=False)[0].as_py()
            columns.append(pc.binary_join_element_wise(label, _filled(column.texts, 0, right=False), _GAP))
        return _lines(columns, "\n")


def _columns_of_table(table: pa.Table) -> Page:
    numeric = (types.is_integer, types.is_floating, types.is_decimal)
    columns = (column.combine_chunks() for column in table.columns)
    return [Texts(_texts(column), any(is_of(column.type) for is_of in numeric)) for column in columns]


def _columns_of_rows(rows: Sequence[Sequence[object]]) -> Page:
    return [Texts(_each(plain, column), all(map(_is_number, column))) for column in zip(*rows, strict=True)]


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))


def _texts(array: pa.Array) -> pa.Array:
    kind = array.type
    if types.is_string(kind):
        return array
    if types.is_timestamp(kind):
        naive = array.cast(pa.timestamp("us")).cast(pa.string())
        offset = "" if kind.tz is None else "+00:00"
        return pc.binary_join_element_wise(pc.replace_substring(naive, ".000000", ""), offset, "")
    is_exact = types.is_decimal(kind) and kind.scale <= _PLACES_MAX
    if is_exact or types.is_boolean(kind) or types.is_integer(kind) or types.is_date32(kind):
        return array.cast(pa.string())
    return _each(plain_double if types.is_floating(kind) else plain, array.to_pylist())


def _filled(texts: pa.Array, width: int, *, right: bool) -> pa.Array:
    null = _NULL.rjust(width) if right else _NULL.ljust(width)
    return pc.fill_null(_padded(_escaped(texts), width, right=right), styled(null, "dim"))


def _escaped(texts: pa.Array) -> pa.Array:
    return texts if _is_ascii(texts) else _each(escape, texts.to_pylist())


def _is_ascii(texts: pa.Array) -> bool:
    """Whether all characters are printable ASCII, so that each takes one column."""
    return pc.all(pc.ascii_is_printable(texts), min_count=0).as_py()


def _width(texts: pa.Array) -> int:
    """How many columns of a terminal the longest text takes."""
    if _is_ascii(texts):
        return pc.max(pc.binary_length(texts)).as_py() or 0
    from rich.cells import cell_len

    return max((cell_len(text) for text in texts.to_pylist() if text is not None), default=0)


def _padded(texts: pa.Array, width: int, *, right: bool) -> pa.Array:
    """The texts padded with blanks; longer ones stay as they are."""
    if _is_ascii(texts):
        return (pc.utf8_lpad if right else pc.utf8_rpad)(texts, width)
    from rich.cells import cell_len

    def pad(text: str) -> str:
        blanks = " " * (width - cell_len(text))
        return blanks + text if right else text + blanks

    return _each(pad, texts.to_pylist())


def _csv_fields(texts: pa.Array) -> pa.Array:
    """NULL is an empty field, the empty text two quotes; pyarrow.csv would quote every text."""
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return pc.fill_null(pc.if_else(pc.match_substring_regex(texts, _TO_QUOTE), quoted, texts), "")


def _json_lines(table: pa.Table) -> str:
    if not table.num_columns:
        return "{}\n" * len(table)
    parts: list[object] = []
    for index, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        parts += [f"{', ' if index else '{'}{to_json_text(name)}: ", _json_values(column.combine_chunks())]
    return _lines([*parts, "}"], "")


def _json_values(array: pa.Array) -> pa.Array:
    texts, kind = _texts(array), array.type
    is_finite = types.is_floating(kind) and not pc.any(pc.invert(pc.is_finite(array))).as_py()
    if is_finite or types.is_boolean(kind) or types.is_integer(kind):
        return pc.fill_null(texts, "null")
    if types.is_timestamp(kind):
        texts = pc.replace_substring(texts, " ", "T")
    elif not any(is_of(kind) for is_of in (types.is_string, types.is_binary, types.is_decimal, types.is_date)):
        return pa.array(map(to_json_text, array.to_pylist()), pa.string())
    if _is_ascii(texts) and not pc.any(pc.match_substring_regex(texts, r'["\\]')).as_py():
        return pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), "null")
    return pa.array(map(to_json_text, texts.to_pylist()), pa.string())


def _lines(columns: Sequence[object], between: str) -> str:
    """A line for each row; each of `columns` is an array, or one text for all rows."""
    return "".join(f"{line}\n" for line in pc.binary_join_element_wise(*columns, between).to_pylist())


def _each(change: Callable[[Any], str], values: Sequence[object]) -> pa.Array:
    return pa.array([None if value is None else change(value) for value in values], pa.string())
