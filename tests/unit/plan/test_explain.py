"""EXPLAIN of a catalog: its forms, what it shares, and that it is the same everywhere."""

from __future__ import annotations

import pytest

from tests.support.plans import with_deltas, with_view
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import InputError
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, INT, STRING
from viewkeeper.plan.explain.explain import explain

COLUMNS = (Column("k", BIGINT, nullable=False), Column("r", STRING), Column("n", INT))
CATALOG = Catalog().with_table(TableSchema(TableId(1), "t", COLUMNS, ("k",)))
QUERIES = ("SELECT k, n FROM t WHERE n > 1 AND r = 'x'", "SELECT r, SUM(n) FROM t WHERE n > 1 GROUP BY r")


def catalog_of(*queries: str, before_images: bool = True) -> Catalog:
    catalog = CATALOG if before_images else with_deltas(CATALOG)
    for place, query in enumerate(queries):
        catalog = with_view(catalog, f"v{place}", query)
    return catalog


def test_a_delta_is_there_only_where_the_log_has_no_before_images() -> None:
    assert "δ" not in explain(catalog_of(*QUERIES), None)
    assert explain(catalog_of(*QUERIES, before_images=False), None).count(":= δ r0 [stored]") == 1


def test_zones_change_at_the_aggregation() -> None:
    told = explain(catalog_of(QUERIES[1]), None).splitlines()
    assert [line for line in told if line.startswith("-- zone")] == ["-- zone t(k)", "-- zone t by (r)"]


def test_explain_says_who_shares_what() -> None:
    catalog = catalog_of(*QUERIES)
    told = explain(catalog, None).splitlines()
    assert [line for line in told if "shared" in line] == ["r0 := base t(k, r, n)  -- shared by v0, v1"]
    assert "shared" not in explain(catalog, "V1")
    assert explain(CATALOG, None) == "no views"


def test_a_grouping_that_two_views_show_in_another_order_is_one_line() -> None:
    catalog = catalog_of(
        "SELECT r, COUNT(*) AS c, SUM(n) AS s FROM t GROUP BY r", "SELECT SUM(n), COUNT(*), r FROM t GROUP BY r"
    )
    told = explain(catalog, None)
    assert told.count(":= γ") == 1 and "π r1 (sum(n), count(*), r)" in told


def test_explain_has_three_forms() -> None:
    catalog = catalog_of(QUERIES[0])
    assert explain(catalog, "v0", form="mermaid").startswith("flowchart LR\n")
    assert explain(catalog, None, form="dot").startswith("digraph plan {\n")
    assert explain(CATALOG, None, form="mermaid") == "flowchart LR"
    assert "no views" in explain(CATALOG, None, form="dot")
    with pytest.raises(InputError, match="no form 'png'"):
        explain(catalog, None, form="png")
