"""Paper 5, section V: the level of consistency of each class of views, observed by the checker and not taken on trust.

One run of changes over all classes at once, by three view managers whose tasks and messages are shuffled; every committed
epoch is read, and every view is recomputed by DuckDB at the cut that the epoch names.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, ManagersRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import EpochTooLarge
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.settings import EpochLimits
from viewkeeper.testing.levels import Level
from viewkeeper.testing.recording import Recorder


@dataclass(frozen=True)
class Class:
    """A class of views: the key of its records, and the level that the paper has for it (None: it is not in the paper)."""

    select: str
    key: tuple[str, ...] | None
    paper: Level | None
    index: str | None = None


CLASSES = {
    "selection": Class("SELECT k, x, y FROM r WHERE y < 60", ("k",), Level.STRONG),
    "projection": Class("SELECT k, y + 1 AS more FROM r", ("k",), Level.STRONG),
    "keyless_projection": Class("SELECT x FROM r", None, Level.STRONG),  # its records have a key that it does not show
    "by_x": Class("SELECT x, k, y FROM r", ("x", "k"), None, index="ON r (x) INCLUDE (y)"),
    "count": Class("SELECT x, COUNT(*) AS n FROM r GROUP BY x", ("x",), Level.STRONG),
    "sum": Class("SELECT x, SUM(y) AS s FROM r GROUP BY x", ("x",), Level.STRONG),
    "avg": Class("SELECT x, AVG(y) AS a FROM r GROUP BY x", ("x",), Level.STRONG),
    "min": Class("SELECT x, MIN(y) AS lo FROM r GROUP BY x", ("x",), Level.WEAK),
    "max": Class("SELECT x, MAX(y) AS hi FROM r GROUP BY x", ("x",), Level.WEAK),
    "k_fk_join": Class("SELECT k, f, z FROM r JOIN s ON r.f = s.id", ("k",), Level.WEAK),
    "set_union": Class("SELECT x FROM r UNION SELECT z AS x FROM s", ("x",), Level.STRONG),
    "set_intersect": Class("SELECT x FROM r INTERSECT SELECT z AS x FROM s", ("x",), Level.STRONG),
    "set_except": Class("SELECT x FROM r EXCEPT SELECT z AS x FROM s", ("x",), Level.STRONG),
    "top_n": Class("SELECT k, y FROM r ORDER BY y DESC, k LIMIT 3", None, None),  # its key is the rank
}
UPDATES = 24
GROUPS = "abcdef"


def make(url: str) -> vk.Database:
    """R and S with their first rows, so that the foreign key of R always leads to a row of S; all views filled."""
    db = vk.connect(url)
    db.execute("CREATE TABLE r (k STRING PRIMARY KEY, x STRING, y BIGINT, f INT)")
    db.execute("CREATE TABLE s (id INT PRIMARY KEY, z STRING)")
    for name, kind in CLASSES.items():
        db.execute(
            f"CREATE INDEX {name} {kind.index}" if kind.index else f"CREATE MATERIALIZED VIEW {name} AS {kind.select}"
        )
    for number in range(3):
        db.table("s").put(number, {"z": "abc"[number]})
    for number in range(4):
        db.table("r").put(f"{number}", {"x": "ab"[number % 2], "y": number, "f": number % 3})
    keep_up(db)
    return db


def write(recorder: Recorder) -> None:
    """Rows come, go, come again, and move to other groups and partners; every write changes its row."""
    choose = random.Random(7)
    for place in range(UPDATES):
        key = f"{choose.randrange(6)}"
        if place % 5 == 0:
            recorder.put("s", choose.randrange(3), {"z": GROUPS[(2 * place + 1) % 6]})
        elif place % 7 == 3:
            recorder.delete("r", key)
        else:
            recorder.put("r", key, {"x": choose.choice(GROUPS), "y": 37 * place % 101, "f": choose.randrange(3)})


def record(db: vk.Database, changes: int, *, latest: bool = False) -> Recorder:
    """All changes in epochs of at most so many, each read once committed; `latest`: and before every task of a manager."""
    recorder = Recorder(db, *CLASSES)
    shuffle = random.Random(3)

    def arrange(items: list) -> Iterable:
        shuffle.shuffle(items)
        return looking(items) if latest and all(isinstance(item, int) for item in items) else items

    def looking(managers: list[int]) -> Iterator[int]:
        for manager in managers:
            recorder.look("latest")
            yield manager

    write(recorder)
    runner = ManagersRunner(db.store, 3, arrange=arrange)
    Coordinator(db.store, runner, limits=EpochLimits(changes=changes), events=recorder).catch_up()
    recorder.look("latest")
    return recorder


STORES = {
    "embedded, 1 node": "embedded:{}?sync=off&nodes=1",
    "embedded, 3 nodes": "embedded:{}?sync=off&nodes=3",
    "memory, 1 node": "memory:{}?nodes=1",
    "memory, 3 nodes": "memory:{}?nodes=3",
}


@pytest.mark.parametrize(("changes", "level"), [(1, Level.COMPLETE), (6, Level.STRONG)], ids=["one", "several"])
@pytest.mark.parametrize(
    "store", [store if "3 nodes" in store else pytest.param(store, marks=pytest.mark.deep) for store in STORES]
)
def test_snapshot_reads_are_strong_for_every_class_and_complete_with_one_change_in_an_epoch(
    tmp_path: Path, store: str, changes: int, level: Level
) -> None:
    """Section V has MIN, MAX and joins at weak. Here a state is the whole view, which is more than the paper's record."""
    db = make(STORES[store].format(tmp_path / "s"))
    recorder = record(db, changes)

    assert {update.stream for update in recorder.updates} == set(db.store.ends())
    verdicts = {name: recorder.observed(name, kind.select) for name, kind in CLASSES.items()}
    assert {name: verdict.level for name, verdict in verdicts.items()} == dict.fromkeys(CLASSES, level)
    assert all(level >= kind.paper for kind in CLASSES.values() if kind.paper is not None)
    for name in CLASSES:
        states = [repr(state.rows) for state in recorder.states(name)]
        assert len(set(states)) > 1, name  # the view did change from epoch to epoch


@pytest.mark.parametrize("store", ["embedded, 3 nodes", "memory, 1 node"])
def test_latest_reads_are_strong_by_record_and_only_convergent_as_a_whole(tmp_path: Path, store: str) -> None:
    """Epochs of several changes, seen between the tasks of three managers: each record moves by itself."""
    db = make(STORES[store].format(tmp_path / "s"))
    recorder = record(db, 6, latest=True)

    keyed = {name: kind for name, kind in CLASSES.items() if kind.key}
    by_record = {n: recorder.observed(n, kind.select, read="latest", key=kind.key) for n, kind in keyed.items()}
    assert {name: verdict.level for name, verdict in by_record.items()} == dict.fromkeys(keyed, Level.STRONG)
    for name in (
        "selection",
        "projection",
        "keyless_projection",
        "by_x",
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "k_fk_join",
    ):
        whole = recorder.observed(name, CLASSES[name].select, read="latest")
        assert whole.level is Level.CONVERGENT, (name, whole)


class FailsOnce:
    """Does the work of an epoch, has it looked at, and calls the first one too large: it is given up."""

    def __init__(self, db: vk.Database, recorder: Recorder) -> None:
        self._db, self._recorder, self._failures = db, recorder, 1

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        self._recorder.look("latest")
        counts = HereRunner(self._db.store).run(plan, epoch)
        self._recorder.look("latest")
        if self._failures:
            self._failures -= 1
            raise EpochTooLarge(self._db.catalog().view("sum").node.table, "planted")
        return counts


def test_an_epoch_that_is_given_up_takes_back_what_latest_reads_showed_and_no_snapshot_sees_it() -> None:
    db = make("memory:given up")
    recorder = Recorder(db, "sum")
    recorder.put("r", "0", {"y": 100})
    recorder.put("r", "0", {"y": 50})
    Coordinator(db.store, FailsOnce(db, recorder), events=recorder).catch_up()

    latest = recorder.observed("sum", read="latest", key=["x"])
    assert len(db.store.read_epoch_record().aborted) == 1
    assert latest.level is Level.WEAK
    assert latest.why_not(Level.STRONG).reason == "goes back: it lacks an update that a state before it showed"
    assert recorder.observed("sum").level >= Level.STRONG
