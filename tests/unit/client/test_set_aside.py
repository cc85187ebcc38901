"""Rows set aside and degraded groups: absent or NULL in the view, listed by status, gone from the list when they are well."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import Interrupted, ManagersRunner, RunThenDie, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.settings import EpochLimits

BIG = 2**63 - 1


@pytest.fixture(params=["on", "off"], ids=["before-images", "plain log"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images={request.param}")
    db.execute("CREATE TABLE t (k STRING, n INT, x STRING, y BIGINT, PRIMARY KEY (k, n))")
    return db


def make(db: vk.Database, *queries: str) -> None:
    for number, query in enumerate(queries):
        db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")


def troubles(db: vk.Database, name: str) -> tuple[object, object]:
    (view,) = [view for view in db.status().views if view.name == name]
    return view.set_aside, view.degraded


def test_a_row_that_breaks_a_view_is_listed_until_it_is_well(db: vk.Database) -> None:
    make(db, "SELECT k, n, y + 1 AS more FROM t", "SELECT x, SUM(y * 2) AS s FROM t GROUP BY x", "SELECT k, y FROM t")
    table = db.table("t")
    table.put("a", 1, {"x": "g", "y": BIG})
    table.put("b", 2, {"x": "g", "y": 5})
    keep_up(db)

    for name in ("v0", "v1"):
        aside, degraded = troubles(db, name)
        assert (aside.count, aside.keys, degraded.count) == (1, (("a", 1),), 0)
    assert troubles(db, "v2")[0].count == 0  # nothing in it can fail
    assert list(db.view("v0").scan()) == [{"k": "b", "n": 2, "more": 6}]
    assert list(db.view("v1").scan()) == [{"x": "g", "s": 10}]
    assert len(list(db.view("v2").scan())) == 2
    warning = "view v0 sets 1 row aside, on which its SQL fails: (a, 1); viewkeeper set-aside URL v0"
    assert warning in db.status().warnings

    table.put("a", 1, {"y": 1})
    table.put("b", 2, {"y": BIG})
    keep_up(db)
    assert troubles(db, "v1")[0].keys == (("b", 2),)
    assert list(db.view("v1").scan()) == [{"x": "g", "s": 2}]
    table.delete("b", 2)
    keep_up(db)
    assert troubles(db, "v0")[0].count == troubles(db, "v1")[0].count == 0


@pytest.mark.parametrize(
    ("query", "row", "reason"),
    [
        ("SELECT k, y + 1 AS more FROM t", {"y": BIG}, "overflow in addition of BIGINT"),
        ("SELECT k, y / n AS share FROM t", {"y": 1}, "division by zero"),
        ("SELECT k FROM t WHERE CAST(x AS INT) > 1", {"x": "it's"}, "a text is no INT"),
        ("SELECT x, SUM(y * 2) AS s FROM t GROUP BY x", {"y": BIG}, "overflow in multiplication of BIGINT"),
        ("SELECT k, concat(x, 'TRY({') AS c, y + 1 AS d FROM t", {"y": BIG}, "overflow in addition of BIGINT"),
    ],
)
def test_status_tells_why_a_row_is_set_aside(db: vk.Database, query: str, row: dict[str, object], reason: str) -> None:
    make(db, query)
    db.table("t").put("a", 0, row)
    db.table("t").put("b", 1, {"x": "7", "y": 5})
    keep_up(db)

    aside, _ = troubles(db, "v0")
    assert (aside.count, aside.keys) == (1, (("a", 0),))
    assert aside.reasons[0] is not None and aside.reasons[0].startswith(reason)


def test_as_many_reasons_as_keys_are_listed_and_none_for_a_row_that_is_well_by_now(db: vk.Database) -> None:
    make(db, "SELECT k, y + 1 AS more FROM t")
    db.table("t").put_many([{"k": f"k{i}", "n": 0, "y": BIG} for i in range(10)])
    keep_up(db)
    db.table("t").put("k0", 0, {"y": 1})

    aside, _ = troubles(db, "v0")
    assert (aside.count, len(aside.keys), len(aside.reasons)) == (10, 5, 5)
    assert aside.reasons[0] is None and None not in aside.reasons[1:]


def test_a_row_of_a_join_is_listed_without_a_reason(db: vk.Database) -> None:
    make(db, "SELECT a.k, a.y + b.y AS both FROM t a JOIN t b ON a.k = b.k AND a.n = b.n")
    db.table("t").put("a", 0, {"y": BIG})
    keep_up(db)

    aside, _ = troubles(db, "v0")
    assert (aside.count, aside.reasons) == (1, (None,))


def test_a_row_that_does_not_pass_cannot_fail_and_a_failing_where_sets_it_aside(db: vk.Database) -> None:
    make(db, "SELECT k FROM t WHERE y < 10 AND y + 1 > 0", "SELECT k FROM t WHERE y + 1 > 0")
    db.table("t").put("a", 1, {"y": BIG})
    keep_up(db)

    assert troubles(db, "v0")[0].count == 0
    assert troubles(db, "v1")[0].keys == (("a", 1),)
    assert list(db.view("v0").scan()) == list(db.view("v1").scan()) == []


def test_a_row_set_aside_is_so_in_a_filled_view_too(db: vk.Database) -> None:
    db.table("t").put_many([{"k": f"k{i}", "n": 0, "y": BIG if i % 10 == 0 else i} for i in range(100)])
    keep_up(db)
    make(db, "SELECT x, MIN(y + 1) AS lo FROM t GROUP BY x")
    Coordinator(db.store, ManagersRunner(db.store, 3), limits=EpochLimits(rows=30)).catch_up()

    aside, _ = troubles(db, "v0")
    assert aside.count == 10 and len(aside.keys) == 5
    assert db.view("v0").get(None) == {"x": None, "lo": 2}
    assert any("10 rows aside" in one and "…; viewkeeper set-aside URL" in one for one in db.status().warnings)


def test_a_sum_that_does_not_fit_degrades_its_group_until_it_fits(db: vk.Database) -> None:
    make(db, "SELECT x, SUM(y) AS s, COUNT(*) AS n FROM t GROUP BY x", "SELECT SUM(y) AS s FROM t")
    table = db.table("t")
    table.put("a", 1, {"x": "g", "y": BIG})
    table.put("b", 1, {"x": "g", "y": 1})
    table.put("c", 1, {"x": "h", "y": -1})
    keep_up(db)

    aside, degraded = troubles(db, "v0")
    assert (aside.count, degraded.keys) == (0, (("g",),))
    assert db.view("v0").get("g") == {"x": "g", "s": None, "n": 2}
    assert db.view("v0").get("h") == {"x": "h", "s": -1, "n": 1}
    assert troubles(db, "v1")[1].count == 0 and db.view("v1").get() == {"s": BIG}
    table.put("b", 1, {"y": 0})
    keep_up(db)

    assert troubles(db, "v0")[1].count == 0
    assert db.view("v0").get("g") == {"x": "g", "s": BIG, "n": 2}


def test_a_group_that_having_cannot_judge_is_not_shown_and_listed(db: vk.Database) -> None:
    make(db, "SELECT x, COUNT(*) AS n FROM t GROUP BY x HAVING SUM(y) > 0")
    db.table("t").put("a", 1, {"x": "g", "y": BIG})
    keep_up(db)
    assert len(list(db.view("v0").scan())) == 1
    db.table("t").put("b", 1, {"x": "g", "y": BIG})
    keep_up(db)

    assert list(db.view("v0").scan()) == []
    assert troubles(db, "v0")[1].keys == (("g",),)


def test_a_re_run_lists_the_same(db: vk.Database) -> None:
    make(db, "SELECT x, SUM(y + 1) AS s FROM t GROUP BY x")
    db.table("t").put("a", 1, {"x": "g", "y": BIG})
    db.table("t").put("b", 1, {"x": "g", "y": BIG - 1})
    db.table("t").put("c", 1, {"x": "g", "y": 5})
    for managers in (2, 8):
        with pytest.raises(Interrupted):
            Coordinator(db.store, RunThenDie(ManagersRunner(db.store, managers), times=2)).step()
    keep_up(db)

    aside, degraded = troubles(db, "v0")
    assert (aside.keys, degraded.keys) == ((("a", 1),), (("g",),))


def test_explain_says_where_a_delta_comes_from(db: vk.Database) -> None:
    make(db, "SELECT k FROM t")
    stored = not db.store.capabilities.before_images

    assert ("δ r0 [stored]" in db.explain("v0")) is stored
    assert any("δ r0 [stored]" in line for (line,) in db.execute("EXPLAIN v0").rows) is stored
    assert any("δ r0 [stored]" in line for (line,) in db.execute("EXPLAIN SELECT x FROM t").rows) is stored


def test_the_row_of_a_total_is_set_aside_and_comes_back() -> None:
    """The one row of a total has the empty key."""
    with vk.connect("memory:total") as db:
        db.execute("CREATE TABLE r (k INT PRIMARY KEY, x INT)")
        db.execute("CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS n FROM r WHERE x > 0")
        db.execute("CREATE MATERIALIZED VIEW share AS SELECT 12 / n AS s FROM total")
        keep_up(db)
        assert list(db.view("share").scan()) == []
        assert {view.name: view.set_aside.count for view in db.status().views}["share"] == 1
        db.table("r").put({"k": 1, "x": 1})
        keep_up(db)
        assert [row["s"] for row in db.view("share").scan()] == [12]
        assert {view.name: view.set_aside.count for view in db.status().views}["share"] == 0
