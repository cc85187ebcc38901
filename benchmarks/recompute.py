"""Recomputation: a view from the base rows by DuckDB, to judge what a system left behind.

In: a store's URL, a view's SQL and the records that a system holds. Out: nothing, or WrongResult. Always: the expected
records come from the base table alone, and every record is compared; averages may differ in their last bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

import viewkeeper as vk


class WrongResult(Exception):
    """A measured system computed something else than the recomputation."""


def require_views(url: str, views: Sequence[str], system: str) -> None:
    """Raise unless every view of the store is what its SQL says of the base rows."""
    with vk.connect(url) as db:
        base = db.table("r").to_arrow()
        found = [db.view(f"v{number}").to_arrow() for number in range(1, len(views) + 1)]
    for sql, records in zip(views, found, strict=True):
        require_equal(base, sql, records, system)


def require_equal(base: pa.Table, sql: str, found: pa.Table, system: str) -> None:
    """Raise unless `found` is what `sql` says of `base`."""
    columns = ", ".join(_compared(field) for field in found.schema)
    sides = (f"SELECT {columns} FROM ({sql})", f"SELECT {columns} FROM found")
    with duckdb.connect() as connection:
        connection.register("r", base)
        connection.register("found", found)
        differences = f"({sides[0]} EXCEPT ALL {sides[1]}) UNION ALL ({sides[1]} EXCEPT ALL {sides[0]})"
        wrong = connection.sql(f"SELECT count(*) FROM ({differences})").fetchall()[0][0]
    if wrong:
        raise WrongResult(f"{system}: {wrong} differences from the recomputation of {sql}")


def base_rows(url: str) -> pa.Table:
    """The rows of the workload's table as they are now."""
    with vk.connect(url, read_only=True) as db:
        return db.table("r").to_arrow()


def _compared(field: pa.Field) -> str:
    if pa.types.is_floating(field.type):
        return f"round({field.name}, 6) AS {field.name}"
    return f"CAST({field.name} AS BIGINT) AS {field.name}"
