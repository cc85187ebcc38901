"""Choosing between plans: by the cost model's estimate, beside what is there, and never at the cost of a view's key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.work_stats import Counts, Kinds, WorkStats
from viewkeeper.plan.choose import choose_plans
from viewkeeper.plan.cost.cost_model import PlanModel
from viewkeeper.plan.cost.statistics import Statistics, among_which, distinct
from viewkeeper.plan.define import plans_of, relation_of
from viewkeeper.plan.lower import Lowered

TABLES = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, region INT, shop BIGINT, amount INT);
CREATE TABLE shops (id BIGINT PRIMARY KEY, region INT, name STRING);
CREATE TABLE parts (id BIGINT PRIMARY KEY, shop BIGINT, price INT)
"""
BY_PART = "SELECT shop, COUNT(*) AS n, SUM(amount) AS s FROM orders WHERE amount = {} GROUP BY shop"
FINE = "SELECT shop, amount, COUNT(*) AS n FROM orders GROUP BY shop, amount"
ON_ONE_KEY = (
    "SELECT s.region, COUNT(*) AS n FROM orders o JOIN shops s ON o.shop = s.id JOIN parts p ON p.shop = s.id "
    "WHERE s.region IN (3, 9) GROUP BY s.region"
)


def catalog_of(texts: Sequence[str]) -> Catalog:
    with vk.connect(f"memory:choose-{abs(hash(tuple(texts)))}") as db:
        db.execute(TABLES)
        for number, text in enumerate(texts):
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {text}")
        return db.catalog()


def statistics_of(catalog: Catalog, rows: int, groups: Sequence[int], changes: int) -> Statistics:
    orders = catalog.table("orders").id
    return Statistics(
        rows={table.id: rows for table in catalog.tables},
        records={view.node.table: count for view, count in zip(catalog.views, groups, strict=False)},
        measured=WorkStats(epochs=1, counts=Counts(changes={orders: Kinds(updates=changes)})),
    )


def parts_chosen(
    texts: Sequence[str], rows: int, groups: Sequence[int], changes: int, bytes_moved: float = 1.0
) -> list[int]:
    """The sizes of the parts that are computed together, the largest first."""
    catalog = catalog_of(texts)
    known = statistics_of(catalog, rows, groups, changes)
    sizes: Mapping = {**known.rows, **known.records}
    views = {view.id: view for view in catalog.views}
    chosen = choose_plans(catalog, views, sizes, PlanModel(catalog, known, bytes_moved=bytes_moved))
    return sorted((len(one.views) for one in chosen), reverse=True)


def test_views_of_unlike_rows_share_where_bytes_are_cheap_and_not_where_each_is_moved_forty_times() -> None:
    texts = [BY_PART.format(amount) for amount in range(30)]
    many, few = {"rows": 1_000_000, "groups": [90_000] * 30}, {"rows": 1_000_000, "groups": [1_000] * 30}
    assert parts_chosen(texts, **many, changes=10_000) == [30]
    assert parts_chosen(texts, **many, changes=10_000, bytes_moved=40.0)[0] < 5
    assert parts_chosen(texts, **few, changes=10_000, bytes_moved=40.0) == [30]  # few records are met, often


@pytest.mark.parametrize(
    ("coarse", "parts"),
    [
        ("SELECT amount, MIN(region) AS lo, MAX(region) AS hi FROM orders GROUP BY amount", [1, 1]),
        ("SELECT amount, SUM(region) AS s FROM orders GROUP BY amount", [1, 1]),
    ],
)
def test_many_groups_do_not_feed_few_where_that_makes_their_records_larger(coarse: str, parts: list[int]) -> None:
    assert parts_chosen([FINE, coarse], 20_000, [18_000, 100], 2_000) == parts


def test_few_groups_feed_fewer() -> None:
    fine, coarse = (f"SELECT {by}, SUM(amount) AS s FROM orders GROUP BY {by}" for by in ("shop", "shop % 10"))
    coarse = coarse.replace("SELECT shop % 10", "SELECT shop % 10 AS g")
    assert parts_chosen([fine, coarse], 1_000_000, [1_000, 10], 20_000) == [2]


@pytest.mark.parametrize(("views", "parts"), [(32, [32]), (33, [17, 16])])
def test_one_copy_has_room_for_the_columns_of_32_views(views: int, parts: list[int]) -> None:
    texts = [f"SELECT id, amount FROM orders WHERE amount > {number}" for number in range(views)]
    assert parts_chosen(texts, 1_000, [900] * views, 1_000) == parts


def test_without_a_model_all_that_can_share_does() -> None:
    catalog = catalog_of([FINE, "SELECT amount, MIN(region) AS lo FROM orders GROUP BY amount"])
    views = {view.id: view for view in catalog.views}
    assert [len(one.views) for one in choose_plans(catalog, views, {}, None)] == [2]


def lowered_plans(text: str) -> tuple[Catalog, dict[tuple[str, ...], Lowered]]:
    catalog = catalog_of([text])
    return catalog, plans_of(relation_of(catalog, catalog.view("v0")))


def test_the_plans_of_a_view_have_one_key_and_differ_in_their_nodes() -> None:
    _, plans = lowered_plans(ON_ONE_KEY)
    assert next(iter(plans)) == () and ("join_on_one_key",) in plans
    assert len({plan.texts for plan in plans.values()}) == len(plans)
    assert len({(plan.root.key, plan.shown) for plan in plans.values()}) == 1


def test_a_plan_under_another_key_is_none() -> None:
    """As a join of three sides, only parts tell its rows apart; by twos, a shop that parts are joined to does too."""
    text = "SELECT a.id, b.name, p.id AS p FROM shops a JOIN shops b ON a.id = b.id JOIN parts p ON p.shop = b.id"
    _, plans = lowered_plans(text)
    assert list(plans) == [()]


def test_a_node_that_is_there_costs_nothing() -> None:
    catalog, plans = lowered_plans(ON_ONE_KEY)
    model = PlanModel(catalog, statistics_of(catalog, 20_000, (), 2_000))
    for plan in plans.values():
        alone = model.seconds([plan])
        assert alone > 0 and model.seconds([plan, plan]) == pytest.approx(alone)
        assert model.seconds([plan], beside=plan.texts) == 0


def test_create_leaves_a_rule_out_where_that_costs_less_and_rows_are_known() -> None:
    with vk.connect("memory:choose-at-create") as db:
        db.execute(TABLES)
        db.execute(f"CREATE MATERIALIZED VIEW early AS {ON_ONE_KEY}")
        db.table("orders").put_many([{"id": k, "region": k % 10, "shop": k % 300, "amount": k} for k in range(6_000)])
        db.table("shops").put_many([{"id": k, "region": k % 10, "name": f"{k}"} for k in range(300)])
        db.table("parts").put_many([{"id": k, "shop": k % 300, "price": k} for k in range(1_200)])
        late, again = ON_ONE_KEY.replace("(3, 9)", "(2, 4)"), "early_again"
        db.execute(f"CREATE MATERIALIZED VIEW late AS {late}; CREATE MATERIALIZED VIEW {again} AS {ON_ONE_KEY}")
        found = {view.name: view.rules_off for view in db.catalog().views}
        assert found == {
            "early": (),
            "late": ("join_on_one_key",),
            again: (),
        }  # an equal one is there: no plan is cheaper
        db.execute("CREATE MATERIALIZED VIEW above AS SELECT n, COUNT(*) AS c FROM late GROUP BY n")
        assert set(db.catalog().view("late").needs) < set(db.catalog().view("above").needs)  # found by its own rules
        db.execute(f"DROP VIEW {again}")
        keep_up(db)
        for _ in range(2):
            for name, text in {"early": ON_ONE_KEY, "late": late}.items():
                assert list(db.view(name).scan()) == db.execute(f"{text} ORDER BY region").to_dicts()
            db.execute("OPTIMIZE VIEWS")
            keep_up(db)
        assert db.catalog().view("early").rules_off == ("join_on_one_key",)


@pytest.mark.parametrize(("rows", "groups"), [(1_000, 7), (1_000, 500), (20_000, 18_000), (50, 50)])
def test_how_many_groups_there_can_be_follows_from_how_many_rows_have(rows: int, groups: int) -> None:
    assert distinct(rows, among_which(rows, groups)) == pytest.approx(groups, rel=1e-3)
