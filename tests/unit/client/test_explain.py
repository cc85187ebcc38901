"""EXPLAIN from Python: one call, several forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up


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


ROWS = [{"k": k, "x": f"x{k % 7}", "y": k} for k in range(100)]


def lines(db: vk.Database, statement: str) -> list[str]:
    return [line for (line,) in db.execute(statement).rows]


def notes(db: vk.Database, statement: str = "EXPLAIN") -> list[str]:
    return [line.strip() for line in lines(db, statement) if "each change" in line or "to be filled" in line]


def test_costs_are_shown_once_there_are_rows_and_measurements_once_there_were_changes(db: vk.Database) -> None:
    plain = lines(db, "EXPLAIN")
    assert notes(db) == []

    db.table("t").put_many(ROWS)
    node, whole = notes(db)
    assert node.startswith("-- about 20 records, ")  # textbooks: a tenth as many groups as rows
    assert whole.startswith("-- together about 20 records, ")
    assert [line for line in lines(db, "EXPLAIN") if "each change" not in line] == plain

    keep_up(db)
    node, _ = notes(db)
    assert node.startswith("-- 14 records, ") and "measured" not in node  # 7 groups and a block of each

    db.table("t").put_many(ROWS[:10])  # as they are: nothing changes
    db.table("t").put_many([row | {"y": row["y"] + 1} for row in ROWS[:10]])
    keep_up(db)
    node, _ = notes(db)
    measured = node.partition("; measured: ")[2].split(", ")
    assert [float(number) > 0 for number in measured] == [True] * 3


def test_what_a_view_would_take_is_said_before_it_is_created(db: vk.Database) -> None:
    text = "CREATE MATERIALIZED VIEW more AS SELECT lo, COUNT(*) AS n FROM ends GROUP BY lo"
    assert "-- uses 1 stored node of ends" in lines(db, f"EXPLAIN {text}")

    db.table("t").put_many(ROWS)
    keep_up(db)
    last = lines(db, f"EXPLAIN {text}")[-3:]
    assert last[0] == "-- uses 1 stored node of ends"
    assert last[1].startswith("-- to be filled: 1 table from 7 rows, about 1 record, ")
    assert last[2].startswith("-- each change costs ") and " of CPU more; now " in last[2]

    again = lines(db, "EXPLAIN CREATE MATERIALIZED VIEW again AS SELECT x, MIN(y) AS least FROM t GROUP BY x")
    assert again[-2:] == ["-- uses 1 stored node of ends", "-- nothing is to be filled, and no change costs more"]


def test_one_view_is_explained_with_the_costs_of_its_own_nodes(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW others AS SELECT k FROM t WHERE y > 5")
    db.table("t").put_many(ROWS)
    assert len(notes(db)) == 3
    assert len(notes(db, "EXPLAIN others")) == len(notes(db, "EXPLAIN ends")) == 2


def test_a_stored_delta_has_costs_too() -> None:
    with vk.connect("memory:costs-of-delta?before_images=off") as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, x STRING, y INT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT k FROM t WHERE y > 5")
        db.table("t").put_many(ROWS)
        told = lines(db, "EXPLAIN")
        at = told.index("r1 := δ r0 [stored]")
        assert "each change" in told[at + 2]
