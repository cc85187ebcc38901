"""Repeated keys: rows of files that would be one row of a table.

In: files and their table. Out: an error that names two of the lines. Always: keys are compared as the table compares
them, by value and not by text; all rows of all files count; DuckDB keeps the keys, on disk where they are many.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from viewkeeper.errors import BadRow
from viewkeeper.load.files import SourceFile, match_columns, rows_of
from viewkeeper.model.schema import TableSchema

_ROW_BITS = 40  # a row's number among those of all files: the file's number, then the row's


def require_unique(connection: duckdb.DuckDBPyConnection, files: Sequence[SourceFile], schema: TableSchema) -> None:
    """Raise where two rows of the files have the same key."""
    names = ", ".join(f"k{i}" for i in range(len(schema.key)))
    paths = [str(file.text.path) for file in files]
    rows = " UNION ALL ".join(_keys(file, number, schema) for number, file in enumerate(files))
    counted = f"SELECT count(*) AS n FROM ({rows}) GROUP BY {names}"
    ((keys, total),) = rows_of(connection.sql(f"SELECT count(*), sum(n)::BIGINT FROM ({counted})", params=paths))
    if not keys or keys == total:
        return
    groups = f"SELECT min(place, 2) AS places, {names} FROM ({rows}) GROUP BY {names} HAVING count(*) > 1"
    first = f"SELECT * FROM ({groups}) ORDER BY places[2] LIMIT 1"
    (((one, other), *key),) = rows_of(connection.sql(first, params=paths))
    shown = ", ".join(f"{name}={value}" for name, value in zip(schema.key, key, strict=True))
    fact = f"{total - keys:,} of {total:,} rows have the key of a row before them: {_where(files, one)} and"
    hint = "name more columns as the key; last_wins=True keeps the last row of each key"
    raise BadRow(f"{fact} {_where(files, other)} are both {shown}", f"nothing was written: {hint}")


def _keys(file: SourceFile, number: int, schema: TableSchema) -> str:
    places = match_columns(file, schema, ignore_unknown=True)
    keys = [f"{file.value(schema.column(name), places[name])} AS k{i}" for i, name in enumerate(schema.key)]
    return f"SELECT {number << _ROW_BITS} + row_number() OVER () - 1 AS place, {', '.join(keys)} FROM {file.relation}"


def _where(files: Sequence[SourceFile], place: int) -> str:
    file, record = files[place >> _ROW_BITS], place & ((1 << _ROW_BITS) - 1)
    return f"{file.label}, {file.place_of(record)}"
