"""The layout of a γ record: which accumulators it keeps, and how shown values come from them.

In: a bound grouping and the outputs over it. Out: state columns with the SQL that sums them, value columns with the SQL
that finishes them. Always: accumulators are exact integers (a DECIMAL is summed as its unscaled value), never NULL, and
one accumulator serves all aggregates that need the same sum or the same count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, INT128, SqlType, decimal
from viewkeeper.plan.physical import Shown
from viewkeeper.sql import duckdb_decimal
from viewkeeper.sql.bind import Grouping, Output
from viewkeeper.sql.duckdb_sql import emit
from viewkeeper.sql.expressions import Aggregate, Expression, FoldRef


@dataclass(frozen=True, slots=True)
class FoldLayout:
    groups: tuple[Expression, ...]
    arguments: tuple[Expression, ...]  # of the aggregates: `a0…` of the inner SELECT
    state: tuple[Column, ...]
    state_sqls: tuple[str, ...]
    values: tuple[Column, ...]
    finish: str
    shown: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class _Places:
    """Where an aggregate finds its accumulators among the states."""

    count: int
    sum: int | None


class _States:
    """The accumulators collected so far; `s0` is the row count."""

    def __init__(self) -> None:
        self.arguments: list[Expression] = []
        self.columns: list[Column] = [Column("count(*)", BIGINT, nullable=False)]
        self.sqls: list[str] = ["count(*)"]

    def places(self, aggregate: Aggregate) -> _Places:
        count = self._count(aggregate.arg)
        if aggregate.function == "count" or aggregate.arg is None:
            return _Places(count, None)
        return _Places(count, self._sum(aggregate.arg))

    def _count(self, arg: Expression | None) -> int:
        """COUNT(x) of an x that is never NULL is the row count."""
        if arg is None or not arg.nullable:
            return 0
        return self._add(f"count(a{self._argument(arg)})", Column(f"count({arg.text})", BIGINT, nullable=False))

    def _sum(self, arg: Expression) -> int:
        name = f"a{self._argument(arg)}"
        total = f"sum({name})"
        if arg.type.kind == "DECIMAL":
            total = duckdb_decimal.unscaled(total, decimal(38, arg.type.scale))
        sql = f"CAST(coalesce({total}, 0) AS HUGEINT)"
        return self._add(sql, Column(f"sum({arg.text})", INT128, nullable=False))

    def _argument(self, arg: Expression) -> int:
        if arg not in self.arguments:
            self.arguments.append(arg)
        return self.arguments.index(arg)

    def _add(self, sql: str, column: Column) -> int:
        if sql not in self.sqls:
            self.sqls.append(sql)
            self.columns.append(column)
        return self.sqls.index(sql)


def lay_out_fold(grouping: Grouping, outputs: Sequence[Output]) -> FoldLayout:
    states = _States()
    places = [states.places(aggregate) for aggregate in grouping.aggregates]
    finished = [_finished(*pair) for pair in zip(grouping.aggregates, places, strict=True)]
    values: list[Column] = []
    sqls: list[str] = []
    shown: list[Shown] = []
    for output in outputs:
        part, place = _stands(output.expression, places)
        if part == "value":
            sql, column = _value(output.expression, finished)
            if sql not in sqls:
                sqls.append(sql)
                values.append(column)
            part, place = "row", len(states.columns) + sqls.index(sql)
        shown.append(Shown(_shown_column(output), part, place))
    columns = [f"{sql} AS v{place}" for place, sql in enumerate(sqls)] or ["s0"]
    return FoldLayout(
        groups=grouping.groups,
        arguments=tuple(states.arguments),
        state=tuple(states.columns),
        state_sqls=tuple(states.sqls),
        values=tuple(values),
        finish=f"SELECT {', '.join(columns)} FROM states",
        shown=tuple(shown),
    )


def _shown_column(output: Output) -> Column:
    expression = output.expression
    return Column(output.name, expression.type, expression.nullable or expression.fallible)


def _stands(expression: Expression, places: Sequence[_Places]) -> tuple[str, int]:
    """Where a value stands already: a group in the key, a count among the states; else it is a value to compute."""
    if isinstance(expression, FoldRef) and expression.source == "group":
        return "key", expression.position
    if isinstance(expression, FoldRef) and isinstance(expression.of, Aggregate) and expression.of.function == "count":
        return "row", places[expression.position].count
    return "value", 0


def _value(expression: Expression, finished: Sequence[str]) -> tuple[str, Column]:
    """A failing value reads NULL; the CASE keeps DuckDB from lifting parts of it out of TRY."""
    sql = emit(expression, finished)
    if expression.fallible:
        sql = f"CASE WHEN s0 IS NOT NULL THEN TRY({sql}) END"
    return sql, Column(expression.text, expression.type, expression.nullable or expression.fallible)


def _finished(aggregate: Aggregate, places: _Places) -> str:
    """The aggregate's value from its accumulators; SUM and AVG of nothing are NULL."""
    count = f"s{places.count}"
    if aggregate.function == "count" or aggregate.arg is None:
        return count
    total = f"CAST(s{places.sum} AS HUGEINT)"
    value = (_sum if aggregate.function == "sum" else _average)(total, count, aggregate.arg.type, aggregate.type)
    return f"(CASE WHEN {count} = 0 THEN NULL ELSE {value} END)"


def _sum(total: str, _count: str, _arg: SqlType, type_: SqlType) -> str:
    return duckdb_decimal.scaled(total, type_) if type_.kind == "DECIMAL" else f"CAST({total} AS {type_.duckdb})"


def _average(total: str, count: str, arg: SqlType, type_: SqlType) -> str:
    """DECIMAL: exact, half up. Integers: the double nearest to the exact sum, over the count, as Spark divides."""
    if type_.kind != "DECIMAL":
        # By way of text: DuckDB's HUGEINT to DOUBLE is now and then one unit off.
        return f"CAST(CAST({total} AS VARCHAR) AS DOUBLE) / CAST({count} AS DOUBLE)"
    # At count 0 the CASE around this is NULL already; NULLIF keeps an eager engine from dividing by it.
    divisor = f"CAST(nullif({count}, 0) AS HUGEINT)"
    shift = type_.scale - arg.scale
    return duckdb_decimal.scaled(duckdb_decimal.quotient(total, divisor, shift=shift, divisor_max=2**63), type_)
