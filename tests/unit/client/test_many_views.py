"""With many views a statement takes hardly more steps than with few: it does what it changes. Counted, not timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.steps import steps_of
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.plan.planner import physical_plan

FEW, MANY = 18, 72
OTHERS = 1_000  # from here on texts are of one test alone: what is known of a text is known in the whole process
TEXTS = (
    "SELECT k, a + {n} AS x FROM t WHERE b > {n}",
    "SELECT s, SUM(a) AS x, COUNT(*) AS n FROM t WHERE b > {n} GROUP BY s",
    "SELECT x.k, x.a, y.s FROM t x JOIN t y ON x.a = y.k WHERE x.b > {n}",
)


@pytest.fixture(params=["memory:", "embedded:{folder}?sync=off"], ids=["memory", "embedded"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(request.param.format(folder=tmp_path / "s")) as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, a BIGINT, b BIGINT, s STRING)")
        yield db


def create(db: vk.Database, numbers: range) -> None:
    for n in numbers:
        db.execute(f"CREATE MATERIALIZED VIEW v{n} AS {TEXTS[n % 3].format(n=n)}")


def steps_of_another(db: vk.Database, number: int, *, do: Callable[[], object] | None = None) -> int:
    """Of the next view of each kind, or of what is done once they are there."""
    if do is None:
        return steps_of(lambda: create(db, range(number, number + 3)))
    create(db, range(number, number + 3))
    return steps_of(do)


def test_a_create_takes_as_many_steps_with_many_views_as_with_few(db: vk.Database) -> None:
    create(db, range(FEW))
    few = steps_of_another(db, FEW)
    create(db, range(FEW + 3, MANY))
    many = steps_of_another(db, MANY)

    assert many < 1.5 * few, f"{few} steps after {FEW} views, {many} after {MANY}"


def test_a_plan_with_a_view_more_takes_few_steps_for_those_that_were_planned(db: vk.Database) -> None:
    """Also in a process that reads the catalog, in which another one has created the view."""

    def plan() -> int:
        found = json.loads(json.dumps(db.store.read_catalog()))
        return len(physical_plan(Catalog.from_json(found)).nodes)

    create(db, range(OTHERS, OTHERS + FEW))
    plan()
    few = steps_of_another(db, OTHERS + FEW, do=plan)
    create(db, range(OTHERS + FEW + 3, OTHERS + MANY))
    plan()
    many = steps_of_another(db, OTHERS + MANY, do=plan)

    assert many < 2 * few, f"{few} steps after {FEW} views, {many} after {MANY}"


def test_a_view_is_found_by_its_name_without_a_search(db: vk.Database) -> None:
    create(db, range(FEW))
    db.view("v1")
    few = steps_of(lambda: db.view(f"v{FEW - 1}"))
    create(db, range(FEW, MANY))
    db.view("v1")
    many = steps_of(lambda: db.view(f"v{MANY - 1}"))

    assert many < 1.5 * few, f"{few} steps among {FEW} views, {many} among {MANY}"
