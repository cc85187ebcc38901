"""The catalog is a value: names are one space, ids are never used again, JSON goes both ways."""

from __future__ import annotations

import json

import pytest

from tests.support.plans import nodes_of, with_view
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import DuplicateName, InvariantBroken, NameInUse, UnknownName, UnsupportedSql
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, DOUBLE, INT, STRING
from viewkeeper.plan.define import define_index, define_view
from viewkeeper.plan.nodes import OutputColumn
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan

COLUMNS = (Column("A", STRING, False), Column("b", INT, False), Column("c", DOUBLE), Column("d", BIGINT))


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog().with_table(TableSchema(TableId(1), "Base", COLUMNS, ("b", "A")))
    catalog = with_view(catalog, "Sel", "SELECT a AS x, d FROM base WHERE c > 1")
    catalog = with_view(catalog, "agg", "SELECT COUNT(*) FROM base GROUP BY d, c")
    return catalog.with_view(*define_index(catalog, "idx", "BASE", ("D", "a"), ("C",)))


def test_names_are_found_in_any_case_and_keep_their_spelling(catalog: Catalog) -> None:
    assert catalog.table("bASE").name == "Base"
    assert catalog.view("SEL").name == "Sel"
    assert catalog.has("IDX") and not catalog.has("nope")


def test_an_unknown_name_is_told_what_was_meant(catalog: Catalog) -> None:
    with pytest.raises(UnknownName, match="there is no table bas; did you mean Base?"):
        catalog.table("bas")
    with pytest.raises(UnknownName, match="Sel is a view, not a table"):
        catalog.table("Sel")
    with pytest.raises(UnknownName, match="there is no table or view sal; did you mean Sel?"):
        define_view(catalog, "v", "SELECT x FROM sal")
    with pytest.raises(UnsupportedSql, match="idx is an index, which a view cannot read"):
        define_view(catalog, "v", "SELECT * FROM idx")
    with pytest.raises(UnknownName, match="Base is a table, not a view"):
        catalog.view("Base")


def test_tables_and_views_share_one_namespace(catalog: Catalog) -> None:
    with pytest.raises(DuplicateName, match="there is a view Sel already"):
        catalog.with_table(TableSchema(TableId(catalog.next_id), "sel", COLUMNS, ("A",)))
    with pytest.raises(DuplicateName, match="there is a table Base already"):
        with_view(catalog, "BASE", "SELECT d FROM base")


def test_a_definition_for_another_catalog_is_refused(catalog: Catalog) -> None:
    view = define_view(catalog, "v", "SELECT d FROM base")
    with pytest.raises(InvariantBroken):
        with_view(catalog.without_view("idx", 3), "w", "SELECT d FROM base").with_view(*view)


def test_a_table_that_views_read_cannot_be_dropped(catalog: Catalog) -> None:
    with pytest.raises(NameInUse, match="table Base is read by Sel, agg, idx; drop the views first"):
        catalog.without_table("base", 7)


def test_ids_are_never_used_again(catalog: Catalog) -> None:
    smaller = catalog.without_view("idx", 5).without_view("agg", 6).without_view("SEL", 6).without_table("base", 7)
    assert (smaller.tables, smaller.views) == ((), ())
    assert smaller.dropped == ((7, 5), (5, 6), (3, 6), (1, 7))
    assert smaller.next_id == 8 and smaller.version == 8


def test_json_goes_both_ways_and_is_the_same_text(catalog: Catalog) -> None:
    text = json.dumps(catalog.without_view("agg", 3).to_json())
    again = Catalog.from_json(json.loads(text))
    assert again == catalog.without_view("agg", 3)
    assert json.dumps(again.to_json()) == text


def test_the_physical_plan_goes_to_json_and_back(catalog: Catalog) -> None:
    plan = physical_plan(catalog)
    assert [node.table for node in plan.nodes] == [3, 5, 7]
    assert PhysicalPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.schema(TableId(1)).name == "Base"


def test_a_selection_is_kept_under_the_base_key_shown_or_not(catalog: Catalog) -> None:
    view = catalog.view("sel")
    assert view.kind == "SELECTION"
    assert [column.name for column in view.key] == ["b", "x"]
    assert view.shown == (
        OutputColumn(Column("x", STRING, False), "key", 1),
        OutputColumn(Column("d", BIGINT), "row", 0),
    )
    assert nodes_of(catalog, "sel")[0].edges[0].columns == (0, 1, 2, 3)


def test_an_aggregate_is_kept_under_its_groups(catalog: Catalog) -> None:
    view = catalog.view("agg")
    assert (view.kind, [column.name for column in view.key]) == ("AGGREGATE", ["d", "c"])
    assert view.shown == (OutputColumn(Column("count(*)", BIGINT, False), "row", 0),)


def test_an_index_is_kept_under_its_columns_and_the_rest_of_the_key(catalog: Catalog) -> None:
    view = catalog.view("idx")
    assert view.text == "CREATE INDEX idx ON Base (d, A) INCLUDE (c)"
    assert [column.name for column in view.key] == ["d", "A", "b"]
    assert [(shown.column.name, shown.part) for shown in view.shown] == [
        ("d", "key"), ("A", "key"), ("b", "key"), ("c", "row"),
    ]  # fmt: skip


def test_an_index_does_not_cover_what_it_holds_already(catalog: Catalog) -> None:
    with pytest.raises(UnsupportedSql, match="INCLUDE names the key column b"):
        define_index(catalog, "i", "base", ("d",), ("B",))
    with pytest.raises(DuplicateName):
        define_index(catalog, "i", "base", ("d", "D"))
    with pytest.raises(UnknownName):
        define_index(catalog, "i", "base", ("nope",))
