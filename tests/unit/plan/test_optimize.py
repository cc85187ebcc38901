"""The optimizer keeps plans valid, comes to an end, and shares what is equal."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.support.plans import with_deltas, with_view
from viewkeeper.errors import InputError, InvariantBroken
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, INT, STRING
from viewkeeper.optimize.explain import explain
from viewkeeper.optimize.rules import RULES, optimize
from viewkeeper.plan.catalog import Catalog
from viewkeeper.plan.define import logical_plan
from viewkeeper.plan.logical import Delta, LogicalPlan, Project, Select, View, join_plans
from viewkeeper.plan.text import plan_text
from viewkeeper.plan.validate import validate_plan
from viewkeeper.plan.zones import zone_at

COLUMNS = (Column("k", BIGINT, nullable=False), Column("r", STRING), Column("n", INT))
CATALOG = Catalog().with_table(TableSchema(TableId(1), "t", COLUMNS, ("k",)))
QUERIES = ("SELECT k, n FROM t WHERE n > 1 AND r = 'x'", "SELECT r, SUM(n) FROM t WHERE n > 1 GROUP BY r")


def plan_of(*queries: str, before_images: bool = True) -> LogicalPlan:
    catalog = CATALOG if before_images else with_deltas(CATALOG)
    for place, query in enumerate(queries):
        catalog = with_view(catalog, f"v{place}", query)
    return join_plans(tuple(logical_plan(catalog, view) for view in catalog.views))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_keeps_a_plan_valid_and_its_views(rule) -> None:  # type: ignore[no-untyped-def]
    plan = plan_of(*QUERIES, *QUERIES)
    after = rule(plan)
    validate_plan(after)
    views = [node.name for node in after.nodes if isinstance(node, View)]
    assert views == ["v0", "v1", "v2", "v3"]


def test_the_optimizer_is_idempotent() -> None:
    once = optimize(plan_of(*QUERIES, *QUERIES))
    assert optimize(once) == once


def test_a_delta_goes_only_where_the_log_has_before_images() -> None:
    assert not any(isinstance(node, Delta) for node in optimize(plan_of(*QUERIES)).nodes)
    assert sum(isinstance(node, Delta) for node in optimize(plan_of(*QUERIES, before_images=False)).nodes) == 1


def test_the_conditions_of_a_view_are_one_selection() -> None:
    assert sum(isinstance(node, Select) for node in optimize(plan_of(QUERIES[0])).nodes) == 1
    assert sum(isinstance(node, Select) for node in optimize(plan_of(*QUERIES)).nodes) == 2


def test_zones_change_at_the_fold() -> None:
    plan = optimize(plan_of(QUERIES[1]))
    assert [zone_at(plan, place) for place in range(len(plan.nodes))] == ["t(k)", "t(k)", *["t by (r)"] * 3]


def test_a_broken_plan_is_caught() -> None:
    plan = plan_of(QUERIES[0])
    forward = LogicalPlan((*plan.nodes[:-1], replace(plan.nodes[-1], input=99)))  # type: ignore[arg-type]
    orphan = LogicalPlan((plan.nodes[0], *plan.nodes[:-1]))
    project = plan.nodes[-2]
    assert isinstance(project, Project)
    narrow = LogicalPlan(
        (*plan.nodes[:-1], replace(project, input=len(plan.nodes) - 2), View(len(plan.nodes) - 1, TableId(9), "w"))
    )
    for broken in (forward, orphan, narrow):
        with pytest.raises(InvariantBroken):
            validate_plan(broken)


def test_explain_says_who_shares_what() -> None:
    catalog = CATALOG
    for place, query in enumerate(QUERIES):
        catalog = with_view(catalog, f"v{place}", query)
    told = explain(catalog, None).splitlines()
    assert [line for line in told if "shared" in line] == ["r0 := base t(k, r, n)  -- shared by v0, v1"]
    assert "shared" not in explain(catalog, "V1")
    assert explain(CATALOG, None) == "no views"


def test_explain_has_three_forms() -> None:
    catalog = with_view(CATALOG, "v0", QUERIES[0])
    assert explain(catalog, "v0", form="mermaid").startswith("flowchart LR\n")
    assert explain(catalog, None, form="dot").startswith("digraph plan {\n")
    assert explain(CATALOG, None, form="mermaid") == "flowchart LR"
    assert "no views" in explain(CATALOG, None, form="dot")
    with pytest.raises(InputError, match="no form 'png'"):
        explain(catalog, None, form="png")


def test_the_text_is_the_same_in_every_process() -> None:
    script = "from tests.unit.plan.test_optimize import *; print(plan_text(optimize(plan_of(*QUERIES, *QUERIES))))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=_environment(seed)
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {plan_text(optimize(plan_of(*QUERIES, *QUERIES))) + "\n"}


def _environment(seed: str) -> dict[str, str]:
    import os
    from pathlib import Path

    root = Path(__file__).parents[3]
    return os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
