"""How often the coordinator asks its store, for one change that it commits: a request each, where the store is elsewhere.

A figure that falls is written down here, and may not rise again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model import epochs
from viewkeeper.ports.meta import change_epoch_record

META = {"read_epoch_record": 1, "read_frontier": 3, "swap_epoch_record": 2}
LOG = {"checksums": 2, "cut": 1, "describe": 1, "ends": 1, "moves_after": 1, "pieces": 1, "read_log": 1}
RECORDS = {"admit": 1, "read_versions": 1, "scan_prefixes": 1, "sync": 1, "write_versions": 1}
UPKEEP = {"purge": 1, "truncate_log": 1}
FOR_ONE_CHANGE = META | LOG | RECORDS | UPKEEP
WITH_NOTHING_TO_DO = UPKEEP | {"checksums": 1, "ends": 1, "read_epoch_record": 1, "read_frontier": 1}


class Counted:
    """A store whose calls are counted by name."""

    def __init__(self, store: object) -> None:
        self._store, self.calls = store, Counter[str]()

    def __getattr__(self, name: str) -> object:
        found = getattr(self._store, name)

        def call(*arguments: object, **options: object) -> object:
            self.calls[name] += 1
            return found(*arguments, **options)

        return call if callable(found) else found

    def counting(self, work: Callable[[], object]) -> dict[str, int]:
        """The calls that some work takes."""
        self.calls.clear()
        work()
        return dict(self.calls)


@pytest.fixture(params=["memory", "embedded"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> vk.Database:
    db = vk.connect("memory:" if request.param == "memory" else f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING, v INT)")
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, SUM(v) AS s FROM t GROUP BY g")
    return db


class Followed:
    """A database whose views a coordinator keeps fresh, over a store that counts."""

    def __init__(self, db: vk.Database) -> None:
        self.store = Counted(db.store)
        self.coordinator = Coordinator(self.store, HereRunner(self.store), clock=lambda: 0.0)
        self._table, self._puts = db.table("t"), 0
        self.go_on()  # fills the view
        self.change()  # and keeps a note of what it cost

    def put(self) -> None:
        self._puts += 1
        self._table.put(f"k{self._puts}", {"g": "a", "v": 1})

    def go_on(self) -> None:
        self.coordinator.catch_up()
        self.coordinator.collect_garbage()

    def change(self) -> None:
        """Have one change committed, and nothing else."""
        self.put()
        before = self.store.read_epoch_record()
        self.store.calls.clear()
        self.go_on()
        calls = Counter(self.store.calls)
        assert self.store.read_epoch_record().committed == before.committed + 1
        self.store.calls = calls


def test_one_change_takes_so_many_calls_of_the_store(db: vk.Database) -> None:
    followed = Followed(db)

    assert followed.store.counting(followed.change) == FOR_ONE_CHANGE


def test_with_nothing_to_do_it_takes_so_many(db: vk.Database) -> None:
    followed = Followed(db)

    assert followed.store.counting(followed.go_on) == WITH_NOTHING_TO_DO


def test_what_others_swap_costs_one_read_more(db: vk.Database) -> None:
    """A reader that pins, and a statement, both while the epoch runs: the swap is refused, and the version has moved."""
    followed = Followed(db)
    run = followed.coordinator._runner.run

    def beside(plan: object, epoch: object) -> object:
        change_epoch_record(db.store, lambda record: epochs.pin(record, "me", record.committed, 1 << 62))
        db.execute("CREATE TABLE other (k INT PRIMARY KEY)")
        return run(plan, epoch)

    followed.coordinator._runner.run = beside
    calls = followed.store.counting(followed.change)

    refused = {"read_epoch_record": 2, "swap_epoch_record": 3, "read_catalog": 1}
    assert calls == FOR_ONE_CHANGE | refused
    assert list(db.store.read_epoch_record().pins) == ["me"]
