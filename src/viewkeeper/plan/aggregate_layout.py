"""The layout of a γ record: which accumulators it keeps, and how output values are computed from them.

In: a bound grouping, the outputs over it and HAVING. Out: state columns with the SQL that sums them, the
PRE-AGGREGATIONs, value columns with the SQL that finishes them. Always: accumulators are exact (a DECIMAL is summed as
its unscaled value, a DOUBLE as its mantissa and exponent), never NULL, and one accumulator or PRE-AGGREGATION serves
all aggregates that need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeeper.codegen import decimals, wide_sums
from viewkeeper.codegen.aggregates import arguments, average_value, sum_parts, sum_value
from viewkeeper.codegen.expression_sql import emit, guarded
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, INT128, SqlType
from viewkeeper.plan.nodes import OutputColumn
from viewkeeper.sql.expressions import Aggregate, AggregationRef, ColumnRef, Expression
from viewkeeper.sql.relations import Grouping, Output


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """A PRE-AGGREGATION over arguments, and what the group's record keeps of it."""

    arguments: tuple[int, ...]
    counted: bool = False
    first: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class AggregateLayout:
    groups: tuple[Expression, ...]
    arguments: tuple[Expression, ...]  # of the aggregates: `a0…` of the inner SELECT
    state: tuple[Column, ...]
    state_sqls: tuple[str, ...]
    each_sqls: tuple[str, ...]  # what a single row contributes to each of them
    rolled: tuple[tuple[str, int | None], ...]  # the same over counted rows, and of which column; () when there is none
    exact_sums: tuple[int, ...]
    entries: tuple[EntryPlan, ...]
    values: tuple[Column, ...]
    finish: str
    can_fail: bool
    has_having: bool
    shown: tuple[OutputColumn, ...]


class _States:
    """The accumulators collected so far; `s0` is the row count."""

    def __init__(self) -> None:
        self.arguments: list[Expression] = []
        self.columns: list[Column] = [Column("count(*)", BIGINT, nullable=False)]
        self.sqls: list[str] = ["count(*)"]
        self.each: list[str] = ["CAST(1 AS BIGINT)"]
        self.rolled: list[tuple[str, int | None] | None] = [(_rolled_up("n", BIGINT), None)]
        self.exact_sums: list[int] = []
        self.entries: list[EntryPlan] = []

    def finished(self, aggregate: Aggregate) -> str:
        """The aggregate's value, as SQL over the group's accumulators."""
        args = arguments(aggregate)
        match aggregate.function:
            case "count" if aggregate.distinct:
                return f"d{self._entries(args, counted=True)}"
            case "count":
                return f"s{self._count(args)}"
            case "min":
                return f"lo{self._entries(args, first=True)}"
            case "max":
                return f"hi{self._entries(args, last=True)}"
        count = f"s{self._count(args)}"
        if args[0].type.kind == "DOUBLE":
            total = f"t{self._double(args[0])}"
            value = total if aggregate.function == "sum" else f"{total} / CAST({count} AS DOUBLE)"
        else:
            sums = [f"CAST(s{place} AS HUGEINT)" for place in self._sums(args[0])]
            is_sum = aggregate.function == "sum"
            value = (sum_value if is_sum else average_value)(sums, count, args[0].type, aggregate.type)
        return f"(CASE WHEN {count} = 0 THEN NULL ELSE {value} END)"

    def place_in_row(self, name: str) -> int | None:
        """The index of a value that the group's record holds as it is; None when it must be computed."""
        names = [f"s{place}" for place in range(len(self.columns))] + [""] * len(self.exact_sums)
        for place, plan in enumerate(self.entries):
            kept = (("d", plan.counted), ("lo", plan.first), ("hi", plan.last))
            names += [f"{prefix}{place}" for prefix, wanted in kept if wanted]
        return names.index(name) if name in names else None

    def _count(self, args: Sequence[Expression]) -> int:
        """COUNT(x) of an x that is never NULL is the row count."""
        if not args or not args[0].nullable:
            return 0
        name = f"a{self._argument(args[0])}"
        column = Column(f"count({args[0].text})", BIGINT, nullable=False)
        each = f"CAST({name} IS NOT NULL AS BIGINT)"
        return self._add(f"count({name})", each, column, _rolled("n", args[0], BIGINT))

    def _sums(self, arg: Expression) -> list[int]:
        """The accumulators of a sum: one, or the high and the low limb for a wide DECIMAL."""
        name = f"a{self._argument(arg)}"
        sums, each = sum_parts(name, arg.type), [name]
        if len(sums) > 1:
            each = wide_sums.limbs_of_one(name, arg.type)
        elif arg.type.kind == "DECIMAL":
            each = [decimals.unscaled(name, arg.type)]
        places = []
        for limb, *sqls in zip(("", " low"), sums, each, strict=False):
            exact, exact_each = (f"CAST(coalesce({sql}, 0) AS HUGEINT)" for sql in sqls)
            column = Column(f"sum({arg.text}){limb}", INT128, nullable=False)
            places.append(self._add(exact, exact_each, column, _rolled("t", arg, INT128)))
        return places

    def _double(self, arg: Expression) -> int:
        argument = self._argument(arg)
        if argument not in self.exact_sums:
            self.exact_sums.append(argument)
        return self.exact_sums.index(argument)

    def _entries(
        self, args: Sequence[Expression], *, counted: bool = False, first: bool = False, last: bool = False
    ) -> int:
        """One PRE-AGGREGATION serves all aggregates over the same arguments."""
        arguments = tuple(self._argument(arg) for arg in args)
        place = next((i for i, plan in enumerate(self.entries) if plan.arguments == arguments), len(self.entries))
        if place == len(self.entries):
            self.entries.append(EntryPlan(arguments))
        plan = self.entries[place]
        self.entries[place] = EntryPlan(arguments, plan.counted or counted, plan.first or first, plan.last or last)
        return place

    def _argument(self, arg: Expression) -> int:
        if arg not in self.arguments:
            self.arguments.append(arg)
        return self.arguments.index(arg)

    def _add(self, sql: str, each: str, column: Column, rolled: tuple[str, int | None] | None) -> int:
        if sql not in self.sqls:
            self.sqls.append(sql)
            self.each.append(each)
            self.rolled.append(rolled)
            self.columns.append(column)
        return self.sqls.index(sql)


def _rolled(prefix: str, arg: Expression, type_: SqlType) -> tuple[str, int | None] | None:
    """A count or sum of a column from counted rows; sums of non-integers have no such form."""
    if not isinstance(arg, ColumnRef) or arg.type.kind not in ("INT", "BIGINT"):
        return None
    return _rolled_up(f"{prefix}{arg.position}", type_), arg.position


def _rolled_up(name: str, type_: SqlType) -> str:
    return f"CAST(coalesce(sum({name}), 0) AS {type_.duckdb})"


def lay_out_aggregation(grouping: Grouping, outputs: Sequence[Output], having: Expression | None) -> AggregateLayout:
    states = _States()
    finished = [states.finished(aggregate) for aggregate in grouping.aggregates]
    kept = len(states.columns) + len(states.exact_sums) + sum(p.counted + p.first + p.last for p in states.entries)
    first_value = 0 if having is not None else kept
    values: list[Expression] = []
    shown: list[OutputColumn] = []
    for output in outputs:
        part, place = _stands(output.expression, finished, states if having is None else None)
        if part == "value":
            if output.expression not in values:
                values.append(output.expression)
            part, place = "row", first_value + values.index(output.expression)
        shown.append(OutputColumn(_shown_column(output), part, place))
    finish, can_fail = _finish_sql(values, having, finished)
    return AggregateLayout(
        groups=grouping.groups,
        arguments=tuple(states.arguments),
        state=tuple(states.columns),
        state_sqls=tuple(states.sqls),
        each_sqls=tuple(states.each),
        rolled=tuple(way for way in states.rolled if way is not None) if None not in states.rolled else (),
        exact_sums=tuple(states.exact_sums),
        entries=tuple(states.entries),
        values=tuple(Column(value.text, value.type, value.nullable or value.fallible) for value in values),
        finish=finish,
        can_fail=can_fail,
        has_having=having is not None,
        shown=tuple(shown),
    )


def _finish_sql(values: Sequence[Expression], having: Expression | None, finished: Sequence[str]) -> tuple[str, bool]:
    """SELECT of the values `v0…`, of `shown` under HAVING, and of `fails` where one can fail; and whether one can."""
    wanted = [(f"v{place}", value) for place, value in enumerate(values)]
    wanted += [("shown", having)] if having is not None else []
    tried: list[str] = []
    columns: list[str] = []
    for name, expression in wanted:
        sql = emit(expression, finished)
        if expression.fallible:
            tried.append(f"{guarded([sql], 's0')} AS g{len(tried)}")
            sql = f"g{len(tried) - 1}.v0"
        columns.append(f"coalesce({sql}, FALSE) AS shown" if name == "shown" else f"{sql} AS {name}")
    if not tried:
        return f"SELECT {', '.join(columns) or 's0'} FROM states", False
    columns.append(f"({' OR '.join(f'g{place} IS NULL' for place in range(len(tried)))}) AS fails")
    return f"SELECT {', '.join(columns)} FROM (SELECT *, {', '.join(tried)} FROM states)", True


def _shown_column(output: Output) -> Column:
    expression = output.expression
    return Column(output.name, expression.type, expression.nullable or expression.fallible)


def _stands(expression: Expression, finished: Sequence[str], states: _States | None) -> tuple[str, int]:
    """Where a value is stored: a group in the key, some aggregates in the group's record; else it is computed."""
    if isinstance(expression, AggregationRef) and expression.source == "group":
        return "key", expression.position
    if isinstance(expression, AggregationRef) and states is not None:
        place = states.place_in_row(finished[expression.position])
        if place is not None:
            return "row", place
    return "value", 0
