"""Few rows: sums by key in Python, for inputs so small that DuckDB would take longer to plan a GROUP BY than to run it.

In: a small Arrow table. Out: one row for each key, in key order, of the same types. Always: what DuckDB would return;
sums are exact, because Python's integers are.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

FEW_ROWS = 64  # DuckDB plans and runs a GROUP BY in the time in which Python adds up some hundred rows


def are_few(tables: Sequence[pa.Table]) -> bool:
    return sum(map(len, tables)) <= FEW_ROWS


def add_up(
    parts: pa.Table, by: Sequence[str], sums: Sequence[str], *, factor: str | None = None, keep_zeros: bool
) -> pa.Table:
    """For each value of the columns `by`, in their order, the sum of each of `sums`, times `factor` where one is named.

    Other columns are taken from the key's first row. Without `keep_zeros`, rows whose sums are all 0 are left out.
    """
    columns = {name: parts[name].to_pylist() for name in parts.column_names}
    factors = [int(value) for value in columns[factor]] if factor else [1] * len(parts)
    first: dict[tuple, int] = {}
    totals: list[dict[tuple, int]] = [{} for _ in sums]
    keys = list(zip(*(columns[name] for name in by), strict=True))
    for row, key in enumerate(keys):
        first.setdefault(key, row)
        for total, name in zip(totals, sums, strict=True):
            total[key] = total.get(key, 0) + factors[row] * int(columns[name][row])
    chosen = [key for key in sorted(first) if keep_zeros or any(total[key] for total in totals)]
    added = parts.take(pa.array([first[key] for key in chosen], pa.int64()))
    for total, name in zip(totals, sums, strict=True):
        values = pa.array([total[key] for key in chosen], parts.schema.field(name).type)
        added = added.set_column(added.column_names.index(name), name, values)
    return added
