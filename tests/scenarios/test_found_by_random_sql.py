"""What the search with random views found wrong, each as the smallest view and history that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up

GROUPED = "SELECT a, 12 div COUNT(d) AS c FROM t GROUP BY a"


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
    db = vk.connect(f"embedded:{tmp_path / 'db'}?sync=off")
    db.execute("CREATE TABLE t (k INT, a INT, d BIGINT, PRIMARY KEY (k))")
    for k, a, d in ((1, 1, None), (2, 1, None), (3, 2, 5)):
        db.table("t").put(k, {"a": a, "d": d})
    db.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    keep_up(db)

    assert sorted((row["a"], row["c"]) for row in db.view("v").scan()) == [(1, None), (2, 12)]
    assert db.status().views[0].degraded.keys == ((1,),)

    db.table("t").put(1, {"d": 7})
    keep_up(db)

    assert sorted((row["a"], row["c"]) for row in db.view("v").scan()) == [(1, 12), (2, 12)]
    assert db.status().views[0].degraded.count == 0
