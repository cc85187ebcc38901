"""Cells: values as text, a whole column at a time.

In: Arrow arrays, or rows of Python values. Out: Arrow arrays of strings, in which NULL stays NULL. Always: a value's
text is what `put` takes for it; only types and characters without an Arrow kernel are handled in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.cli.jsonlines import to_json_text
from viewkeeper.cli.output import plain, plain_double, spell

_PLACES_MAX = 6  # Arrow writes smaller decimals as 1E-7
_TO_QUOTE = '[",\r\n]|^ | $|^$'


@dataclass(frozen=True, slots=True)
class Cells:
    """A column's texts; numbers are aligned right."""

    texts: pa.Array
    is_number: bool


def cells_of_table(table: pa.Table) -> list[Cells]:
    """The columns of an Arrow table."""
    return [_cells(column.combine_chunks()) for column in table.columns]


def cells_of_rows(rows: Sequence[Sequence[object]]) -> list[Cells]:
    """The columns of rows, whose values may be of any type."""
    return [Cells(_each(plain, column), all(map(_is_number, column))) for column in zip(*rows, strict=True)]


def spelled(texts: pa.Array) -> pa.Array:
    """The texts without characters that control a terminal or break a line."""
    return texts if is_simple(texts) else _each(spell, texts.to_pylist())


def is_simple(texts: pa.Array) -> bool:
    """Whether all characters are printable ASCII, so that each takes one column."""
    return pc.all(pc.ascii_is_printable(texts), min_count=0).as_py()


def width_of(texts: pa.Array) -> int:
    """How many columns of a terminal the longest text takes."""
    if is_simple(texts):
        return pc.max(pc.binary_length(texts)).as_py() or 0
    from rich.cells import cell_len

    return max((cell_len(text) for text in texts.to_pylist() if text is not None), default=0)


def padded(texts: pa.Array, width: int, *, right: bool) -> pa.Array:
    """The texts padded with blanks; longer ones stay as they are."""
    if is_simple(texts):
        return (pc.utf8_lpad if right else pc.utf8_rpad)(texts, width)
    from rich.cells import cell_len

    def pad(text: str) -> str:
        blanks = " " * (width - cell_len(text))
        return blanks + text if right else text + blanks

    return _each(pad, texts.to_pylist())


def csv_of_cells(page: Sequence[Cells]) -> str:
    """Lines of CSV: NULL is an empty field, the empty text two quotes."""
    return lines_of([_csv_fields(cells.texts) for cells in page], ",")


def json_of_table(table: pa.Table) -> str:
    """A JSON object for each row."""
    if not table.num_columns:
        return "{}\n" * len(table)
    parts: list[object] = []
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        parts += [f"{', ' if place else '{'}{to_json_text(name)}: ", _json_values(column)]
    return lines_of([*parts, "}"], "")


def lines_of(columns: Sequence[object], between: str) -> str:
    """A line for each row; each of `columns` is an array, or one text for all rows."""
    return "".join(f"{line}\n" for line in pc.binary_join_element_wise(*columns, between).to_pylist())


def _csv_fields(texts: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return pc.fill_null(pc.if_else(pc.match_substring_regex(texts, _TO_QUOTE), quoted, texts), "")


def _json_values(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    texts, kind = _texts(array), array.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return pc.fill_null(texts, "null")
    if pa.types.is_floating(kind) and not pc.any(pc.invert(pc.is_finite(array))).as_py():
        return pc.fill_null(texts, "null")
    if pa.types.is_timestamp(kind):
        texts = pc.replace_substring(texts, " ", "T")
    elif not _is_quoted(kind):
        return pa.array(map(to_json_text, array.to_pylist()), pa.string())
    if is_simple(texts) and not pc.any(pc.match_substring_regex(texts, r'["\\]')).as_py():
        return pc.fill_null(pc.binary_join_element_wise('"', texts, '"', ""), "null")
    return pa.array(map(to_json_text, texts.to_pylist()), pa.string())


def _is_quoted(kind: pa.DataType) -> bool:
    """Whether a type's values are strings in JSON, with the same text as elsewhere."""
    is_of = (pa.types.is_string, pa.types.is_binary, pa.types.is_decimal, pa.types.is_date)
    return any(check(kind) for check in is_of)


def _cells(array: pa.Array) -> Cells:
    kind = array.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return Cells(_texts(array), is_number)


def _texts(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if pa.types.is_timestamp(kind):
        naive = array.cast(pa.timestamp("us")).cast(pa.string())
        offset = "" if kind.tz is None else "+00:00"
        return pc.binary_join_element_wise(pc.replace_substring(naive, ".000000", ""), offset, "")
    is_exact = pa.types.is_decimal(kind) and kind.scale <= _PLACES_MAX
    if is_exact or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind):
        return array.cast(pa.string())
    return _each(plain_double if pa.types.is_floating(kind) else plain, array.to_pylist())


def _each(change: Callable[..., str], values: Sequence[object]) -> pa.Array:
    return pa.array([None if value is None else change(value) for value in values], pa.string())


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float | Decimal) and not isinstance(value, bool))
