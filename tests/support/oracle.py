"""The oracle: what each view must hold, computed from scratch by DuckDB from SQL written here by hand.

In: the rows of the model. Out: rows of each view, as a bag. Always: nothing of the product's SQL, planner or codecs is
used; averages and rounding are done in Python on exact sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import duckdb
import pyarrow as pa

from tests.support.histories import VALUE_COLUMNS, Model, Shape

_ARROW = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DECIMAL(12,2)": pa.decimal128(12, 2),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
}
_LONG = 2**63

Row = tuple[object, ...]


def keep(row: Row) -> Row:
    return row


@dataclass(frozen=True, slots=True)
class ViewCase:
    """A view to be tested: its kind as the brief names it, its definition, and the oracle's query."""

    name: str
    kind: str
    definition: str  # {t} is the table, {k} its key columns
    query: str
    finish: Callable[[Row], Row] = keep


def fits(total: int | None) -> int | None:
    """SUM(BIGINT) that does not fit reads NULL."""
    return total if total is None or -_LONG <= total < _LONG else None


def average(total: int | None, count: int) -> float | None:
    """AVG of integers: the double nearest the exact sum, over the count."""
    return float(total) / count if count and total is not None else None


def decimal_average(total: Decimal | None, count: int) -> Decimal | None:
    """AVG(DECIMAL(12,2)) is DECIMAL(16,6), rounded half up."""
    if not count or total is None:
        return None
    return (Decimal(total) / count).quantize(Decimal("0.000001"), ROUND_HALF_UP)


def exact_sum(values: list[float] | None) -> float | None:
    """SUM(DOUBLE): the double nearest to the exact sum, whatever the order."""
    if not values:
        return None
    special = {value for value in values if not math.isfinite(value)}
    if special:
        return special.pop() if len(special) == 1 else math.nan
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def exact_average(values: list[float] | None) -> float | None:
    return None if not values else exact_sum(values) / len(values)


CASES = (
    ViewCase(
        "selected",
        "SELECTION",
        "CREATE MATERIALIZED VIEW {v} AS SELECT {k}, x, y, d FROM {t} WHERE y < 25 AND x IS NOT NULL",
        "SELECT {k}, x, y, d FROM t WHERE y < 25 AND x IS NOT NULL",
    ),
    ViewCase(
        "projected",
        "PROJECTION",
        "CREATE MATERIALIZED VIEW {v} AS SELECT y + 1 AS more, x, {k}, f, day, b, z FROM {t}",
        # a row whose y + 1 overflows is set aside
        "SELECT CAST(CAST(y AS HUGEINT) + 1 AS BIGINT), x, {k}, f, day, b, z FROM t "
        "WHERE y IS NULL OR y < 9223372036854775807",
    ),
    ViewCase(
        "bag",
        "PROJECTION",
        "CREATE MATERIALIZED VIEW {v} AS SELECT x, b FROM {t}",
        "SELECT x, b FROM t",
    ),
    ViewCase(
        "indexed",
        "INDEX",
        "CREATE INDEX {v} ON {t} (x, b) INCLUDE (y, d)",
        "SELECT x, b, {k}, y, d FROM t",
    ),
    ViewCase(
        "counted",
        "COUNT",
        "CREATE MATERIALIZED VIEW {v} AS SELECT x, COUNT(*) AS n, COUNT(y) AS ny, COUNT(z) AS nz FROM {t} GROUP BY x",
        "SELECT x, count(*), count(y), count(z) FROM t GROUP BY x",
    ),
    ViewCase(
        "summed",
        "SUM",
        "CREATE MATERIALIZED VIEW {v} AS SELECT SUM(y) AS s, x, b, SUM(i) AS si FROM {t} WHERE i IS NOT NULL "
        "GROUP BY x, b",
        "SELECT sum(CAST(y AS HUGEINT)), x, b, sum(CAST(i AS HUGEINT)) FROM t WHERE i IS NOT NULL GROUP BY x, b",
        lambda row: (fits(row[0]), *row[1:]),
    ),
    ViewCase(
        "averaged",
        "AVG",
        "CREATE MATERIALIZED VIEW {v} AS SELECT i, AVG(y) AS a, COUNT(*) AS n FROM {t} GROUP BY i",
        "SELECT i, sum(CAST(y AS HUGEINT)), count(y), count(*) FROM t GROUP BY i",
        lambda row: (row[0], average(row[1], row[2]), row[3]),
    ),
    ViewCase(
        "by_expression",
        "GROUP BY expression",
        "CREATE MATERIALIZED VIEW {v} AS SELECT CASE WHEN y < 0 THEN 'below' WHEN y >= 0 THEN 'above' END AS side, "
        "COUNT(*) AS n, SUM(i) AS s FROM {t} GROUP BY CASE WHEN y < 0 THEN 'below' WHEN y >= 0 THEN 'above' END",
        "SELECT if(y IS NULL, NULL, if(y < 0, 'below', 'above')) AS side, count(*), sum(CAST(i AS HUGEINT)) "
        "FROM t GROUP BY side",
    ),
    ViewCase(
        "by_double",
        "COUNT",
        "CREATE MATERIALIZED VIEW {v} AS SELECT f, COUNT(*) AS n FROM {t} GROUP BY f",
        "SELECT CASE WHEN f = 0 THEN 0.0 ELSE f END AS g, count(*) FROM t GROUP BY g",
    ),
    ViewCase(
        "totals",
        "no GROUP BY",
        "CREATE MATERIALIZED VIEW {v} AS SELECT COUNT(*) AS n, SUM(y) AS s, AVG(i) AS a, SUM(d) AS sd, AVG(d) AS ad "
        "FROM {t}",
        "SELECT count(*), sum(CAST(y AS HUGEINT)), sum(CAST(i AS HUGEINT)), count(i), sum(d), count(d) FROM t",
        lambda row: (row[0], fits(row[1]), average(row[2], row[3]), row[4], decimal_average(row[4], row[5])),
    ),
    ViewCase(
        "decimals",
        "DECIMAL",
        "CREATE MATERIALIZED VIEW {v} AS SELECT x, SUM(d) AS s, AVG(d) AS a, COUNT(d) AS n FROM {t} GROUP BY x",
        "SELECT x, sum(d), count(d) FROM t GROUP BY x",
        lambda row: (row[0], row[1], decimal_average(row[1], row[2]), row[2]),
    ),
)
CASES += (
    ViewCase(
        "extremes",
        "MIN MAX",
        "CREATE MATERIALIZED VIEW {v} AS SELECT x, MIN(y) AS lo, MAX(y) AS hi, MIN(f) AS fl, MAX(f) AS fh, MAX(z) AS zh, "
        "MIN(day) AS d0, MAX(b) AS b1, MIN(d) AS dl FROM {t} GROUP BY x",
        "SELECT x, min(y), max(y), min(f), max(f), max(z), min(day), max(b), min(d) FROM t GROUP BY x",
    ),
    ViewCase(
        "extreme_totals",
        "MIN MAX",
        "CREATE MATERIALIZED VIEW {v} AS SELECT MIN(x) AS xl, MAX(i) AS ih, MIN(y + 1) AS yl FROM {t}",
        "SELECT min(x), max(i), min(CAST(y AS HUGEINT) + 1) FROM t WHERE y IS NULL OR y < 9223372036854775807",
    ),
    ViewCase(
        "distinct_values",
        "COUNT DISTINCT",
        "CREATE MATERIALIZED VIEW {v} AS SELECT i, COUNT(DISTINCT x) AS nx, COUNT(DISTINCT f) AS nf, MAX(f) AS fh, "
        "COUNT(DISTINCT b, day) AS nb FROM {t} GROUP BY i",
        "SELECT i, count(DISTINCT x), count(DISTINCT CASE WHEN f = 0 THEN 0.0 ELSE f END), max(f), "
        "count(DISTINCT CASE WHEN b IS NOT NULL AND day IS NOT NULL THEN (b, day) END) FROM t GROUP BY i",
    ),
    ViewCase(
        "shown_groups",
        "HAVING",
        "CREATE MATERIALIZED VIEW {v} AS SELECT x, COUNT(*) AS n, MIN(y) AS lo, SUM(i) + 1 AS s FROM {t} GROUP BY x "
        "HAVING n > 1 AND COALESCE(MAX(y), 0) < 40",
        "SELECT x, count(*), min(y), sum(CAST(i AS HUGEINT)) + 1 FROM t GROUP BY x "
        "HAVING count(*) > 1 AND coalesce(max(y), 0) < 40",
    ),
    ViewCase(
        "shown_total",
        "HAVING",
        "CREATE MATERIALIZED VIEW {v} AS SELECT COUNT(*) AS n, AVG(f) AS a FROM {t} HAVING COUNT(*) % 2 = 0",
        "SELECT count(*), list(f) FILTER (f IS NOT NULL) FROM t HAVING count(*) % 2 = 0",
        lambda row: (row[0], exact_average(row[1])),
    ),
    ViewCase(
        "distinct_rows",
        "DISTINCT",
        "CREATE MATERIALIZED VIEW {v} AS SELECT DISTINCT b, x, i % 2 AS odd FROM {t} WHERE x IS NOT NULL",
        "SELECT DISTINCT b, x, CASE WHEN i % 2 = -1 THEN -1 ELSE i % 2 END FROM t WHERE x IS NOT NULL",
    ),
    ViewCase(
        "double_sums",
        "SUM DOUBLE",
        "CREATE MATERIALIZED VIEW {v} AS SELECT x, SUM(f) AS s, AVG(f) AS a, COUNT(f) AS n, SUM(f * 0.5D) AS h FROM {t} "
        "GROUP BY x",
        "SELECT x, list(f) FILTER (f IS NOT NULL), count(f) FROM t GROUP BY x",
        lambda row: (
            row[0],
            exact_sum(row[1]),
            exact_average(row[1]),
            row[2],
            exact_sum([value * 0.5 for value in row[1] or ()]),
        ),
    ),
    ViewCase(
        "filtered",
        "FILTER",
        "CREATE MATERIALIZED VIEW {v} AS SELECT i, COUNT(*) FILTER (WHERE b) AS n, SUM(y) FILTER (WHERE x = 'all') AS s, "
        "MAX(d) FILTER (WHERE y > 0) AS hi, SUM(CASE WHEN b THEN f END) AS fs, count_if(y < 0) AS below FROM {t} GROUP BY i",
        "SELECT i, count(*) FILTER (b), sum(CAST(y AS HUGEINT)) FILTER (x = 'all'), max(d) FILTER (y > 0), "
        "list(f) FILTER (b AND f IS NOT NULL), count(*) FILTER (y < 0) FROM t GROUP BY i",
        lambda row: (*row[:2], fits(row[2]), row[3], exact_sum(row[4]), row[5]),
    ),
)
KINDS = tuple(dict.fromkeys(case.kind for case in CASES))


class Oracle:
    """Recomputes the cases over the rows of a model."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")

    def load(self, model: Model) -> None:
        """Take the rows that the next answers are about."""
        names = [name for name, _ in self._shape.columns]
        arrays = {
            name: pa.array([key[place] for key in model], _ARROW[kind])
            for place, (name, kind) in enumerate(self._shape.columns)
        }
        arrays |= {
            name: pa.array([row[name] for row in model.values()], _ARROW[kind]) for name, kind in VALUE_COLUMNS.items()
        }
        self._connection.register("t", pa.table(arrays))
        self._key = ", ".join(names)

    def bag(self, case: ViewCase) -> Counter[Row]:
        rows = self._connection.execute(case.query.format(k=self._key)).fetchall()
        return bag_of(case.finish(row) for row in rows)


def bag_of(rows: Iterable[Sequence[object]]) -> Counter[Row]:
    """Rows as a bag in which NaN equals NaN."""
    return Counter(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
