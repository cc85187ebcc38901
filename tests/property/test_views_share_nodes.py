"""Views that share nodes, and views over views, come and go while rows change and backfills are under way.

A history is a list of steps drawn from a seed: rows change, views are created, replaced and dropped, and the coordinator
takes a few steps, each of which fills from a few rows only. Whenever it has caught up, every view equals DuckDB's. What
the histories contained is counted, and a kind of event that never happened is a failure.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie
from tests.support.tiers import examples
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import EpochFailed
from viewkeeper.settings import EpochLimits

HISTORIES = examples(24, deep=60)
STEPS = 28
NAMES = [f"v{number}" for number in range(7)]
TABLES = {
    "t": "(k INT PRIMARY KEY, g STRING, x INT)",
    "u": "(k INT PRIMARY KEY, g STRING, y INT)",
}
# over base tables; several of them are one node, or have one in common
OVER_TABLES = [
    "SELECT g, COUNT(*) AS x, SUM(x) AS s FROM t GROUP BY g",
    "SELECT SUM(q.x) AS s, q.g, COUNT(*) AS x FROM t AS q GROUP BY q.g",
    "SELECT g, COUNT(*) + 1 AS x FROM t GROUP BY g",
    "SELECT g, MIN(x) AS x FROM t GROUP BY g HAVING COUNT(*) > 1",
    "SELECT k, g, x FROM t WHERE x > 2",
    "SELECT k AS n, x, g FROM t WHERE x > 2",
    "SELECT g, y AS x FROM u",
    "SELECT t.g, u.y AS x FROM t JOIN u ON t.g = u.g",
    "SELECT t.g, u.y AS x FROM t LEFT JOIN u ON t.g = u.g",
    "SELECT q.g, q.n AS x FROM (SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g) AS q WHERE q.n > 1",
    "SELECT COUNT(*) AS x, MAX(g) AS g FROM t",
    "SELECT g, x FROM t UNION ALL SELECT g, y FROM u",
    "SELECT g, x FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g)",
]
# over views, all of which have the columns g and x
OVER_VIEWS = [
    "SELECT g, x FROM {a}",
    "SELECT g, x FROM {a} WHERE x > 1",
    "SELECT x, COUNT(*) AS n, MAX(g) AS g FROM {a} GROUP BY x",
    "SELECT g, SUM(x) AS x FROM {a} GROUP BY g",
    "SELECT {a}.g, {b}.x FROM {a} JOIN {b} ON {a}.g = {b}.g",
    "SELECT p.g, t.x FROM {a} AS p LEFT JOIN t ON p.x = t.x",
    "SELECT g, x FROM {a} UNION SELECT g, x FROM {b}",
    "SELECT g, x FROM {a} ORDER BY x DESC NULLS LAST, g NULLS FIRST LIMIT 2",
]
EVENTS = (
    "created", "dropped", "replaced", "over a view", "ready at once", "filled from records", "filled with another",
    "waited for another", "several epochs to fill", "died in an epoch", "rows changed", "compared",
)  # fmt: skip
SEEN: Counter[str] = Counter()


class History:
    """One store, and a DuckDB with the same tables and views."""

    def __init__(self, path: Path, seed: int) -> None:
        self.choose = random.Random(seed)
        options = self.choose.choice(["", "&nodes=2", "&before_images=off", "&before_images=off&nodes=2"])
        self.db = vk.connect(f"embedded:{path / 's'}?sync=off{options}")
        self.duck = duckdb.connect()
        for name, columns in TABLES.items():
            self.db.execute(f"CREATE TABLE {name} {columns}")
            self.duck.execute(f"CREATE TABLE {name} {columns}")
        self.views: dict[str, set[str]] = {}  # name -> the views it reads

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.choose.choices(
                (self.change_rows, self.create, self.drop, self.replace, self.step, self.catch_up), (5, 5, 1, 1, 6, 2)
            )[0]
            step()
        self.catch_up()

    def change_rows(self) -> None:
        SEEN["rows changed"] += 1
        for _ in range(self.choose.randrange(1, 9)):
            name, key = self.choose.choice(["t", "t", "u"]), self.choose.randrange(14)
            self.duck.execute(f"DELETE FROM {name} WHERE k = {key}")
            if self.choose.random() < 0.2:
                self.db.table(name).delete(key)
                continue
            group, number = self.choose.choice(["a", "b", "c", None]), self.choose.choice([0, 1, 2, 3, 4, None])
            self.db.table(name).put(key, {"g": group, "x" if name == "t" else "y": number})
            self.duck.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", [key, group, number])

    def create(self) -> None:
        free = [name for name in NAMES if name not in self.views]
        if free:
            name = self.choose.choice(free)
            text, read = self.text_for(name)
            nodes = len(self.db.catalog().nodes)
            self.db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
            self.duck.execute(f"CREATE OR REPLACE VIEW {name} AS {text}")
            self.views[name] = read
            SEEN["created"] += 1
            SEEN["over a view"] += bool(read)
            SEEN["ready at once"] += len(self.db.catalog().nodes) == nodes

    def text_for(self, name: str) -> tuple[str, set[str]]:
        others = [other for other in self.views if other != name and not self.reaches(other, name)]
        if not others or self.choose.random() < 0.5:
            return self.choose.choice(OVER_TABLES), set()
        text, a, b = self.choose.choice(OVER_VIEWS), self.choose.choice(others), self.choose.choice(others)
        if "{b}" not in text or a != b:
            return text.format(a=a, b=b), {a, b} if "{b}" in text else {a}
        return OVER_VIEWS[0].format(a=a), {a}

    def reaches(self, view: str, name: str) -> bool:
        return view == name or any(self.reaches(below, name) for below in self.views[view])

    def drop(self) -> None:
        unread = [name for name in self.views if not any(name in read for read in self.views.values())]
        if unread:
            name = self.choose.choice(unread)
            self.db.execute(f"DROP MATERIALIZED VIEW {name}")
            self.duck.execute(f"DROP VIEW {name}")
            del self.views[name]
            SEEN["dropped"] += 1

    def replace(self) -> None:
        unread = [name for name in self.views if not any(name in read for read in self.views.values())]
        if unread:
            name = self.choose.choice(unread)
            text, read = self.text_for(name)
            try:
                self.db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {text}")
            except vk.NameInUse:  # what it would read is being replaced
                return
            self.catch_up(compare=False)  # until then readers see the old one
            self.duck.execute(f"CREATE OR REPLACE VIEW {name} AS {text}")
            self.views[name] = read
            SEEN["replaced"] += 1

    def coordinator(self) -> Coordinator:
        runner = HereRunner(self.db.store)
        if self.choose.random() < 0.4:
            runner = ManagersRunner(self.db.store, self.choose.randrange(1, 4), self.choose.random())
        if self.choose.random() < 0.15:
            runner = RunThenDie(runner, self.choose.randrange(1, 3))
        rows = self.choose.choice([2, 5, 1_000])
        return Coordinator(self.db.store, runner, limits=EpochLimits(rows=rows, changes=self.choose.choice([3, 1_000])))

    def step(self) -> None:
        coordinator = self.coordinator()
        for _ in range(self.choose.randrange(1, 4)):
            before = self.db.store.read_epoch_record()
            try:
                coordinator.step()
            except Interrupted:
                SEEN["died in an epoch"] += 1
                self.note(before)
                return
            self.note(before)
        if self.choose.random() < 0.3 and self.db.store.read_epoch_record().inflight is None:
            collect_garbage(self.db.store)

    def note(self, before: object) -> None:
        """What kinds of backfills there were."""
        record, nodes = self.db.store.read_epoch_record(), {node.table for node in self.db.catalog().nodes}
        for backfill, filling in record.filling.items():
            SEEN["filled from records"] += any(source in nodes for source in filling.cursors)
            SEEN["several epochs to fill"] += backfill in before.filling
        SEEN["filled with another"] += len(set(record.filling) - set(before.filling)) > 1
        waiting = {node.backfill for node in self.db.catalog().nodes} - record.filled.keys() - record.filling.keys()
        SEEN["waited for another"] += bool(waiting) and bool(record.filling)

    def catch_up(self, *, compare: bool = True) -> None:
        while True:
            try:
                self.coordinator().catch_up()
                break
            except Interrupted:
                SEEN["died in an epoch"] += 1
        assert self.db.store.read_epoch_record().stopped == {}
        for name in self.views if compare else ():
            columns = ", ".join(shown.column.name for shown in self.db.catalog().view(name).shown)
            expected = Counter(map(repr, self.duck.sql(f"SELECT {columns} FROM {name}").fetchall()))
            assert Counter(repr(tuple(row.values())) for row in self.db.view(name).scan()) == expected, name
            SEEN["compared"] += 1


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_views_that_share_nodes_equal_their_recomputation(seed: int, tmp_path: Path) -> None:
    history = History(tmp_path, seed)
    try:
        history.run()
    except EpochFailed as error:
        raise AssertionError(f"seed {seed}") from error
    finally:
        history.db.close()
    SEEN["history"] += 1


def test_every_kind_of_event_happened() -> None:
    if SEEN["history"] < HISTORIES:
        pytest.skip("only some histories were asked for, and what all of them contain is judged here")
    assert [event for event in EVENTS if not SEEN[event]] == []
