"""Comparing: recomputed records against stored ones.

In: two Arrow tables with the same key and value columns. Out: findings. Always: NULL equals NULL, NaN equals NaN, −0.0
equals 0.0, sums and averages in DOUBLE agree within their bound, and all else is equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from viewkeeper.check.report import Finding

FINDINGS_MAX = 10_000


def compare(
    view: str,
    keys: Sequence[str],
    values: Sequence[str],
    bounds: Sequence[str],
    expected: pa.Table,
    found: pa.Table,
) -> list[Finding]:
    """What differs; both tables have the columns `keys` and `values`, the key being unique in each.

    The column of `bounds` beside an expected value says how far the found one may be from it; without end where the
    sum of magnitudes itself has left the range of DOUBLE.
    """
    sides = [_numbered(expected, keys, values, bounds), _numbered(found, keys, values, ())]
    names = [f"k{i}" for i in range(len(keys))]
    joined = " AND ".join(f"e.{name} IS NOT DISTINCT FROM f.{name}" for name in names) or "true"
    differs = " OR ".join(_differs(expected[name].type, i) for i, name in enumerate(values)) or "false"
    sql = f"""SELECT e.row_number AS e, f.row_number AS f FROM expected e FULL OUTER JOIN found f ON {joined}
              WHERE e.row_number IS NULL OR f.row_number IS NULL OR {differs}
              ORDER BY coalesce(e.row_number, f.row_number) LIMIT {FINDINGS_MAX}"""
    with duckdb.connect() as connection:
        connection.register("expected", sides[0])
        connection.register("found", sides[1])
        pairs = connection.execute(sql).fetchall()
    return [_finding(view, keys, values, expected, found, left, right) for left, right in pairs]


def _differs(kind: pa.DataType, i: int) -> str:
    differs = f"e.v{i} IS DISTINCT FROM f.v{i}"
    if not pa.types.is_floating(kind):
        return differs
    near = f"coalesce(abs(e.v{i} - f.v{i}) <= e.b{i}, FALSE)"
    boundless = f"(e.v{i} IS NOT NULL AND f.v{i} IS NOT NULL AND (isnan(e.b{i}) OR isinf(e.b{i})))"
    return f"({differs} AND NOT {near} AND NOT {boundless})"


def _numbered(table: pa.Table, keys: Sequence[str], values: Sequence[str], bounds: Sequence[str]) -> pa.Table:
    columns = {f"k{i}": table[name] for i, name in enumerate(keys)}
    columns |= {f"v{i}": table[name] for i, name in enumerate(values)}
    columns |= {f"b{i}": table[name] for i, name in enumerate(bounds)}
    return pa.table(columns | {"row_number": pa.array(range(len(table)), pa.int64())})


def _finding(
    view: str,
    keys: Sequence[str],
    values: Sequence[str],
    expected: pa.Table,
    found: pa.Table,
    left: int | None,
    right: int | None,
) -> Finding:
    sides = [
        None if at is None else table.slice(at, 1).to_pylist()[0] for table, at in ((expected, left), (found, right))
    ]
    kind = "missing" if right is None else "extra" if left is None else "wrong"
    known = sides[0] or sides[1] or {}
    shown = [None if side is None else {name: side[name] for name in values} for side in sides]
    return Finding(view, tuple(known[name] for name in keys), kind, shown[0], shown[1])
