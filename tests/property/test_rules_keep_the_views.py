"""Every rule of the optimizer keeps the answer: with the rule off, views over drawn tables hold the same rows.

The views are drawn from a seed: two to four tables, joined and compared at random. Many are only computed, by DuckDB, from
the relation with the rule off; some are kept by epochs, with conditions that fail on some rows. Where a rule changes nothing,
nothing is proved: each rule must have changed the plan of some view.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import viewkeeper as vk
from tests.support.bind_tables import TABLES, bind, load, rows_drawn, scan_sql
from tests.support.random_plans import RandomOracle, plan_world
from tests.support.random_tables import TABLES as WORLD_TABLES
from tests.support.running import keep_up
from tests.support.tiers import examples
from viewkeeper.client import statements
from viewkeeper.codegen.relation_sql import relation_sql
from viewkeeper.errors import SqlError, UnknownName
from viewkeeper.plan.define import lower
from viewkeeper.plan.explain.explain import plan_lines
from viewkeeper.plan.explain.plan_lines import OPERATOR, VIEW
from viewkeeper.plan.optimize import optimize, rules_over
from viewkeeper.plan.planner import physical_plan

SETS = examples(3, deep=8)
VIEWS = 6
RULES = [rule.name for rule in rules_over("relation") if not rule.is_needed]
NUMBERS = {"a": ("k", "x", "y"), "b": ("k", "x", "z"), "c": ("k", "x"), "d": ("k", "x")}


def drawn_view(choose: random.Random, *, may_fail: bool) -> str:
    """A SELECT over tables that are joined in a chain, or all on one key."""
    names = choose.sample(sorted(NUMBERS), choose.randint(2, 4))
    on_one_key = choose.random() < 0.4
    ties = [
        f"{left}.{'x' if on_one_key else choose.choice(NUMBERS[left])} = "
        f"{right}.{'x' if on_one_key else choose.choice(NUMBERS[right])}"
        for left, right in zip(names, names[1:], strict=False)
    ]
    others = [drawn_condition(choose, names, may_fail=may_fail) for _ in range(choose.randint(1, 3))]
    if choose.random() < 0.5:
        both = f"{choose.choice(names)}.x > 1"
        other = drawn_condition(choose, names, may_fail=may_fail)
        others.append(f"(({both} AND {names[0]}.k <> 3) OR ({other} AND {both}))")
    shown = ", ".join(f"{name}.k AS {name}" for name in names)
    if choose.random() < 0.5:
        where = choose.sample(ties + others, len(ties + others))
        return f"SELECT {shown} FROM {', '.join(names)} WHERE {' AND '.join(where)}"
    kinds = [choose.choice(["", "LEFT ", "RIGHT ", "FULL "]) for _ in ties]
    joins = [
        f" {kind}JOIN {right} ON {tie}{choose.choice(['', f' AND {right}.k > 1'])}"
        for kind, right, tie in zip(kinds, names[1:], ties, strict=True)
    ]
    return f"SELECT {shown} FROM {names[0]}{''.join(joins)} WHERE {' AND '.join(others)}"


def drawn_condition(choose: random.Random, names: list[str], *, may_fail: bool) -> str:
    left, right = (f"{name}.{choose.choice(NUMBERS[name])}" for name in choose.choices(names, k=2))
    fails = [f"12 / {left} > 2"] if may_fail else []
    return choose.choice([f"{left} > 2", f"{left} <= {right}", f"{left} IS NULL", f"{left} <> 5", *fails])


def database(folder: Path, rules_off: tuple[str, ...], seed: int) -> vk.Database:
    db = vk.connect(f"embedded:{folder}?sync=off")
    db.change_catalog(lambda catalog: replace(catalog, version=catalog.version + 1, rules_off=rules_off))
    for name, table in TABLES.items():
        columns = (f"{column.name} {column.type}{' PRIMARY KEY' * (column.name == 'k')}" for column in table.columns)
        db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        names = [column.name for column in table.columns]
        db.table(name).put_many([dict(zip(names, row, strict=True)) for row in rows_drawn(seed)[name]])
    return db


def define(db: vk.Database, views: list[str]) -> dict[str, str]:
    """The views that are not refused: some have no plan without a rule, and some read what is not there."""
    made = {}
    for number, text in enumerate(views):
        try:
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {text}")
        except (SqlError, UnknownName):
            continue
        made[f"v{number}"] = text
    return made


@pytest.mark.parametrize("rule", RULES)
def test_a_relation_gives_the_same_rows_with_a_rule_off(rule: str) -> None:
    choose, changed, rows = random.Random(rule), 0, 0
    with duckdb.connect() as connection:
        load(connection, rows_drawn(3))
        for _ in range(examples(80, deep=300)):
            text = drawn_view(choose, may_fail=False)
            every, without = optimize(bind(text)), optimize(bind(text), without=[rule])
            expected = Counter(connection.sql(text).fetchall())
            for relation in (every, without):
                assert Counter(connection.sql(relation_sql(relation, scan_sql)).fetchall()) == expected, text
            changed, rows = changed + (every != without), rows + expected.total()
    assert changed and rows


@pytest.mark.parametrize("seed", range(SETS))
def test_a_view_holds_the_same_with_a_rule_off(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all others on, whatever costs less."""
    monkeypatch.setattr(statements, "estimate_for", lambda store, catalog: None)
    choose = random.Random(seed)
    views = [drawn_view(choose, may_fail=True) for _ in range(VIEWS)]
    with database(tmp_path / "all", (), seed) as every:
        made = define(every, views)
        keep_up(every)
        held = {name: Counter(map(repr, every.view(name).scan())) for name in made}
        for rule in RULES:
            with database(tmp_path / rule, (rule,), seed) as db:
                for name, text in define(db, views).items():
                    plans = [lower(one.catalog(), one.catalog().view(name)).texts for one in (every, db)]
                    CHANGED[rule] += plans[0] != plans[1]
                    assert name in made, f"{text} has a plan only without {rule}"
                keep_up(db)
                for name in db.catalog().views:
                    found = Counter(map(repr, db.view(name.name).scan()))
                    assert found == held[name.name], f"{made[name.name]} without {rule}"
    CHANGED["sets"] += 1
    CHANGED["rows"] += sum(rows.total() for rows in held.values())


CHANGED: Counter[str] = Counter()


def test_every_rule_changed_a_plan() -> None:
    if CHANGED["sets"] < SETS:
        pytest.skip("only some sets were asked for, and what all of them show is judged here")
    assert CHANGED["rows"] > SETS
    assert [rule for rule in RULES if not CHANGED[rule]] == []


@pytest.mark.parametrize("seed", range(1, 1 + examples(2, deep=8)))
def test_explain_prints_the_nodes_that_an_epoch_runs(seed: int, tmp_path: Path) -> None:
    """Over the random views of a whole world: each of its nodes is printed, and nothing else that is stored."""
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        for shape in WORLD_TABLES:
            db.execute(shape.ddl)
        define(db, [view.sql.view for view in plan_world(seed, RandomOracle(), views=12, steps=1).views])
        catalog = db.catalog()
        assert catalog.views
        for view in catalog.views:
            assert stored(plan_lines(catalog, (view,))) == set(view.needs), view.text
        assert stored(plan_lines(catalog, catalog.views)) == {node.table for node in physical_plan(catalog).nodes}


def stored(lines) -> set[int]:  # type: ignore[no-untyped-def]
    return {line.stored for line in lines if line.kind in (OPERATOR, VIEW) and line.stored is not None}
