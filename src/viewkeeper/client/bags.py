"""Bags: a view of any shape against its recomputation, row by row without a key.

In: what a view shows, and what Spark makes of its text. Out: both as tables that can be compared. Always: rows that show the
same are told apart by a number, so a row too many or too few is found; a DOUBLE may be off by a billionth, for Spark adds
doubles up in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

_NEAR = "1e-9"


def keyed(table: pa.Table, values: Sequence[str]) -> tuple[pa.Table, list[str], list[str]]:
    """The table with a key made of all that is no DOUBLE and a number; with the names of the key and of the bounds."""
    exact = [name for name in values if not pa.types.is_floating(table[name].type)]
    others = [name for name in values if name not in exact]
    keys = [f"__key_{i}" for i in range(len(exact) + 1)]
    bounds = [f"__bound_{i}" for i in range(len(values))]
    columns = [f'"{name}" AS "{key}"' for name, key in zip(exact, keys, strict=False)]
    window = f"PARTITION BY {_listed(exact) or 'true'}" + (f" ORDER BY {_listed(others)}" if others else "")
    columns.append(f'row_number() OVER ({window}) AS "{keys[-1]}"')
    columns += [f'"{name}"' for name in values]
    for name, bound in zip(values, bounds, strict=True):
        near = _near(name) if name in others else "CAST(0 AS DOUBLE)"
        columns.append(f'{near} AS "{bound}"')
    with duckdb.connect() as connection:
        connection.register("given", table)
        return connection.sql(f"SELECT {', '.join(columns)} FROM given").to_arrow_table(), keys, bounds


def _near(name: str) -> str:
    """How far a value may be off: what has no end or is no number is equal or is not."""
    return f'CASE WHEN isfinite("{name}") THEN abs("{name}") * {_NEAR} + 1e-300 ELSE 0 END'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
