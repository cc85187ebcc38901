"""Edges that no generator draws: long negative literals, what fails on some rows or groups, times that are none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

import pandas as pd
import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.check.error_tolerant_sql import _holds
from viewkeeper.check.query_blocks import parsed, text_of

LONG = "12345678901234567890123456789"
MOST = "9" * 38


@pytest.fixture
def db() -> Iterator[vk.Database]:
    with vk.connect("memory:?nodes=1") as opened:
        yield opened


def rows(db: vk.Database, view: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in db.view(view).scan()), key=repr)


@pytest.mark.parametrize("form", ["-{}", "-{}BD", "-CAST('{}' AS DECIMAL(38,0))", "CAST('-{}' AS DECIMAL(38,0))"])
@pytest.mark.parametrize("digits", [LONG[:28], LONG, MOST])
def test_a_negative_decimal_has_all_its_digits(db: vk.Database, form: str, digits: str) -> None:
    literal = form.format(digits)
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, f DECIMAL(38,0))")
    db.execute(f"CREATE MATERIALIZED VIEW same AS SELECT k FROM t WHERE f = {literal}")
    db.execute(f"INSERT INTO t VALUES (1, {literal})")
    db.table("t").put(2, {"f": Decimal(f"-{digits}") + 1 if digits == LONG[:28] else None})
    keep_up(db)
    assert db.table("t").get(1)["f"] == Decimal(f"-{digits}")
    assert list(db.execute(f"SELECT k FROM t WHERE f = {literal}")) == rows(db, "same") == [(1,)]


HAVING = "SELECT g, COUNT(*) AS c FROM t GROUP BY g HAVING {}"


@pytest.mark.parametrize(
    "having", ["SUM(b) > 0 OR COUNT(*) > 1", "SUM(b) IS NULL OR SUM(b) > 0", "NOT (SUM(b) <=> -1)"]
)
def test_a_group_whose_having_fails_is_left_out_whatever_is_above_it(db: vk.Database, having: str) -> None:
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, g STRING, b BIGINT)")
    groups = HAVING.format(having)
    texts = {
        "plain": groups,
        "first": f"{groups} ORDER BY g LIMIT 3",
        "grouped": f"SELECT c, MIN(g) AS lo FROM ({groups}) x GROUP BY c",
        "joined": f"SELECT t.k, x.c FROM t JOIN ({groups}) x ON t.g = x.g",
        "both": f"{groups} UNION ALL {groups}",
        "among": f"SELECT k FROM t WHERE g IN (SELECT g FROM ({groups}) x)",
    }
    for name, text in texts.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    most = 2**63 - 1
    for k, (g, b) in enumerate([("a", most), ("a", most), ("b", 1), ("d", 5)]):
        db.table("t").put(k, {"g": g, "b": b})
    coordinator = keep_up(db)
    right = [("b", 1), ("d", 1)]
    assert rows(db, "plain") == rows(db, "first") == right
    assert (rows(db, "grouped"), rows(db, "both")) == ([(1, "b")], sorted(2 * right))
    assert (rows(db, "joined"), rows(db, "among")) == ([(2, 1), (3, 1)], [(2,), (3,)])
    db.table("t").put(1, {"b": 1 - most})
    coordinator.catch_up()
    assert ("a", 2) in rows(db, "plain") and ("a", 2) in rows(db, "first") and (0,) in rows(db, "among")


@pytest.mark.parametrize("first", ["a", "b"])
def test_equalities_that_fail_on_different_rows_share_nothing(db: vk.Database, first: str) -> None:
    """What is NULL on the left ends an equality, so `10 div y` fails on the right of it alone where x is there."""
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, x INT, y INT)")
    texts = {"a": "SELECT k, 10 div y = x AS c FROM t", "b": "SELECT k, x = 10 div y AS c FROM t"}
    for name in sorted(texts, reverse=first == "b"):
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {texts[name]}")
    db.table("t").put(1, {"x": None, "y": 0})
    db.table("t").put(2, {"x": 5, "y": 2})
    keep_up(db)
    assert rows(db, "a") == [(2, True)]
    assert rows(db, "b") == [(1, None), (2, True)]
    assert [view.set_aside.count for view in sorted(db.status().views, key=lambda view: view.name)] == [1, 0]


def test_the_guard_of_a_check_keeps_an_equality_that_can_fail() -> None:
    guard = parsed("SELECT 10 DIV y = x AS c").selects[0].this
    assert "DIV" in text_of(_holds([guard]))


@pytest.mark.parametrize("value", [pd.NaT, pd.Timestamp("2024-01-01T00:00:00.000000999Z")])
def test_a_time_that_is_none_or_has_nanoseconds_is_refused_and_nothing_is_written(
    db: vk.Database, value: object
) -> None:
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, at TIMESTAMP)")
    db.execute("CREATE TABLE u (at TIMESTAMP PRIMARY KEY, x INT)")
    t, u = db.table("t"), db.table("u")
    for act in (
        lambda: t.put(1, {"at": value}),
        lambda: t.put_many([{"k": 1, "at": value}]),
        lambda: u.put(value, {"x": 1}),
        lambda: u.get(value),
        lambda: u.delete(value),
    ):
        with pytest.raises(vk.InputError, match="column at|at is"):
            act()
    assert [*t.scan(), *u.scan()] == []


def test_a_wait_of_nan_seconds_is_refused(db: vk.Database) -> None:
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, x INT)")
    token = db.table("t").put(1, {"x": 1})
    with pytest.raises(vk.InputError, match="timeout is a number of seconds"):
        db.wait_for(token, timeout=math.nan)
