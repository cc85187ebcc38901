"""A text that a query makes of thousands of others is refused, wherever in the query the copies are made."""

from __future__ import annotations

import pytest

import viewkeeper as vk


@pytest.fixture
def db() -> vk.Database:
    db = vk.connect("memory:")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
    db.table("t").put(1, {"v": "ab"})
    return db


def doubled(times: int, *, make: str = "{0} || {0}", start: str = "SELECT v AS v FROM t") -> str:
    for _ in range(times):
        start = f"SELECT {make.format('q.v')} AS v FROM ({start}) q"
    return start


HOSTILE = {
    "nested": doubled(14),
    "nested as deep as one may": doubled(28),
    "many at a time": doubled(4, make="concat({0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0})"),
    "with separators": doubled(9, make="concat_ws({0}, {0}, {0}, {0})"),
    "repeated": doubled(2, make="repeat({0}, 101)"),
    "behind functions": doubled(14, make="upper(coalesce({0} || trim({0}), 'x'))"),
    "behind CASE": doubled(14, make="CASE WHEN {0} = 'a' THEN 'b' ELSE {0} || {0} END"),
    "behind a grouping": f"SELECT v || v AS v FROM (SELECT v, COUNT(*) AS n FROM ({doubled(13)}) a GROUP BY v) b",
    "behind an extreme": f"SELECT m || m AS v FROM (SELECT MAX(v) AS m FROM ({doubled(13)}) a) b",
    "behind a union": f"SELECT v || v AS v FROM (SELECT v FROM t UNION ALL {doubled(13)}) u",
    "behind a join": f"SELECT a.v || b.v AS v FROM ({doubled(13)}) a JOIN ({doubled(13)}) b ON a.v = b.v",
    "in a predicate": f"SELECT v FROM ({doubled(13)}) a WHERE v || v <> 'x'",
    "in an order": f"SELECT v FROM ({doubled(13)}) a ORDER BY v || v LIMIT 1",
    "in a WITH": f"WITH a AS ({doubled(13)}), b AS (SELECT v || v AS v FROM a) SELECT v FROM b",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_text_of_very_many_copies_is_refused_in_a_select_and_in_a_view(db: vk.Database, name: str) -> None:
    for statement in (HOSTILE[name], f"CREATE MATERIALIZED VIEW w AS {HOSTILE[name]}"):
        with pytest.raises(vk.UnsupportedSql, match="makes a text of [0-9,]+ others; 10,000 are the most") as caught:
            db.execute(statement)
        assert len(str(caught.value)) < 300


def test_up_to_the_bound_it_is_computed(db: vk.Database) -> None:
    assert db.execute(doubled(13)).rows == (("ab" * 2**13,),)
    assert db.execute(doubled(13, make="substring({0} || {0}, 1, 3)")).rows == (("aba",),)
    assert db.execute(f"SELECT length(v) + length(v) AS n FROM ({doubled(13)}) a").rows == ((2**15,),)
