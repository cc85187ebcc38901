"""Views by DuckDB: a SELECT as a function of base rows.

In: the text of a SELECT, and the columns of its tables. Out: a function from rows of tables to rows of the view. Always:
computed from scratch by DuckDB, in its dialect; no part of ViewKeeper's SQL is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from viewkeeper.check.cuts import Base, Row, ViewFunction
from viewkeeper.errors import InputError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


def select_view(select: str, **tables: str) -> ViewFunction:
    """What a SELECT gives over base rows; a table is given by its columns: `r="k VARCHAR, y BIGINT"`."""
    import duckdb
    import pyarrow as pa

    from viewkeeper.codegen.confined import connect_confined

    connection = connect_confined({"threads": "1"})
    schemas = {name: _schema_of(connection, name, columns) for name, columns in tables.items()}

    def evaluate(base: Base) -> Iterable[Row]:
        for name, schema in schemas.items():
            connection.register(name, pa.Table.from_pylist([dict(row) for row in base[name]], schema))
        try:
            return connection.sql(select).to_arrow_table().to_pylist()
        except duckdb.Error as error:
            fact = str(error).splitlines()[0]
            raise InputError(
                f"DuckDB cannot compute the view: {fact}", "give the SELECT in DuckDB's dialect"
            ) from error

    return evaluate


def _schema_of(connection: duckdb.DuckDBPyConnection, name: str, columns: str) -> pa.Schema:
    connection.execute(f'CREATE TABLE "{name}" ({columns})')
    schema = connection.table(f'"{name}"').to_arrow_table().schema
    connection.execute(f'DROP TABLE "{name}"')
    return schema
