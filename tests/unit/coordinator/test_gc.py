"""Garbage collection: the log is as short as what was committed allows, however much was written in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.settings import GcSettings


@pytest.fixture(params=[1, 2], ids=["one node", "two nodes"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&nodes={request.param}")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    return db


def write(db: vk.Database, count: int, value: int) -> None:
    for number in range(count):
        db.table("t").put(number, {"v": value})
    keep_up(db)


def test_each_collection_forgets_all_that_is_old_in_bounded_transactions(db: vk.Database) -> None:
    for turn in range(3):
        write(db, 60, turn)
        assert db.store.facts().log_entries >= 60
        collect_garbage(db.store, GcSettings(log_kept_seconds=0, entries_max=7))
        assert (
            db.store.facts().log_entries == db.store.layout.nodes
        )  # the last of each node, whose checksum is still asked for


def test_a_collection_ends_with_its_share_of_time_and_the_next_goes_on(db: vk.Database) -> None:
    write(db, 40, 1)
    nodes = db.store.layout.nodes

    def tidy() -> int:
        times = iter(range(100))
        return collect_garbage(
            db.store, GcSettings(log_kept_seconds=0, seconds_max=5, entries_max=1), clock=lambda: next(times)
        )

    assert tidy() == 5 * nodes
    assert tidy() == 5 * nodes
    assert db.store.facts().log_entries == 40 - 10 * nodes


@pytest.mark.parametrize("held_reads", [True, False], ids=["held", "not held"])
def test_what_was_dropped_goes_when_no_reader_can_be_at_it(monkeypatch: pytest.MonkeyPatch, held_reads: bool) -> None:
    """R4: where held records do not stay, a reader of the epoch of the drop is answered until the floor has passed it."""
    db = vk.connect("memory:")
    told = replace(db.store.capabilities, held_reads=held_reads)
    monkeypatch.setattr(type(db.store), "capabilities", told)
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE TABLE u (k INT PRIMARY KEY)")
    db.execute("CREATE MATERIALIZED VIEW s AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    write(db, 3, 1)
    db.execute("DROP MATERIALIZED VIEW s; DROP TABLE u")
    dropped, last = db.epoch, []
    while db.catalog().dropped:
        collect_garbage(db.store)
        last.append(db.store.read_epoch_record().floor)
        write(db, 3, len(last) + 1)
        assert len(last) < 9

    assert len(last) == 1 if held_reads else last[-1] > dropped >= last[-2]
