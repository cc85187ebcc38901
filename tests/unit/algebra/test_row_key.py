"""Row keys: what identifies the rows of a relation, and that lowering keeps records under exactly that."""

from __future__ import annotations

from contextlib import suppress

import pytest

import viewkeeper as vk
from tests.support.random_plans import RandomOracle, plan_world
from tests.support.random_tables import TABLES
from tests.support.relations import CUSTOMERS, ORDERS, column, joined, shown
from tests.support.tiers import examples
from tests.support.views_by_hand import VIEWS
from viewkeeper.algebra.relations import Index, Relation, Scan, Top, Union, walk_relations
from viewkeeper.algebra.row_key import has_row_key, looked_up, row_key
from viewkeeper.errors import SqlError, UnknownName
from viewkeeper.plan.define import lower
from viewkeeper.plan.nodes import JoinNode, Node, TopNode
from viewkeeper.plan.share_nodes import placed_nodes

orders, customers = Scan(ORDERS), Scan(CUSTOMERS)


def parts(relation: Relation) -> list[tuple[str, int, list[int]]]:
    named = [(one.origin.table.name if isinstance(one.origin, Scan) else "", one) for one in row_key(relation)]
    return [(name, one.number, sorted(one.columns)) for name, one in named]


def test_a_side_that_is_looked_up_adds_nothing_to_the_key() -> None:
    bought = joined("inner", (orders, "customer"), (customers, "id"))
    assert looked_up(bought) == {1}
    assert parts(bought) == [("orders", 0, [0])]
    assert has_row_key(bought, [column(bought, "id")])
    assert parts(joined("inner", (orders, "customer"), (orders, "customer"))) == [
        ("orders", 0, [0]),
        ("orders", 0, [4]),
    ]


def test_a_key_that_is_shown_twice_is_in_both_columns_and_one_that_is_not_in_none() -> None:
    assert parts(shown(orders, "id", "amount", "id")) == [("orders", 0, [0, 2])]
    hidden = shown(orders, "amount")
    assert parts(hidden) == [("orders", 0, [])] and not has_row_key(hidden, [column(hidden, "amount")])


@pytest.mark.parametrize("kind", ["left", "full"])
def test_the_columns_of_a_full_join_may_be_equal_in_two_rows(kind: str) -> None:
    pairs = joined(kind, (orders, "customer"), (orders, "customer"))
    assert [columns for _, _, columns in parts(pairs)] == ([[0], [4]] if kind == "left" else [[], []])


def test_semi_and_anti_joins_have_the_key_of_their_first_side() -> None:
    assert parts(VIEWS["semi"]) == [("orders", 0, [0])]
    assert parts(VIEWS["anti"]) == [("customers", 0, [])]


@pytest.mark.parametrize("seed", range(1, 1 + examples(3, deep=15)))
def test_the_records_of_every_node_are_under_the_row_key(seed: int) -> None:
    """A union's records may have more columns, and those of a full join the sides that a row has."""
    compared = 0
    with vk.connect(f"memory:row-keys-{seed}") as db:
        for table in TABLES:
            db.execute(table.ddl)
        for number, view in enumerate(plan_world(seed, RandomOracle(), views=15, steps=1).views):
            with suppress(SqlError, UnknownName):
                db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {view.sql.view}")
        for one in db.catalog().views:
            lowered = lower(db.catalog(), one)
            nodes = dict(zip(lowered.texts, placed_nodes(lowered, db.catalog().stored(one)), strict=True))
            for relation, texts in lowered.relations.items():
                if not any(isinstance(part, Union) for part in walk_relations(relation)):
                    for text in texts:
                        assert len(row_key(relation)) == key_length(nodes[text]), text
                        compared += 1
    assert compared


def key_length(node: Node) -> int:
    if isinstance(node, JoinNode):
        return len(node.given_key) - (node.tag_place is not None)
    return 1 if isinstance(node, TopNode) else len(node.key)


def test_an_index_and_a_top_n_have_keys_of_their_own() -> None:
    index = Index(orders, (1,), (2,))
    assert [sorted(one.columns) for one in row_key(index)] == [[0], [1]]
    (rank,) = row_key(VIEWS["top"])
    assert isinstance(rank.origin, Top) and not rank.columns
