"""EXPLAIN from Python: one call, several forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as database:
        database.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, x STRING, y INT)")
        database.execute("CREATE MATERIALIZED VIEW ends AS SELECT x, MIN(y) AS lo FROM t GROUP BY x")
        yield database


def test_the_old_call_gives_text(db: vk.Database) -> None:
    assert db.explain() == db.explain("ends") == db.explain(name="ends", form="text")
    assert "   -- keeps PRE-AGGREGATION: (x, y) → multiplicity" in db.explain().splitlines()
    assert [line for (line,) in db.execute("EXPLAIN ends").rows] == db.explain("ends").splitlines()


def test_a_plan_is_a_flowchart_or_a_graph(db: vk.Database) -> None:
    assert db.explain("ends", form="mermaid").startswith("flowchart LR\n")
    assert db.explain(form="dot").startswith("digraph plan {\n")
    with pytest.raises(vk.InputError, match="no form 'png'"):
        db.explain(form="png")  # type: ignore[arg-type]
    with pytest.raises(vk.UnknownName):
        db.explain("nothing", form="svg")


def test_a_query_is_explained_whatever_views_are_called(tmp_path: Path) -> None:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, x INT)")
        plain = db.execute("EXPLAIN SELECT x FROM t").rows
        db.execute("CREATE MATERIALIZED VIEW Explained AS SELECT k FROM t WHERE x > 1")

        assert db.execute("EXPLAIN SELECT x FROM t").rows == plain
        assert any("x > 1" in line for (line,) in db.execute("EXPLAIN SELECT k FROM explained").rows)
