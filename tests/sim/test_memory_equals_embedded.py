"""Two stores with one history, in memory and embedded, hold the same: every version, tombstone, index entry and log entry.

Epochs are run by the driver and by managers, die after their work and are run again; what nobody needs is tidied away.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from tests.support.dump import dump, tombstone_index
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie
from tests.support.stores import make_database, rounds, write, wrong_views
from viewkeeper.client.connection import moment_of
from viewkeeper.client.database import Database
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_all_garbage, collect_garbage
from viewkeeper.ports.store import Store
from viewkeeper.settings import EpochLimits

ROUNDS = 5
CASES = ("selected", "indexed", "extremes", "totals", "distinct_values")


def log_of(db: Database) -> list[tuple]:
    """(stream, table, position, key, before, after) of all changes that the log still has."""
    store, found = db.store, []
    committed = store.read_epoch_record().positions
    for stream, end in store.ends().items():
        for table, batch in store.read_log(stream, committed.get(stream, 0), end):
            found += [(stream, table, *row.values()) for row in batch.to_pylist()]
    return sorted(found, key=lambda change: change[:3])


def written_in(db: Database) -> list[list[tuple[bytes, bytes]]]:
    """What indexed epochs wrote, view by view."""
    partitions = range(db.store.partitions)
    with contextlib.closing(db.store.hold(moment_of(db.store, "snapshot", 0), partitions)) as held:
        tables = [view.node.table for view in db.catalog().views]
        return [held._chains.written_between(partitions, table, 0, db.epoch) for table in tables]


def run_epochs(db: Database, choose: random.Random) -> None:
    """The next epochs, of which the first is run by one who dies, and again by another one."""
    store = db.store
    runners = [
        HereRunner(store) if managers == 0 else ManagersRunner(store, managers, choose.random())
        for managers in choose.sample((0, 1, 3, 8, 20), 2)
    ]
    size = choose.choice((20, 10_000))
    with contextlib.suppress(Interrupted):
        Coordinator(store, RunThenDie(runners[0], times=2), limits=EpochLimits(changes=size)).catch_up()
    Coordinator(store, runners[1], limits=EpochLimits(changes=size)).catch_up()


def facts_of(store: Store) -> tuple:
    record = store.read_epoch_record()
    return record.committed, record.positions, record.checksums, record.floor, record.filled


@pytest.mark.parametrize(("nodes", "before_images"), [(1, True), pytest.param(2, False, marks=pytest.mark.deep)])
def test_a_store_in_memory_holds_what_an_embedded_one_holds(tmp_path: Path, nodes: int, before_images: bool) -> None:
    twins = [
        make_database(folder, nodes=nodes, before_images=before_images, cases=CASES, scheme=scheme)
        for scheme, folder in (("memory", tmp_path / "m"), ("embedded", tmp_path / "e"))
    ]
    done, seen = [], []
    for number, part in enumerate(rounds(21, ROUNDS)):
        done += part
        for db in twins:
            db.keep_changes(epochs=3 if number in (1, 2) else 0)
            write(db, part)
        assert log_of(twins[0]) == log_of(twins[1]) != []
        for db in twins:
            run_epochs(db, random.Random(number))
            collect_all_garbage(db.store) if number == 2 else collect_garbage(db.store)
        memory, embedded = (db.store for db in twins)

        assert wrong_views(twins[0], done) == []
        assert dump(memory) == dump(embedded) != []
        assert tombstone_index(memory) == tombstone_index(embedded)
        assert written_in(twins[0]) == written_in(twins[1])
        assert memory.facts().log_entries == embedded.facts().log_entries
        assert memory.written_epochs() == embedded.written_epochs()
        assert facts_of(memory) == facts_of(embedded)
        seen += [bool(tombstone_index(embedded)), any(written_in(twins[1]))]
    assert {*seen[::2]} == {*seen[1::2]} == {True, False}  # there were tombstones and index entries, and they went
    twins[0].close()
