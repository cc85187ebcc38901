"""The layout of a γ record: which accumulators it keeps, and how output values are computed from them.

In: a bound grouping, the outputs over it and HAVING. Out: state columns with the SQL that sums them, the
PRE-AGGREGATIONs, value columns with the SQL that finishes them. Always: accumulators are exact (a DECIMAL is summed as
its unscaled value, a DOUBLE as its mantissa and exponent), never NULL, and one accumulator or PRE-AGGREGATION serves
all aggregates that need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from viewkeeper.codegen.aggregates import arguments
from viewkeeper.codegen.expression_sql import emit, guarded
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, INT128, SqlType
from viewkeeper.plan.nodes import Computed, DoubleSum, Facts, OutputColumn
from viewkeeper.sql.aggregates import FUNCTIONS, SUMS
from viewkeeper.sql.expressions import Aggregate, AggregationRef, ColumnRef, Expression
from viewkeeper.sql.relations import Grouping, Output

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """A PRE-AGGREGATION over arguments, what the group's record keeps of it, and what an entry `e0` adds to each sum."""

    arguments: tuple[int, ...]
    facts: Facts
    each: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AggregateLayout:
    groups: tuple[Expression, ...]
    arguments: tuple[Expression, ...]  # of the aggregates: `a0…` of the inner SELECT
    state: tuple[Column, ...]
    state_sqls: tuple[str, ...]
    each_sqls: tuple[str, ...]  # what a single row gives to each of them
    rolled: tuple[
        tuple[str, int | None], ...
    ]  # the same over counted rows, and of which column; () when there is no way
    exact_sums: tuple[DoubleSum, ...]
    computed: tuple[Computed, ...]
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
        self.exact_sums: list[DoubleSum] = []
        self.computed: list[Computed] = []
        self.entries: list[EntryPlan] = []

    def finished(self, call: Aggregate) -> str:
        """The aggregate's value, as SQL over the group's accumulators."""
        return FUNCTIONS[call.function].value(_KeptOfCall(self, call), call.arg_type, call.type)

    def place_in_row(self, name: str) -> int | None:
        """The index of a value that the group's record holds as it is; None when it must be computed."""
        names = [f"s{place}" for place in range(len(self.columns))] + [""] * len(self.exact_sums)
        for number, plan in enumerate(self.entries):
            names += plan.facts.named(number, self.values(plan))
        return names.index(name) if name in names else None

    def values(self, plan: EntryPlan) -> tuple[Column, ...]:
        """The columns of the values of a PRE-AGGREGATION."""
        args = [self.arguments[place] for place in plan.arguments]
        return tuple(Column(arg.text, arg.type, nullable=False) for arg in args)

    def count(self, args: Sequence[Expression]) -> str:
        """COUNT(x) of an x that is never NULL is the row count."""
        if not args or not args[0].nullable:
            return "s0"
        name = f"a{self._argument(args[0])}"
        column = Column(f"count({args[0].text})", BIGINT, nullable=False)
        each = f"CAST({name} IS NOT NULL AS BIGINT)"
        return self._add(f"count({name})", each, column, _rolled("n", args[0], BIGINT))

    def sums(self, kind: str, arg: Expression) -> list[str]:
        """The accumulators of an exact sum of integers, from the highest limb to the lowest."""
        parts = SUMS[kind](f"a{self._argument(arg)}", arg.type)
        names = [f"{kind}({arg.text}){f' limb {limb}' if limb else ''}" for limb in range(len(parts))]
        places = []
        for name, sqls in zip(names, parts, strict=True):
            exact, exact_each = (f"CAST(coalesce({sql}, 0) AS HUGEINT)" for sql in sqls)
            rolled = _rolled("t", arg, INT128) if kind == "sum" else None
            places.append(self._add(exact, exact_each, Column(name, INT128, nullable=False), rolled))
        return places

    def double(self, kind: str, arg: Expression) -> str:
        wanted = DoubleSum(self._argument(arg), kind)
        return f"t{_place(self.exact_sums, wanted)}"

    def compute(self, function: str, args: Sequence[str]) -> str:
        return f"p{_place(self.computed, Computed(function, tuple(args)))}"

    def of_entries(
        self, args: Sequence[Expression], *, counted: bool = False, first: bool = False, last: bool = False
    ) -> int:
        """One PRE-AGGREGATION serves all aggregates over the same arguments."""
        arguments = tuple(self._argument(arg) for arg in args)
        place = next((i for i, plan in enumerate(self.entries) if plan.arguments == arguments), len(self.entries))
        if place == len(self.entries):
            self.entries.append(EntryPlan(arguments, Facts()))
        plan, facts = self.entries[place], self.entries[place].facts
        facts = replace(facts, counted=facts.counted or counted, first=facts.first or first, last=facts.last or last)
        self.entries[place] = replace(plan, facts=facts)
        return place

    def total_of_entries(self, kind: str, arg: Expression) -> list[str]:
        """The accumulators of an exact sum of distinct values."""
        number = self.of_entries([arg])
        plan = self.entries[number]
        if arg.type.kind == "DOUBLE":
            kinds = list(plan.facts.exact_sums)
            names = [f"y{number}_{_place(kinds, kind)}"]
            self.entries[number] = replace(plan, facts=replace(plan.facts, exact_sums=tuple(kinds)))
            return names
        each, columns, places = list(plan.each), list(plan.facts.sums), []
        for limb, (_, sql) in enumerate(SUMS[kind]("e0", arg.type)):
            places.append(_place(each, sql))
            if places[-1] == len(columns):
                columns.append(Column(f"{kind}(distinct {arg.text}) limb {limb}", INT128, nullable=False))
        facts = replace(plan.facts, sums=tuple(columns))
        self.entries[number] = replace(plan, facts=facts, each=tuple(each))
        return [f"x{number}_{place}" for place in places]

    def _argument(self, arg: Expression) -> int:
        return _place(self.arguments, arg)

    def _add(self, sql: str, each: str, column: Column, rolled: tuple[str, int | None] | None) -> str:
        if sql not in self.sqls:
            self.sqls.append(sql)
            self.each.append(each)
            self.rolled.append(rolled)
            self.columns.append(column)
        return f"s{self.sqls.index(sql)}"


class _KeptOfCall:
    """`Kept`, of one call: the accumulators, and the PRE-AGGREGATION, that it makes a view keep."""

    def __init__(self, states: _States, call: Aggregate) -> None:
        self._states, self._args, self._distinct = states, arguments(call), call.distinct

    def count(self) -> str:
        if self._distinct:
            return f"d{self._states.of_entries(self._args, counted=True)}"
        return self._states.count(self._args)

    def total(self, kind: str) -> list[str]:
        arg = self._args[0]
        if self._distinct:
            return self._states.total_of_entries(kind, arg)
        return [self._states.double(kind, arg)] if arg.type.kind == "DOUBLE" else self._states.sums(kind, arg)

    def end(self, *, is_last: bool) -> str:
        place = self._states.of_entries(self._args, first=not is_last, last=is_last)
        return f"{'hi' if is_last else 'lo'}{place}"

    def computed(self, function: str, *args: str) -> str:
        return self._states.compute(function, args)


def _place(known: list[Item], item: Item) -> int:
    """Where `item` stands in the list, at its end if it was not there."""
    if item not in known:
        known.append(item)
    return known.index(item)


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
    facts = sum(len(plan.facts.named(0, states.values(plan))) for plan in states.entries)
    kept = len(states.columns) + len(states.exact_sums) + facts
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
        computed=tuple(states.computed),
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
