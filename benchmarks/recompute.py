"""Recomputation: a view from the base rows by DuckDB, to judge what a system left behind.

In: a store's URL, a view's SQL and the records that a system holds. Out: nothing, or WrongResult. Always: the expected
records come from the base tables alone, and every record is compared; averages may differ in their last bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

import viewkeeper as vk


class WrongResult(Exception):
    """A measured system computed something else than the recomputation."""


def require_views(url: str, views: Sequence[str], system: str) -> None:
    """Raise unless every view of the store is what its SQL says of the base rows."""
    base = base_rows(url)
    with vk.connect(url) as db:
        found = [db.view(f"v{number}").to_arrow() for number in range(1, len(views) + 1)]
    for sql, records in zip(views, found, strict=True):
        require_equal(base, sql, records, system)


def require_equal(base: Mapping[str, pa.Table], sql: str, found: pa.Table, system: str) -> None:
    """Raise unless `found` is what `sql` says of `base`."""
    columns = ", ".join(_compared(field) for field in found.schema)
    sides = (f"SELECT {columns} FROM ({sql})", f"SELECT {columns} FROM found")
    with duckdb.connect() as connection:
        for table, rows in base.items():
            connection.register(table, rows)
        connection.register("found", found)
        differences = f"({sides[0]} EXCEPT ALL {sides[1]}) UNION ALL ({sides[1]} EXCEPT ALL {sides[0]})"
        wrong = connection.sql(f"SELECT count(*) FROM ({differences})").fetchall()[0][0]
    if wrong:
        raise WrongResult(f"{system}: {wrong} differences from the recomputation of {sql}")


def base_rows(url: str) -> dict[str, pa.Table]:
    """The rows of the workload's tables as they are now."""
    with vk.connect(url, read_only=True) as db:
        return {table.name: db.table(table.name).to_arrow() for table in db.catalog().tables}


def _compared(field: pa.Field) -> str:
    if pa.types.is_floating(field.type):
        return f"round({field.name}, 6) AS {field.name}"
    if pa.types.is_integer(field.type) or pa.types.is_decimal(field.type):
        return f"CAST({field.name} AS BIGINT) AS {field.name}"
    return field.name
