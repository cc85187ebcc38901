"""The layout of a γ record: which accumulators it keeps, and how output values are computed from them.

In: a bound grouping, the outputs over it and HAVING. Out: state columns with the SQL that sums them, the
PRE-AGGREGATIONs, value columns with the SQL that finishes them. Always: accumulators are exact (a DECIMAL is summed as
its unscaled value, a DOUBLE as its mantissa and exponent), never NULL, and one accumulator or PRE-AGGREGATION serves
all aggregates that need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from viewkeeper.algebra.aggregates import FUNCTIONS, SUMS, Kept
from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import Aggregate, AggregationRef, Case, ColumnRef, Expression, Literal
from viewkeeper.algebra.relations import Grouping, Output
from viewkeeper.codegen.expression_sql import emit, guarded
from viewkeeper.codegen.relation_sql import arguments
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, BINARY, INT128
from viewkeeper.plan.nodes import Computed, DoubleSum, Facts, OutputColumn

Item = TypeVar("Item")
_DIGITS_OF_BIGINT = 18
_ROWS = Aggregate("count", (), BIGINT)


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """A PRE-AGGREGATION over arguments, what the group's record keeps of it, and what an entry `e0` adds to each sum."""

    arguments: tuple[int, ...]
    facts: Facts
    each: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accumulator:
    """An exact count or sum: its SQL over the rows of a group, and what a single row gives to it.

    `given`: the latter, over the columns of the grouped relation.
    """

    column: Column
    sql: str
    each: str
    given: Given


@dataclass(frozen=True, slots=True)
class Given:
    """What a row gives to an accumulator: a number, 1 where there is no SQL of it, if it meets the FILTER of the aggregate.

    `is_whole`: the number is an INT, a BIGINT, a BOOLEAN or a sum, perhaps NULL for 0. `can_fail`: computing it can.
    """

    sql: str | None = None
    filter: Expression | None = None
    is_whole: bool = True
    can_fail: bool = False


class Accumulators:
    """What a group's record keeps, as collected so far; `s0` is the row count. `arguments` are those of the aggregates:
    `a0…` of the inner SELECT."""

    def __init__(self, finer: Finer | None = None) -> None:
        self._finer = finer
        self.arguments: list[Expression] = []
        self._places: dict[str, int] = {}  # of arguments, by what they mean
        self.states = list[Accumulator]()
        self._states: dict[str, int] = {}  # the place of each, by its SQL
        self.exact_sums: dict[DoubleSum, int] = {}  # and the place of each, as of the next
        self.computed: dict[Computed, int] = {}
        self.entries: list[EntryPlan] = []
        self._entries: dict[tuple[int, ...], int] = {}  # the place of each, by its arguments
        self.kept_of(_ROWS).count()

    def kept_of(self, call: Aggregate) -> Kept:
        """What a call makes a view keep."""
        kept = _KeptOfCall(self, arguments(call), call.distinct)
        return kept if self._finer is None else _KeptOfFiner(self, kept, self._finer.kept.kept_of(call), self._finer)

    def finished(self, call: Aggregate) -> str:
        """The aggregate's value, as SQL over the group's accumulators."""
        return FUNCTIONS[call.function].value(self.kept_of(call), call.arg_type, call.type)

    @property
    def names(self) -> list[str]:
        """What a group's record keeps, by the names in `states`; an exact sum of DOUBLE is no value as it is."""
        names = [f"s{place}" for place in range(len(self.states))] + [""] * len(self.exact_sums)
        for number, plan in enumerate(self.entries):
            names += plan.facts.named(number, self.values(plan))
        return names

    @property
    def columns(self) -> list[Column]:
        """The columns of a group's record that are `names`."""
        columns = [state.column for state in self.states]
        columns += [Column("", BINARY, nullable=False)] * len(self.exact_sums)
        for number, plan in enumerate(self.entries):
            columns += plan.facts.named(number, self.values(plan)).values()
        return columns

    def values(self, plan: EntryPlan) -> tuple[Column, ...]:
        """The columns of the values of a PRE-AGGREGATION."""
        args = [self.arguments[place] for place in plan.arguments]
        return tuple(Column(arg.text, arg.type, nullable=False) for arg in args)

    def of_entries(
        self, args: Sequence[Expression], *, counted: bool = False, first: bool = False, last: bool = False
    ) -> int:
        """One PRE-AGGREGATION serves all aggregates over the same arguments."""
        arguments = tuple(self.argument(arg) for arg in args)
        place = _place(self._entries, arguments)
        if place == len(self.entries):
            self.entries.append(EntryPlan(arguments, Facts()))
        plan, facts = self.entries[place], self.entries[place].facts
        facts = replace(facts, counted=facts.counted or counted, first=facts.first or first, last=facts.last or last)
        self.entries[place] = replace(plan, facts=facts)
        return place

    def argument(self, arg: Expression) -> int:
        """The place of an argument; one that means the same has it too."""
        place = _place(self._places, spell(arg))
        if place == len(self.arguments):
            self.arguments.append(arg)
        return place

    def add(self, wanted: Accumulator) -> str:
        place = _place(self._states, wanted.sql)
        if place == len(self.states):
            self.states.append(wanted)
        return f"s{place}"


@dataclass(frozen=True, slots=True)
class _KeptOfCall:
    """`Kept`, of one call: the accumulators, and the PRE-AGGREGATION, that it makes a view keep."""

    kept: Accumulators
    args: tuple[Expression, ...]
    distinct: bool

    def count(self) -> str:
        if self.distinct:
            return f"d{self.kept.of_entries(self.args, counted=True)}"
        if not self.args or not self.args[0].nullable:  # the count of an x that is never NULL is the row count
            rows = Column("count(*)", BIGINT, nullable=False)
            return self.kept.add(Accumulator(rows, "count(*)", "CAST(1 AS BIGINT)", Given()))
        arg, name = self.args[0], f"a{self.kept.argument(self.args[0])}"
        column = Column(f"count({arg.text})", BIGINT, nullable=False)
        value, condition = unfiltered(arg)
        number = f"{emit(value)} IS NOT NULL" if value.nullable or value.fallible else None
        given = Given(number, condition, can_fail=value.fallible)
        each = f"CAST({name} IS NOT NULL AS BIGINT)"
        return self.kept.add(Accumulator(column, f"count({name})", each, given))

    def total(self, kind: str) -> list[str]:
        arg = self.args[0]
        if self.distinct:
            return self._total_of_entries(kind, arg)
        place = self.kept.argument(arg)
        if arg.type.kind == "DOUBLE":
            return [f"t{_place(self.kept.exact_sums, DoubleSum(place, kind))}"]
        names = []
        value, condition = unfiltered(arg)
        limbs = zip(SUMS[kind](f"a{place}", arg.type), SUMS[kind](emit(value), arg.type), strict=True)
        for limb, ((of_rows, of_one), (_, number)) in enumerate(limbs):
            column = Column(f"{kind}({arg.text}){f' limb {limb}' if limb else ''}", INT128, nullable=False)
            sql, each = (f"CAST(coalesce({sql}, 0) AS HUGEINT)" for sql in (of_rows, of_one))
            is_whole = kind == "sum" and (arg.type.is_integer or 0 < arg.type.precision <= _DIGITS_OF_BIGINT)
            if not arg.type.is_integer:
                number = f"CAST({number} AS BIGINT)" if is_whole else f"CAST(coalesce({number}, 0) AS HUGEINT)"
            given = Given(number, condition, is_whole, value.fallible)
            names.append(self.kept.add(Accumulator(column, sql, each, given)))
        return names

    def end(self, *, is_last: bool) -> str:
        place = self.kept.of_entries(self.args, first=not is_last, last=is_last)
        return f"{'hi' if is_last else 'lo'}{place}"

    def computed(self, function: str, *args: str) -> str:
        return f"p{_place(self.kept.computed, Computed(function, args))}"

    def _total_of_entries(self, kind: str, arg: Expression) -> list[str]:
        """The accumulators of an exact sum of distinct values."""
        entries, number = self.kept.entries, self.kept.of_entries([arg])
        plan = entries[number]
        if arg.type.kind == "DOUBLE":
            kinds = _places(plan.facts.exact_sums)
            names = [f"y{number}_{_place(kinds, kind)}"]
            entries[number] = replace(plan, facts=replace(plan.facts, exact_sums=tuple(kinds)))
            return names
        each, columns, places = _places(plan.each), list(plan.facts.sums), []
        for limb, (_, sql) in enumerate(SUMS[kind]("e0", arg.type)):
            places.append(_place(each, sql))
            if places[-1] == len(columns):
                columns.append(Column(f"{kind}(distinct {arg.text}) limb {limb}", INT128, nullable=False))
        entries[number] = replace(plan, facts=replace(plan.facts, sums=tuple(columns)), each=tuple(each))
        return [f"x{number}_{place}" for place in places]


@dataclass(frozen=True, slots=True)
class Finer:
    """A γ of the same rows by more groups, from whose records this one is computed: `groups` are this one's over the key of
    these, which has so many columns."""

    groups: tuple[Expression, ...]
    key_columns: int
    kept: Accumulators

    def column(self, name: str) -> ColumnRef:
        """What its records keep under a name, among their columns."""
        place = self.kept.names.index(name)
        column = self.kept.columns[place]
        return ColumnRef(self.key_columns + place, column.name, column.type, column.nullable)


@dataclass(frozen=True, slots=True)
class _KeptOfFiner:
    """`Kept`, of one call, from the records of a finer γ: sums of its sums and counts, ends of its ends."""

    kept: Accumulators
    own: _KeptOfCall
    finer: Kept
    records: Finer

    def count(self) -> str:
        return self._sum(self.finer.count())

    def total(self, kind: str) -> list[str]:
        return [self._sum(name) for name in self.finer.total(kind)]

    def end(self, *, is_last: bool) -> str:
        end = self.records.column(self.finer.end(is_last=is_last))
        place = self.kept.of_entries([end], first=not is_last, last=is_last)
        return f"{'hi' if is_last else 'lo'}{place}"

    def computed(self, function: str, *args: str) -> str:
        return self.own.computed(function, *args)

    def _sum(self, name: str) -> str:
        column = self.records.column(name)
        arg = f"CAST(a{self.kept.argument(column)} AS {column.type.duckdb})"
        given = Given(emit(column))
        sql = f"CAST(coalesce(sum({arg}), 0) AS {column.type.duckdb})"
        return self.kept.add(Accumulator(Column(column.name, column.type, nullable=False), sql, arg, given))


def _place(known: dict[Item, int], item: Item) -> int:
    """The place of `item`, behind all others if it had none."""
    return known.setdefault(item, len(known))


def _places(items: Iterable[Item]) -> dict[Item, int]:
    return {item: place for place, item in enumerate(items)}


def unfiltered(arg: Expression) -> tuple[Expression, Expression | None]:
    """An argument without its FILTER (`codegen.relation_sql.arguments`), and the condition of that."""
    match arg:
        case Case(branches=((condition, value),), default=Literal(value=None)) if value.type == arg.type:
            return value, condition
    return arg, None


@dataclass(frozen=True, slots=True)
class AggregateLayout:
    groups: tuple[Expression, ...]
    kept: Accumulators
    values: tuple[Column, ...]
    finish: str
    can_fail: bool
    has_having: bool
    shown: tuple[OutputColumn, ...]


def lay_out_aggregation(
    grouping: Grouping, outputs: Sequence[Output], having: Expression | None, finer: Finer | None = None
) -> AggregateLayout:
    known = [] if finer is None else finer.kept.names
    kept = Accumulators(finer)
    finished = [kept.finished(aggregate) for aggregate in grouping.aggregates]
    if finer is not None and finer.kept.names != known:
        raise InvariantBroken("a finer γ does not keep what a coarser one needs")
    names = kept.names if having is None else []  # before the values that are computed
    stored = _places(names)
    values: dict[Expression, int] = {}
    shown: list[OutputColumn] = []
    for output in outputs:
        expression = output.expression
        column = Column(output.name, expression.type, expression.nullable or expression.fallible)
        match expression:
            case AggregationRef(source="group", position=place):
                shown.append(OutputColumn(column, "key", place))
            case AggregationRef(position=number) if finished[number] in stored:
                shown.append(OutputColumn(column, "row", stored[finished[number]]))
            case _:
                shown.append(OutputColumn(column, "row", len(names) + _place(values, expression)))
    finish, can_fail = _finish_sql(list(values), having, finished)
    columns = tuple(Column(value.text, value.type, value.nullable or value.fallible) for value in values)
    groups = grouping.groups if finer is None else finer.groups
    return AggregateLayout(groups, kept, columns, finish, can_fail, having is not None, tuple(shown))


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
