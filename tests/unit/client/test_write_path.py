"""A base write takes the same way with views and without: nothing of theirs is called, read or waited for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import begin_epoch, keep_up
from viewkeeper.stores.kv import lmdb_environment

VIEWS = """
CREATE MATERIALIZED VIEW a AS SELECT x, MIN(y) AS lo, SUM(y + 1) AS s FROM t GROUP BY x;
CREATE MATERIALIZED VIEW b AS SELECT k FROM t WHERE y > 1;
CREATE INDEX c ON t (x)
"""


@pytest.fixture(autouse=True)
def one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times a second a database looks whether its store is still there: now, and not again in these tests."""
    monkeypatch.setattr(lmdb_environment, "_LOOK_SECONDS", 3600.0)


def traced(work: Callable[[], object]) -> list[str]:
    """Every function of the product that is called, in order."""
    calls: list[str] = []

    def note(frame: object, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and "viewkeeper" in name:
            calls.append(f"{name.rpartition('viewkeeper/')[2]}:{frame.f_code.co_qualname}")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def writes(db: vk.Database) -> list[list[str]]:
    table = db.table("t")
    table.put("warm", {"x": "g", "y": 0})  # what is loaded or looked up once is no part of the path
    table.put_many([{"k": "warm", "y": 1}])
    table.delete("warm")
    return [
        traced(lambda: table.put("a", {"x": "g", "y": 1})),
        traced(lambda: table.put("a", {"y": 2})),
        traced(lambda: table.put_many([{"k": f"m{i}", "x": "h", "y": i} for i in range(20)])),
        traced(lambda: table.delete("a")),
    ]


@pytest.mark.parametrize("log", ["on", "off"], ids=["before-images", "plain log"])
def test_the_calls_of_a_write_are_the_same_with_views_and_without(tmp_path: Path, log: str) -> None:
    paths = []
    for views in ("", VIEWS):
        db = vk.connect(f"embedded:{tmp_path / (views[:1] or 'none')}?sync=off&before_images={log}")
        db.execute(f"CREATE TABLE t (k STRING PRIMARY KEY, x STRING, y INT); {views}")
        keep_up(db)
        paths.append(writes(db))

    assert paths[0] == paths[1]
    touched = {call.partition(":")[0] for path in paths[1] for call in path}
    assert not [file for file in touched if file.startswith(("views/", "flow/", "plan/physical", "plan/define"))]
    assert not [file for file in touched if file.endswith(("partition.py", "version_chains.py"))]


def test_the_calls_of_a_write_are_the_same_while_an_epoch_is_in_flight(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute(f"CREATE TABLE t (k STRING PRIMARY KEY, x STRING, y INT); {VIEWS}")
    keep_up(db)
    writes(db)
    quiet = writes(db)
    begin_epoch(db.store)
    writes(db)  # the first write looks once whether the catalog is still the same

    assert writes(db) == quiet
