"""Map options: what CREATE TABLE … USING hbase OPTIONS (…) means.

In: a table's columns, the options, and how HBase describes its table. Out: where each column is. Always: pure; whatever does
not fit is refused with a way out, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from viewkeeper.errors import DuplicateName, InputError, UnknownName, UnsupportedSql
from viewkeeper.model.encodings import require_encoding
from viewkeeper.model.nearest import suggestion
from viewkeeper.model.schema import Cell, Column, Foreign, TableSchema
from viewkeeper.model.types import Encoding

_OF_TABLE, _OF_COLUMN = ("table", "family", "encoding"), ("cell", "encoding")
_ENCODINGS = ("text", "bytes")
_HINT = "write USING hbase OPTIONS (table 'namespace:name')"


def named_table(schema: TableSchema, using: str | None, options: Mapping[str, str]) -> str:
    """The HBase table that the options name, as HBase's log names it; checks all that needs no HBase."""
    if using is None:
        raise UnsupportedSql(f"table {schema.name} has no table in HBase", f"{_HINT} after the columns")
    if using != "hbase":
        raise UnsupportedSql(f"USING {using} is not for a store in HBase", _HINT)
    _check_names(schema, options)
    if len(schema.key) > 1:
        raise UnsupportedSql(
            f"the key of {schema.name} has {len(schema.key)} columns, and a row key in HBase is one",
            "make it one column, STRING or BINARY, that holds the whole row key",
        )
    if not schema.value_columns:
        raise UnsupportedSql(f"table {schema.name} has no column but its key", "name a column: a row is its cells")
    name = _lowered(options).get("table", "")
    if not name:
        raise InputError("OPTIONS names no table of HBase", _HINT)
    namespace, _, own = name.rpartition(":")
    return own if namespace in ("", "default") else name


def foreign_of_options(schema: TableSchema, table: str, options: Mapping[str, str], families: Sequence[str]) -> Foreign:
    """Where the columns are, in an HBase table with these families."""
    given = _lowered(options)
    cells = tuple(
        _cell(column, table, given.get("family"), given.get(f"{column.name.lower()}.cell"), families, given)
        for column in schema.value_columns
    )
    places: dict[tuple[str, str], Column] = {}
    for column, cell in zip(schema.value_columns, cells, strict=True):
        other = places.setdefault((cell.family, cell.qualifier), column)
        if other is not column:
            raise DuplicateName(
                f"columns {other.name} and {column.name} are both in the cell {cell.family}:{cell.qualifier}",
                f"give one of them another cell: {column.name}.cell 'family:qualifier'",
            )
    return Foreign(table, cells, _encoding(schema.key_columns[0], given))


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _check_names(schema: TableSchema, options: Mapping[str, str]) -> None:
    for name in options:
        column, _, option = name.rpartition(".")
        known = _OF_COLUMN if column else _OF_TABLE
        if column and schema.column(column).name in schema.key and option.lower() == "cell":
            raise InputError(f"{name}: the key is the row key of HBase, and in no cell", "leave it out")
        if option.lower() not in known:
            hint = suggestion(option, known, f"a {'column' if column else 'table'} has")
            raise InputError(f"there is no option {name}", hint)


def _cell(
    column: Column,
    table: str,
    family: str | None,
    place: str | None,
    families: Sequence[str],
    given: Mapping[str, str],
) -> Cell:
    """Where a column is: as its own option says, else under its own name in the family of all."""
    listed = f"table {table} has the families {', '.join(families)}"
    if place is not None:
        family, colon, qualifier = place.partition(":")
        if not colon or not family or not qualifier:
            raise InputError(f"{column.name}.cell is {place!r}", "write 'family:qualifier'")
    else:
        qualifier = column.name
        if family is None and len(families) > 1:
            raise InputError(
                f"{listed}, and nothing says which has column {column.name}",
                f"add family '…', or {column.name}.cell 'family:qualifier'",
            )
        family = family or families[0]
    if family not in families:
        raise UnknownName(f"table {table} has no family {family}", listed)
    return Cell(family, qualifier, _encoding(column, given))


def _encoding(column: Column, given: Mapping[str, str]) -> Encoding:
    own = f"{column.name.lower()}.encoding"
    found = given.get(own, given.get("encoding", "text"))
    if found not in _ENCODINGS:
        raise InputError(f"there is no encoding {found!r}", "use 'text' or 'bytes'")
    encoding = cast(Literal["text", "bytes"], found)
    try:
        require_encoding(column.type, encoding)
    except InputError as error:
        raise InputError(f"column {column.name}: {error.fact}", f"add {column.name}.encoding 'text'") from None
    return encoding
