"""A view over many columns is made in steps that grow with their number, not with its square: counted, not timed."""

from __future__ import annotations

import sys

import pytest

import viewkeeper as vk

FEW, MANY = 100, 400
VIEWS = {
    "a copy": "SELECT k, {c + 1} FROM t",
    "all columns": "SELECT * FROM t",
    "sums": "SELECT k % 2 AS g, {SUM(c)} FROM t GROUP BY k % 2",
    "extremes": "SELECT k % 2 AS g, {MAX(c)} FROM t GROUP BY k % 2",
    "groups": "SELECT {c}, COUNT(*) AS n FROM t GROUP BY {{c}}",
    "a join": "SELECT t.k, {t.c} FROM t JOIN t u ON t.c0 = u.k",
    "a union": "SELECT {c} FROM t UNION ALL SELECT {c} FROM t",
    "a nested query": "SELECT {d + 1} FROM (SELECT {{d}} FROM t) q WHERE d0 > 1",
}


def text_of(pattern: str, width: int) -> str:
    """The view over `c0`, `c1`, …: what is in braces once for each of them."""
    listed = {
        "{c + 1}": ", ".join(f"c{i} + 1 AS d{i}" for i in range(width)),
        "{SUM(c)}": ", ".join(f"SUM(c{i}) AS d{i}" for i in range(width)),
        "{MAX(c)}": ", ".join(f"MAX(c{i}) AS d{i}" for i in range(width)),
        "{t.c}": ", ".join(f"t.c{i} AS d{i}" for i in range(width)),
        "{{d}}": ", ".join(f"c{i} AS d{i}" for i in range(width)),
        "{d + 1}": ", ".join(f"d{i} + 1 AS e{i}" for i in range(width)),
        "{{c}}": ", ".join(f"c{i}" for i in range(width)),
        "{c}": ", ".join(f"c{i}" for i in range(width)),
    }
    for braces, words in listed.items():
        pattern = pattern.replace(braces, words)
    return pattern


def calls(view: str, width: int) -> int:
    """How many functions of Python a CREATE calls."""
    db = vk.connect("memory:")
    db.execute(f"CREATE TABLE t (k INT PRIMARY KEY, {', '.join(f'c{i} INT' for i in range(width))})")
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        db.execute(f"CREATE MATERIALIZED VIEW w AS {text_of(VIEWS[view], width)}")
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("view", VIEWS)
def test_four_times_the_columns_take_about_four_times_the_calls(view: str) -> None:
    calls(view, 2)  # what is made once
    assert calls(view, MANY) < 2 * MANY / FEW * calls(view, FEW), "a square would be twice that again"
