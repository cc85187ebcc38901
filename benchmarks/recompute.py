"""Recomputation: V1 from the base rows by DuckDB, to judge what a system left behind.

In: a store and the records that a system holds. Out: nothing, or WrongResult. Always: the expected records come from
the base table alone, and every record is compared.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa

import viewkeeper as vk

_DIFFERENCE = """
    WITH expected AS (SELECT x, count(*) AS n, CAST(sum(y) AS BIGINT) AS s FROM base GROUP BY x)
    SELECT count(*) FROM expected FULL JOIN found ON expected.x = found.x
    WHERE expected.n IS DISTINCT FROM found.n OR expected.s IS DISTINCT FROM CAST(found.s AS BIGINT)
"""


class WrongResult(Exception):
    """A measured system computed something else than the recomputation."""


def require_equal(path: Path, found: pa.Table, system: str) -> None:
    """Raise unless `found` (x, n, s) is V1 over the base rows of the store at `path`."""
    with vk.connect(f"embedded:{path}", read_only=True) as db:
        base = db.table("r").to_arrow()
    with duckdb.connect() as connection:
        connection.register("base", base)
        connection.register("found", found)
        wrong = connection.sql(_DIFFERENCE).fetchall()[0][0]
    if wrong:
        raise WrongResult(f"{system}: {wrong} of {len(found)} records differ from the recomputation")
