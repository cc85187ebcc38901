"""Bound relations by hand: small trees for tests that need no SQL.

In: tables, relations and column names. Out: what the binder would give. Always: a name is looked up in the columns of the
relation given, from the left; `place` tells the columns of later sides apart.
"""

from __future__ import annotations

from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import AggregationRef, ColumnRef, Expression, Literal
from viewkeeper.algebra.relations import (
    Aggregation,
    Grouping,
    Join,
    Ordering,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Top,
    Union,
)
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, BOOLEAN, INT, STRING


def table(number: int, name: str, *columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(TableId(number), name, columns, key)


ID = Column("id", BIGINT, nullable=False)
ORDERS = table(1, "orders", ID, Column("customer", BIGINT), Column("amount", INT), Column("paid", BOOLEAN))
CUSTOMERS = table(2, "customers", ID, Column("name", STRING), Column("region", STRING))
ITEMS = table(
    3, "items", Column("order_id", BIGINT), Column("line", INT), Column("product", STRING), key=("order_id", "line")
)
PAYMENTS = table(4, "payments", ID, Column("method", STRING))
ARCHIVE = table(5, "archive", ID, Column("customer", BIGINT), Column("amount", INT), Column("paid", BOOLEAN))


def column(relation: Relation, name: str, *, place: int = 0) -> ColumnRef:
    """The `place`-th column of that name."""
    found = [(at, one) for at, one in enumerate(relation.columns) if one.name == name]
    at, one = found[place]
    return ColumnRef(at, one.name, one.type, one.nullable)


def more(relation: Relation, name: str, value: int, *, place: int = 0) -> Expression:
    """`name > value`."""
    return construct.compare(">", column(relation, name, place=place), Literal(value, INT))


def where(relation: Relation, *conditions: Expression) -> Select:
    predicate = conditions[0]
    for condition in conditions[1:]:
        predicate = construct.logical("and", predicate, condition)
    return Select(relation, predicate)


def joined(kind: str, *sides: tuple[Relation, str], residual: Expression | None = None) -> Join:
    """Sides with the name of the one column that each is joined on."""
    keys = tuple((column(side, name),) for side, name in sides)
    return Join(kind, tuple(side for side, _ in sides), keys, residual)


def grouped(relation: Relation, names: tuple[str, ...], *aggregates: tuple[str, str | None]) -> Aggregation:
    """Groups by columns, and aggregates as (function, column); `count distinct` is a function here."""
    found = []
    for function, argument in aggregates:
        args = [] if argument is None else [column(relation, argument)]
        name, _, distinct = function.partition(" ")
        found.append(construct.aggregate(name, args, distinct=bool(distinct)))
    return Aggregation(relation, Grouping(tuple(column(relation, name) for name in names), tuple(found)))


def groups_of(aggregation: Aggregation) -> tuple[AggregationRef, ...]:
    """What stands directly above γ: its groups, then its aggregates."""
    groups = [AggregationRef("group", at, part) for at, part in enumerate(aggregation.grouping.groups)]
    return (
        *groups,
        *(AggregationRef("aggregate", at, part) for at, part in enumerate(aggregation.grouping.aggregates)),
    )


def shown(relation: Relation, *names: str) -> Project:
    """π of columns by name, `old as new` among them."""
    outputs = []
    for name in names:
        old, _, new = name.partition(" as ")
        outputs.append(Output(new or old, column(relation, old)))
    return Project(relation, tuple(outputs))


def aggregated(relation: Relation, aggregation: Aggregation, *names: str) -> Project:
    """π of all that γ gives, under `names`."""
    pairs = zip(names, groups_of(aggregation), strict=True)
    return Project(relation, tuple(Output(name, part) for name, part in pairs))


def first(relation: Relation, limit: int, name: str, *, descending: bool = False) -> Top:
    order = (Ordering(column(relation, name), descending, nulls_first=not descending),)
    return Top(relation, order, limit)


def scan(schema: TableSchema) -> Scan:
    return Scan(schema)


def all_of(*relations: Relation) -> Union:
    return Union(relations)
