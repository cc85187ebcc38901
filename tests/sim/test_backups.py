"""Backups of a busy store: each is the store of one moment, with rows, log, views and epoch record that belong together."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.histories import Change, Model, apply
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie
from tests.support.stores import NAME, make_database, rounds, write, wrong_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.ports.base_rows import scan_rows
from viewkeeper.settings import EpochLimits, GcSettings
from viewkeeper.stores.kv import atomic_directory

CASES = ("selected", "indexed", "summed", "totals")
BACKUPS = 5


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine goes down here."""
    monkeypatch.setattr(atomic_directory, "sync_directory", lambda path: None)


def rows_of(db: vk.Database) -> dict[tuple, dict[str, object]]:
    """The rows of the base, in a form in which NaN equals itself."""
    return {(row.pop("k"),): _comparable(row) for row in db.table(NAME).scan()}


def _comparable(row: dict[str, object]) -> dict[str, object]:
    return {name: "NaN" if value != value else value for name, value in row.items()}


def prefix_of(history: list[Change], rows: dict) -> list[Change] | None:
    """The first changes of the history after which the base held exactly these rows; None if it never did."""
    model: Model = {}
    if not rows:
        return []
    for number, change in enumerate(history):
        apply(model, change)
        if {key: _comparable(row) for key, row in model.items()} == rows:
            return history[: number + 1]
    return None


def rows_by_log(db: vk.Database) -> dict[tuple[int, bytes], bytes]:
    """What the log says that the base holds; for a log that was never truncated."""
    found: dict[tuple[int, bytes], bytes] = {}
    for stream, end in db.store.ends().items():
        for table, batch in db.store.read_log(stream, 0, end):
            for key, after in zip(batch["key"].to_pylist(), batch["after"].to_pylist(), strict=True):
                found[table, key] = after
    return {key: row for key, row in found.items() if row is not None}


def stored_rows(db: vk.Database) -> dict[tuple[int, bytes], bytes]:
    tables = [table.id for table in db.catalog().tables]
    return {(table, key): row for table in tables for key, row in scan_rows(db.store, table, b"", None)}


def judge(backup: Path, target: Path, history: list[Change], *, nodes: int) -> int | None:
    """Restore a backup, and compare all of it; returns the epoch that was in flight."""
    with vk.restore(backup, f"embedded:{target}?sync=off&nodes={nodes}") as db:
        record = db.store.read_epoch_record()
        written = prefix_of(history, rows_of(db))
        assert written is not None, "the rows are of no moment of the base"
        Coordinator(db.store, HereRunner(db.store)).catch_up()
        assert db.store.read_epoch_record().last >= record.last
        assert wrong_views(db, written) == []
        return record.inflight.epoch if record.inflight else None


@pytest.mark.parametrize(("nodes", "seed", "tidies"), [(1, 1, True), (3, 2, False), (3, 3, True)])
def test_every_backup_of_a_busy_store_is_the_store_of_one_moment(
    tmp_path: Path, nodes: int, seed: int, tidies: bool
) -> None:
    source = random.Random(seed)
    changes = itertools.cycle(change for part in rounds(seed, 40) for change in part)
    history: list[Change] = []
    db = make_database(tmp_path / "s", nodes=nodes, cases=CASES)
    done = threading.Event()
    failures: list[BaseException] = []

    def work(task: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                task()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def run_epochs() -> None:
        coordinator = Coordinator(db.store, ManagersRunner(db.store, 2, seed), limits=EpochLimits(changes=25))
        while not done.is_set() or not coordinator.has_reached(db.store.ends()):
            coordinator.step()
            if tidies:
                collect_garbage(db.store, GcSettings(log_kept_seconds=0))

    def write_on() -> None:
        while not done.wait(0.01):  # room for the others: one thread runs at a time
            history.append(next(changes))
            write(db, history[-1:])

    threads = [work(run_epochs), work(write_on)]
    backups: list[Path] = []
    while len(backups) < BACKUPS and not failures:
        threading.Event().wait(source.random() / 5)  # a random moment of an epoch
        backups.append(db.backup(tmp_path / f"b{len(backups)}").path)
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    inflight = [judge(backup, tmp_path / f"r{i}", history, nodes=nodes) for i, backup in enumerate(backups)]
    print(f"seed {seed}: {len(history)} changes, {len(backups)} backups, epochs in flight: {inflight}")
    if not tidies:
        with vk.restore(backups[-1], f"embedded:{tmp_path / 'last'}") as last:
            assert stored_rows(last) == rows_by_log(last) != {}


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_epoch_that_was_in_flight_is_run_again(tmp_path: Path, nodes: int) -> None:
    """Backups before, between and behind all that the managers of an epoch write."""
    first, second = rounds(7, 2)
    db = make_database(tmp_path / "s", nodes=nodes, cases=CASES)
    backups: list[Path] = []

    def arrange(items: list) -> list:
        backups.append(db.backup(tmp_path / f"b{len(backups)}").path)
        return items

    write(db, first)
    Coordinator(db.store, ManagersRunner(db.store, 3, arrange=arrange)).catch_up()
    write(db, second)
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(ManagersRunner(db.store, 3, arrange=arrange))).step()
    backups.append(db.backup(tmp_path / "after").path)
    found = [judge(backup, tmp_path / f"r{i}", first + second, nodes=nodes) for i, backup in enumerate(backups)]
    assert found == [1] * (len(backups) // 2) + [2] * (len(backups) // 2 + 1)
