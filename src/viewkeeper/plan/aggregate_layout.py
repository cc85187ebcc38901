"""The layout of a γ record: which accumulators it keeps, and how output values are computed from them.

In: a bound grouping, the outputs over it and HAVING. Out: state columns with what a row adds to each, the PRE-AGGREGATIONs,
value columns with the SQL that finishes them. Always: accumulators are exact (a DECIMAL is summed as its unscaled value, a
DOUBLE as its mantissa and exponent), never NULL, and one serves all aggregates that need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from viewkeeper.algebra.aggregates import AGGREGATE_FUNCTIONS, SUMS, Kept
from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import Aggregate, AggregationRef, ColumnRef, Expression, columns_of, walk
from viewkeeper.algebra.relations import Grouping, Output
from viewkeeper.codegen.expression_sql import emit, guarded
from viewkeeper.codegen.relation_sql import arguments, unfiltered
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, BINARY, INT128, SqlType
from viewkeeper.plan.nodes import Computed, DoubleSum, Facts, OutputColumn, Term

Item = TypeVar("Item")
_ROWS = Aggregate("count", (), BIGINT)


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """A PRE-AGGREGATION over arguments, what the group's record keeps of it, and what an entry `e0` adds to each sum."""

    arguments: tuple[int, ...]
    facts: Facts
    adds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accumulator:
    """An exact count or sum: its column, and what a row gives to it that meets the FILTER (`nodes.Given`)."""

    column: Column
    term: Term | None = None
    is_count: bool = False
    filter: Expression | None = None


class Accumulators:
    """What a group's record keeps, as collected so far; `s0` is the row count. `arguments` are those of the aggregates."""

    def __init__(self, finer: Finer | None = None) -> None:
        self._finer = finer
        self.arguments: list[Expression] = []
        self._places: dict[str, int] = {}  # of arguments, by what they mean
        self.states = list[Accumulator]()
        self._states: dict[tuple[str, int, int], int] = {}  # the place of each, by the sum, its argument and the part
        self.exact_sums: dict[DoubleSum, int] = {}  # and the place of each, as of the next
        self.computed: dict[Computed, int] = {}
        self.entries: list[EntryPlan] = []
        self._entries: dict[tuple[int, ...], int] = {}  # the place of each, by its arguments
        self.kept_of(_ROWS).count()

    def kept_of(self, call: Aggregate) -> Kept:
        """What a call makes a view keep."""
        kept = _KeptOfCall(self, arguments(call), call.distinct)
        return kept if self._finer is None else _KeptOfFiner(self, kept, self._finer.kept.kept_of(call), self._finer)

    def finished(self, call: Aggregate) -> Finished:
        kept = _Noted(self.kept_of(call))
        return Finished(AGGREGATE_FUNCTIONS[call.function].value(kept, call.arg_type, call.type), frozenset(kept.names))

    @property
    def record(self) -> list[tuple[str, Column]]:
        """The columns of a group's record with their names in `states`; an exact sum of DOUBLE has none."""
        found = [(f"s{index}", state.column) for index, state in enumerate(self.states)]
        found += [("", Column("", BINARY, nullable=False))] * len(self.exact_sums)
        for number, plan in enumerate(self.entries):
            found += plan.facts.named(number, self.values(plan)).items()
        return found

    def values(self, plan: EntryPlan) -> tuple[Column, ...]:
        """The columns of the values of a PRE-AGGREGATION."""
        args = [self.arguments[index] for index in plan.arguments]
        return tuple(Column(arg.text, arg.type, nullable=False) for arg in args)

    def of_entries(
        self, args: Sequence[Expression], *, counted: bool = False, first: bool = False, last: bool = False
    ) -> int:
        """One PRE-AGGREGATION serves all aggregates over the same arguments."""
        arguments = tuple(self.argument(arg) for arg in args)
        index = _place(self._entries, arguments)
        if index == len(self.entries):
            self.entries.append(EntryPlan(arguments, Facts()))
        plan, facts = self.entries[index], self.entries[index].facts
        facts = replace(facts, counted=facts.counted or counted, first=facts.first or first, last=facts.last or last)
        self.entries[index] = replace(plan, facts=facts)
        return index

    def argument(self, arg: Expression) -> int:
        """The place of an argument; one that means the same has it too."""
        index = _place(self._places, spell(arg))
        if index == len(self.arguments):
            self.arguments.append(arg)
        return index

    def add(self, wanted: Accumulator, kind: str, argument: int = 0, part: int = 0) -> str:
        index = _place(self._states, (kind, argument, part))
        if index == len(self.states):
            self.states.append(wanted)
        return f"s{index}"


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
            return self.kept.add(Accumulator(Column("count(*)", BIGINT, nullable=False)), "rows")
        arg, index = self.args[0], self.kept.argument(self.args[0])
        value, condition = unfiltered(arg)
        term = term_of(value) if value.nullable or value.fallible else None
        column = Column(f"count({arg.text})", BIGINT, nullable=False)
        return self.kept.add(Accumulator(column, term, term is not None, condition), "count", index)

    def total(self, kind: str) -> list[str]:
        arg = self.args[0]
        if self.distinct:
            return self._total_of_entries(kind, arg)
        index = self.kept.argument(arg)
        if arg.type.kind == "DOUBLE":
            return [f"t{_place(self.kept.exact_sums, DoubleSum(index, kind))}"]
        names = []
        value, condition = unfiltered(arg)
        for part, number in enumerate(_numbers(kind, emit(value), arg.type)):
            column = Column(f"{kind}({arg.text}){f' part {part}' if part else ''}", INT128, nullable=False)
            accumulator = Accumulator(column, term_of(value, number), filter=condition)
            names.append(self.kept.add(accumulator, kind, index, part))
        return names

    def end(self, *, is_last: bool) -> str:
        index = self.kept.of_entries(self.args, first=not is_last, last=is_last)
        return f"{'hi' if is_last else 'lo'}{index}"

    def computed(self, function: str, *args: str) -> str:
        return f"p{_place(self.kept.computed, Computed(function, args))}"

    def _total_of_entries(self, kind: str, arg: Expression) -> list[str]:
        """The accumulators of an exact sum of distinct values."""
        entries, number = self.kept.entries, self.kept.of_entries([arg])
        plan = entries[number]
        if arg.type.kind == "DOUBLE":
            kinds = _places(plan.facts.exact_sums)
            index = _place(kinds, kind)
            entries[number] = replace(plan, facts=replace(plan.facts, exact_sums=tuple(kinds)))
            return [f"y{number}_{index}"]
        adds, columns, indexes = _places(plan.adds), list(plan.facts.sums), []
        for part, sql in enumerate(_numbers(kind, "e0", arg.type)):
            indexes.append(_place(adds, sql))
            if indexes[-1] == len(columns):
                columns.append(Column(f"{kind}(distinct {arg.text}) part {part}", INT128, nullable=False))
        entries[number] = replace(plan, facts=replace(plan.facts, sums=tuple(columns)), adds=tuple(adds))
        return [f"x{number}_{index}" for index in indexes]


@dataclass(frozen=True, slots=True)
class Finer:
    """A γ of the same rows by more groups, from whose records this one is computed: `groups` are this one's over its key."""

    groups: tuple[Expression, ...]
    key_columns: int
    kept: Accumulators

    def column(self, name: str) -> ColumnRef:
        """What its records keep under a name, among their columns."""
        record = self.kept.record
        index = [known for known, _ in record].index(name)
        column = record[index][1]
        return ColumnRef(self.key_columns + index, column.name, column.type, column.nullable)


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
        index = self.kept.of_entries([end], first=not is_last, last=is_last)
        return f"{'hi' if is_last else 'lo'}{index}"

    def computed(self, function: str, *args: str) -> str:
        return self.own.computed(function, *args)

    def _sum(self, name: str) -> str:
        column = self.records.column(name)
        accumulator = Accumulator(Column(column.name, column.type, nullable=False), term_of(column))
        return self.kept.add(accumulator, "total", self.kept.argument(column))


@dataclass(frozen=True, slots=True)
class Finished:
    """An aggregate's value, as SQL over the group's accumulators, and which of these, and of what is computed, it names."""

    sql: str
    reads: frozenset[str]


class _Noted:
    """`Kept`, and the names that it has given."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self.names = set[str]()

    def count(self) -> str:
        return self._note(self._kept.count())

    def total(self, kind: str) -> list[str]:
        return [self._note(name) for name in self._kept.total(kind)]

    def end(self, *, is_last: bool) -> str:
        return self._note(self._kept.end(is_last=is_last))

    def computed(self, function: str, *args: str) -> str:
        return self._note(self._kept.computed(function, *args))

    def _note(self, name: str) -> str:
        self.names.add(name)
        return name


def term_of(value: Expression, sql: str = "") -> Term:
    """A value as a term; or SQL that is made of it, and fails where it does."""
    return Term(sql or emit(value), columns_of(value), value.fallible)


def _numbers(kind: str, sql: str, type_: SqlType) -> list[str]:
    """What a value gives to the parts of its exact sum: the number itself, where Arrow has it as an integer and a scale."""
    parts = [one for _, one in SUMS[kind](sql, type_)]
    return [sql] if kind == "sum" and len(parts) == 1 else [f"CAST({part} AS HUGEINT)" for part in parts]


def _place(known: dict[Item, int], item: Item) -> int:
    """The place of `item`, behind all others if it had none."""
    return known.setdefault(item, len(known))


def _places(items: Iterable[Item]) -> dict[Item, int]:
    return {item: index for index, item in enumerate(items)}


@dataclass(frozen=True, slots=True)
class AggregateLayout:
    groups: tuple[Expression, ...]
    kept: Accumulators
    values: tuple[Column, ...]
    finish: str
    finish_reads: frozenset[str]
    can_fail: bool
    has_having: bool
    shown: tuple[OutputColumn, ...]


def lay_out_aggregation(
    grouping: Grouping, outputs: Sequence[Output], having: Expression | None, finer: Finer | None = None
) -> AggregateLayout:
    known = [] if finer is None else finer.kept.record
    kept = Accumulators(finer)
    finished = [kept.finished(aggregate) for aggregate in grouping.aggregates]
    if finer is not None and finer.kept.record != known:
        raise InvariantBroken("a finer γ does not keep what a coarser one needs")
    names = [name for name, _ in kept.record] if having is None else []  # before the values that are computed
    stored = _places(names)
    values: dict[Expression, int] = {}
    shown: list[OutputColumn] = []
    for output in outputs:
        expression = output.expression
        column = Column(output.name, expression.type, expression.nullable or expression.fallible)
        match expression:
            case AggregationRef(source="group", position=index):
                shown.append(OutputColumn(column, "key", index))
            case AggregationRef(position=number) if finished[number].sql in stored:
                shown.append(OutputColumn(column, "row", stored[finished[number].sql]))
            case _:
                shown.append(OutputColumn(column, "row", len(names) + _place(values, expression)))
    finish, can_fail = _finish_sql(list(values), having, [one.sql for one in finished])
    columns = tuple(Column(value.text, value.type, value.nullable or value.fallible) for value in values)
    groups = grouping.groups if finer is None else finer.groups
    reads = set[str]()
    for part in chain.from_iterable(map(walk, [*values, *([] if having is None else [having])])):
        if isinstance(part, AggregationRef):
            reads |= {f"k{part.position}"} if part.source == "group" else finished[part.position].reads
    return AggregateLayout(groups, kept, columns, finish, frozenset(reads), can_fail, having is not None, tuple(shown))


def _finish_sql(values: Sequence[Expression], having: Expression | None, finished: Sequence[str]) -> tuple[str, bool]:
    """SELECT of the values `v0…`, of `shown` under HAVING, and of `fails` where one can fail; and whether one can."""
    wanted = [(f"v{index}", value) for index, value in enumerate(values)]
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
    columns.append(f"({' OR '.join(f'g{index} IS NULL' for index in range(len(tried)))}) AS fails")
    return f"SELECT {', '.join(columns)} FROM (SELECT *, {', '.join(tried)} FROM states)", True
