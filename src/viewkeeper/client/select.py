"""SELECT: ad hoc queries over tables and views, run by DuckDB.

In: a parsed SELECT. Out: a `Result`. Always: all views of a query are read at one committed epoch, all tables as they are;
DuckDB sees nothing but these Arrow tables, and its SQL is DuckDB's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from viewkeeper.client.interrupting import interruptibly
from viewkeeper.client.result import Result
from viewkeeper.errors import SqlError, UnknownName
from viewkeeper.sql.syntax import Select

if TYPE_CHECKING:
    import pyarrow as pa

    from viewkeeper.client.database import Database


def select(database: Database, statement: Select) -> Result:
    """The answer of a SELECT."""
    relations: dict[str, pa.Table] = {}
    with database.snapshot() as snapshot:
        catalog = snapshot.catalog
        for name in statement.tables:
            if not catalog.has(name):
                raise UnknownName(f"there is no table or view {name}", "SHOW TABLES and SHOW VIEWS list what there is")
            is_table = any(table.name.lower() == name.lower() for table in catalog.tables)
            relations[name] = database.table(name).to_arrow() if is_table else snapshot.view(name).to_arrow()
    with duckdb.connect() as connection:
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        for name, relation in relations.items():
            connection.register(name, relation)
        try:
            return interruptibly(lambda: _answer(connection, statement.text), connection.interrupt)
        except duckdb.Error as error:
            raise SqlError(str(error).splitlines()[0], "SELECT is run by DuckDB and follows its SQL") from None


def _answer(connection: duckdb.DuckDBPyConnection, text: str) -> Result:
    answer = connection.execute(text)
    columns = tuple(item[0] for item in answer.description or ())
    return Result(columns, tuple(answer.fetchall()))
