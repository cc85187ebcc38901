"""A bound query has names, types and positions; groups and aggregates are found inside expressions."""

from __future__ import annotations

import re

import pytest
from sqlglot import exp

from viewkeeper.algebra.expressions import AggregationRef, ColumnRef, columns_of
from viewkeeper.algebra.relations import (
    Aggregation,
    Grouping,
    Output,
    Project,
    Relation,
    Scan,
    expressions_of,
    walk_relations,
)
from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, DOUBLE, INT, STRING, decimal
from viewkeeper.sql.bind_expression import bind_expression
from viewkeeper.sql.bind_query import bind_query
from viewkeeper.sql.scope import Scope, Source, names_of

TABLE = TableSchema(
    TableId(1),
    "Orders",
    (
        Column("Id", BIGINT, nullable=False),
        Column("region", STRING),
        Column("amount", INT),
        Column("price", decimal(10, 2)),
    ),
    ("Id",),
)


def bind(text: str) -> Relation:
    return bind_query(text, lambda name: Scan(TABLE))


def outputs(relation: Relation) -> tuple[Output, ...]:
    assert isinstance(relation, Project)
    return relation.outputs


def grouping(relation: Relation) -> Grouping:
    """The only γ of the tree."""
    (aggregation,) = [node for node in walk_relations(relation) if isinstance(node, Aggregation)]
    return aggregation.grouping


def names(text: str) -> list[str]:
    return [output.name for output in outputs(bind(text))]


def columns_read(relation: Relation) -> tuple[int, ...]:
    """Positions of the table's columns that the tree refers to."""
    return columns_of(*(part for node in walk_relations(relation) for part in expressions_of(node)))


def test_a_column_keeps_its_declared_spelling_and_an_expression_its_canonical_text() -> None:
    assert names("SELECT ID, Amount  +1, Price*2 AS Twice FROM orders") == ["Id", "amount + 1", "Twice"]
    assert names("SELECT COUNT( * ), SUM(Price) FROM orders") == ["count(*)", "sum(price)"]


def test_an_aggregate_of_conditions_keeps_its_name_in_that_of_a_column() -> None:
    assert names("SELECT BOOL_AND(Id > 1), MIN(Id > 1), NOT bool_or(Id = 2) FROM orders") == [
        "bool_and(id > 1)",
        "min(id > 1)",
        "not bool_or(id = 2)",
    ]
    assert names("SELECT COUNT_IF(region = 'A'), COUNT(*) FILTER (WHERE region = 'A') FROM orders") == [
        "count_if(region = 'A')",
        "count(*) filter (where region = 'A')",
    ]
    assert names(
        "SELECT BOOL_OR(Id = 1) FILTER (WHERE Id > 0), COUNT_IF(Id = 1) FILTER (WHERE Id > 0) FROM orders"
    ) == [
        "bool_or(id = 1) filter (where id > 0)",
        "count_if((id > 0) and (id = 1))",
    ]
    two = bind("SELECT BOOL_AND(Id > 1), MIN(Id > 1) FROM orders")
    assert [aggregate.text for aggregate in grouping(two).aggregates] == ["min(id > 1)"]


def test_star_gives_all_columns_and_mixes_with_others() -> None:
    assert names("SELECT o.*, amount + 1 AS x FROM orders o") == ["Id", "region", "amount", "price", "x"]


def test_only_the_columns_read_are_named() -> None:
    assert columns_read(bind("SELECT region FROM orders WHERE amount > 1")) == (1, 2)
    assert columns_read(bind("SELECT COUNT(*) FROM orders")) == ()


def test_group_by_takes_columns_expressions_places_and_aliases() -> None:
    grouped = bind("SELECT amount % 2 AS parity, region, COUNT(*) FROM orders GROUP BY parity, 2")
    assert [group.text for group in grouping(grouped).groups] == ["amount % 2", "region"]
    again = bind("SELECT 1 + amount % 2 AS x, COUNT(*) FROM orders GROUP BY amount % 2")
    assert isinstance(outputs(again)[0].expression.args[1], AggregationRef)  # type: ignore[union-attr]


def test_a_column_goes_before_an_alias_of_the_same_name_in_group_by() -> None:
    with pytest.raises(SqlError, match="amount is neither grouped nor aggregated"):
        bind("SELECT amount AS region, COUNT(*) FROM orders GROUP BY region")


def test_one_aggregate_written_twice_is_one() -> None:
    query = bind("SELECT SUM(amount) AS a, SUM(amount) / COUNT(*) AS b FROM orders")
    assert [aggregate.text for aggregate in grouping(query).aggregates] == ["sum(amount)", "count(*)"]
    assert outputs(query)[1].expression.type == DOUBLE


def test_nullability_and_failure_are_known() -> None:
    query = bind("SELECT Id, amount + 1 AS a, coalesce(amount, 0) AS b, price + 1 AS c, Id / 2 AS d FROM orders")
    facts = [(output.expression.nullable, output.expression.fallible) for output in outputs(query)]
    assert facts == [(False, False), (True, True), (False, False), (True, False), (False, False)]


def test_equal_expressions_are_equal_values() -> None:
    assert bind("SELECT amount+1 AS x FROM orders") == bind("SELECT ( Amount + 1 ) AS x FROM ORDERS")
    assert bind("SELECT amount + 1 AS x FROM orders") != bind("SELECT amount + 1L AS x FROM orders")


def test_a_nest_that_is_too_deep_is_refused_and_not_a_recursion_error() -> None:
    with pytest.raises(UnsupportedSql, match="deep"):
        bind(f"SELECT {'+'.join(['amount'] * 150)} AS x FROM orders")
    with pytest.raises(SqlError):
        bind(f"SELECT {'(' * 3000}amount{')' * 3000} AS x FROM orders")


def test_positions_are_those_of_the_table() -> None:
    assert outputs(bind("SELECT price FROM orders"))[0].expression == ColumnRef(3, "price", decimal(10, 2), True)


def test_not_like_is_the_negation_of_like() -> None:
    assert bind("SELECT region NOT LIKE 'a%' AS x FROM orders") == bind(
        "SELECT NOT (region LIKE 'a%') AS x FROM orders"
    )


def test_a_flag_of_the_tree_that_has_no_rule_is_refused_and_never_passed_over() -> None:
    tree = exp.Abs(this=exp.column("amount"))
    tree.args["surprise"] = True
    with pytest.raises(UnsupportedSql, match="surprise"):
        bind_expression(tree, Scope(names_of(TABLE.columns, "orders"), (Source("orders", "table Orders"),)))


@pytest.mark.parametrize("expression", ["IF(amount > 1, 1)", "amount IN ()", "COUNT()"])
def test_what_spark_would_not_accept_is_refused(expression: str) -> None:
    with pytest.raises(SqlError):
        bind(f"SELECT {expression} AS e FROM orders")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COUNT_IF(DISTINCT amount > 1)", "COUNT_IF(DISTINCT …) is not supported"),
        ("COUNT_IF(amount)", "COUNT_IF needs a BOOLEAN"),
        ("(SUM(amount)) FILTER (WHERE amount > 1)", "FILTER must follow an aggregate call"),
    ],
)
def test_an_aggregate_that_spark_would_not_read_so_is_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)):
        bind(f"SELECT {text} FROM orders")
