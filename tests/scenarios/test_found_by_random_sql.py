"""What the search with random views found wrong, each as the smallest view and history that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support.running import ManagersRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

GROUPED = "SELECT a, 12 div COUNT(d) AS c FROM t GROUP BY a"


def database_with_rows(tmp_path: Path, options: str = "") -> Database:
    db = vk.connect(f"embedded:{tmp_path / 'db'}?sync=off{options}")
    db.execute("CREATE TABLE t (k INT, a INT, d BIGINT, PRIMARY KEY (k))")
    for k, a, d in ((1, 1, None), (2, 1, None), (3, 2, 5)):
        db.table("t").put(k, {"a": a, "d": d})
    return db


@pytest.mark.parametrize(
    "text",
    [
        GROUPED,
        f"SELECT a, c FROM ({GROUPED}) AS q WHERE a < 10",
        f"{GROUPED} ORDER BY a LIMIT 5",
        GROUPED.replace("SELECT", "SELECT DISTINCT"),
        f"{GROUPED} UNION ALL SELECT a, d FROM t WHERE k > 5",
        f"SELECT q.a, q.c FROM t JOIN ({GROUPED}) AS q ON t.a = q.a AND t.k > 1",
        f"SELECT a, MAX(c) AS c FROM ({GROUPED}) AS q GROUP BY a",
    ],
)
def test_a_value_of_a_group_that_fails_reads_null_whatever_stands_above_the_group(text: str, tmp_path: Path) -> None:
    """Above anything but the view itself the group was not there at all."""
    db = database_with_rows(tmp_path)
    db.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    keep_up(db)

    assert sorted((row["a"], row["c"]) for row in db.view("v").scan()) == [(1, None), (2, 12)]
    assert db.status().views[0].degraded.keys == ((1,),)

    db.table("t").put(1, {"d": 7})
    keep_up(db)

    assert sorted((row["a"], row["c"]) for row in db.view("v").scan()) == [(1, 12), (2, 12)]
    assert db.status().views[0].degraded.count == 0


COUNTED = "(SELECT COUNT(*) AS n FROM t)"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT 1 AS x FROM {COUNTED} AS q WHERE NOT EXISTS (SELECT * FROM t WHERE t.k = q.n AND t.k > 9)",
        f"SELECT 1 AS x FROM {COUNTED} AS q WHERE q.n IN (SELECT k FROM t)",
        f"SELECT 1 AS x FROM {COUNTED} AS q JOIN {COUNTED} AS r ON q.n = r.n",
        "SELECT x FROM (SELECT 1 AS x FROM t HAVING 1 < 2) AS q WHERE x < 5",
    ],
)
def test_a_row_without_any_column_is_still_a_row(text: str, tmp_path: Path) -> None:
    """A total has no key, and where none of its columns is needed either, its row was lost."""
    db = database_with_rows(tmp_path)
    db.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    keep_up(db)

    assert list(db.view("v").scan()) == [{"x": 1}]


def test_several_managers_keep_the_deltas_of_tables_that_have_no_views(tmp_path: Path) -> None:
    """On Spark the epoch failed: the managers took the level of views for the last one."""
    db = database_with_rows(tmp_path, "&before_images=off")
    coordinator = Coordinator(db.store, ManagersRunner(db.store, 2))

    assert coordinator.step() is not None

    db.execute("CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS x FROM t")
    coordinator.catch_up()

    assert list(db.view("v").scan()) == [{"x": 3}]
