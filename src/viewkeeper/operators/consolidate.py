"""Consolidation: one row for each key, with its sums.

In: Arrow tables of the same columns. Out: one table of them, in key order. Always: sums are exact. Inputs so small that
DuckDB would take longer to plan a GROUP BY than to run it are summed in Python, to the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keyorder import order_of_keys
from viewkeeper.operators.duck import FEW_ROWS, as_type, run_sql


def are_few(tables: Sequence[pa.Table]) -> bool:
    return sum(map(len, tables)) <= FEW_ROWS


def consolidate(
    tables: Sequence[pa.Table], by: Sequence[str], sums: Sequence[str], *, factor: str = "", keep_zeros: bool = False
) -> pa.Table:
    """For each value of the columns `by`, in their order, the sum of each of `sums`, times `factor` where one is named.

    A factor is 1 afterwards. Other columns are taken from one of the key's rows. Without `keep_zeros`, rows whose sums
    are all 0 are left out.
    """
    rows = pa.concat_tables(tables)
    add_up = _in_python if are_few(tables) else _in_duckdb
    if (
        keep_zeros
        and len(by) == 1
        and add_up is _in_duckdb
        and (not factor or pc.all(pc.equal(rows[factor], 1)).as_py())
    ):
        order, starts = order_of_keys(rows[by[0]].combine_chunks(), groups=np.zeros(len(rows), np.int64))
        if len(starts) == len(rows):  # nothing is to be added
            return rows.take(pa.array(order))
    added = add_up(rows, by, sums, factor, keep_zeros=keep_zeros)
    if factor:
        ones = pa.array(np.ones(len(added)), rows.schema.field(factor).type)
        added = added.set_column(rows.column_names.index(factor), factor, ones)
    return added


def _in_duckdb(rows: pa.Table, by: Sequence[str], sums: Sequence[str], factor: str, *, keep_zeros: bool) -> pa.Table:
    columns = {name: name if name in by else f"any_value({name})" for name in rows.column_names}
    for name in sums:
        kind = "BIGINT" if pa.types.is_integer(rows.schema.field(name).type) else "HUGEINT"
        times = f"CAST({factor} AS {kind}) * " if factor else ""
        columns[name] = f"CAST(sum({times}CAST({name} AS {kind})) AS {kind})"
    selected = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    having = "" if keep_zeros else f" HAVING {' OR '.join(f'{columns[name]} <> 0' for name in sums)}"
    keys = ", ".join(by)
    added = run_sql(f"SELECT {selected} FROM parts GROUP BY {keys}{having} ORDER BY {keys}", parts=rows)
    return pa.table([as_type(added[field.name], field.type) for field in rows.schema], schema=rows.schema)


def _in_python(rows: pa.Table, by: Sequence[str], sums: Sequence[str], factor: str, *, keep_zeros: bool) -> pa.Table:
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    factors = map(int, columns[factor]) if factor else [1] * len(rows)
    keys = list(zip(*(columns[name] for name in by), strict=True))
    first: dict[tuple, int] = {}
    totals: dict[str, dict[tuple, int]] = {name: {} for name in sums}
    for row, (key, times) in enumerate(zip(keys, factors, strict=True)):
        first.setdefault(key, row)
        for name, total in totals.items():
            total[key] = total.get(key, 0) + times * int(columns[name][row])
    chosen = [key for key in sorted(first) if keep_zeros or any(total[key] for total in totals.values())]
    places = [first[key] for key in chosen]
    for name in rows.column_names:
        values = columns[name]
        columns[name] = [totals[name][key] for key in chosen] if name in totals else [values[place] for place in places]
    return pa.table(columns, schema=rows.schema)
