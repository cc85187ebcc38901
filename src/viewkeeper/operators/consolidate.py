"""Consolidation: one row for each key, with its sums.

In: Arrow tables of the same columns. Out: one table of them, in key order. Always: sums are exact. Inputs so small that
DuckDB would take longer to plan a GROUP BY than to run it are summed in Python, and numbers of up to 64 bits in numpy, to the
same result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.model.keyorder import order_of_keys
from viewkeeper.operators.duck import FEW_ROWS, as_type, run_sql
from viewkeeper.operators.wide_numbers import WIDE, narrow, widened


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
    added = (_in_python if are_few(tables) else _in_numpy)(rows, by, sums, factor, keep_zeros=keep_zeros)
    if added is None:
        added = _in_duckdb(rows, by, sums, factor, keep_zeros=keep_zeros)
    if factor:
        ones = pa.array(np.ones(len(added)), rows.schema.field(factor).type)
        added = added.set_column(rows.column_names.index(factor), factor, ones)
    return added


def _in_numpy(
    rows: pa.Table, by: Sequence[str], sums: Sequence[str], factor: str, *, keep_zeros: bool
) -> pa.Table | None:
    """By a key alone, with factors 1 and -1; None where that is not so, or a sum could have more than 64 bits."""
    times = np.asarray(rows[factor]).astype(np.int64) if factor else np.ones(1, np.int64)
    if list(by) != ["key"] or (abs(times) != 1).any():
        return None
    order, starts = order_of_keys(rows["key"].combine_chunks(), groups=np.zeros(len(rows), np.int64))
    added = rows.take(pa.array(order[starts]))
    if keep_zeros and len(starts) == len(rows) and (times == 1).all():
        return added  # nothing is to be added up
    is_kept = np.full(len(starts), keep_zeros)
    for name in sums:
        column = rows[name].combine_chunks()
        numbers = narrow(column) if column.type == WIDE else np.asarray(column.fill_null(0))
        if numbers is None or max(int(numbers.max()), -int(numbers.min())) * len(rows) >= 1 << 63:
            return None
        totals = np.add.reduceat((numbers * times)[order], starts)
        is_kept |= totals != 0
        total = widened(totals) if column.type == WIDE else pa.array(totals, column.type)
        added = added.set_column(rows.column_names.index(name), name, total)
    return added.filter(pa.array(is_kept))


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
