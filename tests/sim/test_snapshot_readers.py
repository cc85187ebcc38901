"""A reader that never stops never sees half an epoch: two views that must agree do, in every snapshot.

`docs/epochs.md`, R4: K = 2 committed epochs are readable; a reader that the floor overtakes starts anew. Tiny epochs
make the floor run as fast as it can.
"""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, ManagersRunner
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.model.read_frontier import ReadTimestamp
from viewkeeper.settings import EpochLimits

EPOCHS_MIN = 40
READS_MIN = 60
SEEN_MIN = 6  # epochs, by each reader
ROUNDS_MAX = 2_000
ACCOUNTS = 12


def make_bank(path: Path) -> vk.Database:
    """Money only moves: the sum over all groups, the total and the initial amount are equal in every epoch."""
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute("CREATE TABLE account (id INT PRIMARY KEY, town STRING, amount BIGINT)")
    db.execute(
        "CREATE MATERIALIZED VIEW towns AS SELECT town, SUM(amount) AS s, COUNT(*) AS n FROM account GROUP BY town"
    )
    db.execute("CREATE MATERIALIZED VIEW total AS SELECT SUM(amount) AS s, COUNT(*) AS n FROM account")
    db.execute("CREATE INDEX by_town ON account (town) INCLUDE (amount)")
    db.table("account").put_many([{"id": i, "town": f"t{i % 4}", "amount": 100} for i in range(ACCOUNTS)])
    return db


def faults_of(snapshot: object) -> list[str]:
    """What contradicts itself in one snapshot; each read is made by two ways."""
    towns = list(snapshot.view("towns").scan())
    total = snapshot.view("total").get()
    index = list(snapshot.view("by_town").scan())
    by_key = [snapshot.view("towns").get(row["town"]) for row in towns]
    sums = (sum(row["s"] for row in towns), total["s"], sum(row["amount"] for row in index))
    counts = (sum(row["n"] for row in towns), total["n"], len(index))
    found = [f"sums {sums}"] if len({*sums, 100 * ACCOUNTS}) > 1 else []
    found += [f"counts {counts}"] if len({*counts, ACCOUNTS}) > 1 else []
    return found + (["get and scan differ"] if by_key != towns else [])


def read_all_the_time(db: object, stop: object, report: object) -> None:
    """Snapshots one after the other, some held while epochs go by; says how many, which epochs, and what was wrong."""
    reads, epochs, faults, held = 0, set(), [], None
    while not stop.is_set():
        with db.snapshot() as snapshot:
            faults += faults_of(snapshot)
            epochs.add(snapshot.epoch)
        if held is None:
            held = db.snapshot()
            first = list(held.view("towns").scan())
        elif len(epochs) % 5 == 0:
            faults += faults_of(held)
            faults += ["a held snapshot moved"] if list(held.view("towns").scan()) != first else []
            held.close()
            held = None
        reads += 1
        report((reads, len(epochs), faults[:3]))


def read_in_a_process(url: str, stop: object, told: object) -> None:
    read_all_the_time(vk.connect(url), stop, told.put)


def transfer(db: object, round_number: int) -> None:
    """Move money, and a row from town to town, in one transaction."""
    source, target = round_number % ACCOUNTS, (round_number * 7 + 1) % ACCOUNTS
    table = db.table("account")
    with db.write() as group:
        if source != target:
            group.put("account", source, {"amount": table.get(source)["amount"] - 1})
            group.put("account", target, {"amount": table.get(target)["amount"] + 1})
        group.put("account", source, {"town": f"t{round_number % 5}"})


def test_a_reader_thread_and_a_reader_process_see_only_whole_epochs(tmp_path: Path) -> None:
    db = make_bank(tmp_path / "bank")
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    context = multiprocessing.get_context("spawn")
    stops = (threading.Event(), context.Event())
    queue, latest = context.SimpleQueue(), {"thread": (0, 0, []), "process": (0, 0, [])}
    thread = threading.Thread(target=read_all_the_time, args=(db, stops[0], lambda facts: latest.update(thread=facts)))
    process = context.Process(target=read_in_a_process, args=(db.url, stops[1], queue))
    thread.start()
    process.start()
    try:
        epochs = run_until_enough_was_read(db, queue, latest)
    finally:
        for stop in stops:
            stop.set()
        thread.join()
        while process.is_alive():  # a full pipe must not keep the process from ending
            take_reports(queue, latest)
            process.join(0.05)
        take_reports(queue, latest)

    for reads, seen, faults in latest.values():
        assert faults == []
        assert reads >= READS_MIN
        assert seen >= SEEN_MIN
    assert epochs >= EPOCHS_MIN
    assert process.exitcode == 0


def take_reports(queue: object, latest: dict) -> None:
    while not queue.empty():
        latest["process"] = queue.get()


def run_until_enough_was_read(db: object, queue: object, latest: dict) -> int:
    """Tiny epochs, on the driver and by managers in turn, until both readers have read enough."""
    coordinators = HereRunner(db.store), ManagersRunner(db.store, 3)
    epochs = 0
    for number in range(ROUNDS_MAX):
        transfer(db, number)
        epochs += len(Coordinator(db.store, coordinators[number % 5 == 0], limits=EpochLimits(changes=2)).catch_up())
        collect_garbage(db.store)
        take_reports(queue, latest)
        if epochs >= EPOCHS_MIN and all(reads >= READS_MIN and seen >= SEEN_MIN for reads, seen, _ in latest.values()):
            break
    return epochs


def test_a_get_that_the_floor_overtakes_is_read_anew(tmp_path: Path) -> None:
    """R4: between a look at the read frontier and a look at the record epochs may go by; the answer is of one of them."""
    db = make_bank(tmp_path / "bank")
    coordinator = Coordinator(db.store, HereRunner(db.store))
    coordinator.catch_up()
    view, asked, record_of = db.view("towns"), [], db.store.get_record

    def slow(partition: int, table: int, key: bytes, moment: ReadTimestamp) -> bytes | None:
        if len(asked) < 3:  # the reader is put to sleep until its epoch is no longer kept
            for number in range(4):
                transfer(db, len(asked) * 4 + number)
                coordinator.catch_up()
        asked.append(db.store.read_epoch_record().committed)
        return record_of(partition, table, key, moment)

    db.store.get_record = slow
    answer = view.get("t1")
    db.store.get_record = record_of

    assert len(asked) == 4  # three times overtaken, then answered
    assert answer == view.get("t1")


@pytest.mark.parametrize("way", ["snapshot", "scan", "to_arrow"])
def test_a_snapshot_that_the_floor_overtakes_while_it_is_opened_is_opened_anew(tmp_path: Path, way: str) -> None:
    """R4 for held records: between the look at the read frontier and the last partition opened, epochs may go by."""
    db = make_bank(tmp_path / "bank")
    coordinator = Coordinator(db.store, HereRunner(db.store))
    coordinator.catch_up()
    opened, hold = [], db.store.hold

    def slow(moment: object, partitions: object) -> object:
        if len(opened) < 3:
            for number in range(4):
                transfer(db, len(opened) * 4 + number)
                coordinator.catch_up()
        opened.append(db.store.read_epoch_record().committed)
        return hold(moment, partitions)

    db.store.hold = slow
    match way:
        case "snapshot":
            with db.snapshot() as snapshot:
                assert faults_of(snapshot) == []
                rows = list(snapshot.view("towns").scan())
        case "scan":
            rows = list(db.view("towns").scan())
        case _:
            rows = db.view("towns").to_arrow().to_pylist()
    db.store.hold = hold

    assert len(opened) == 4
    assert rows == list(db.view("towns").scan())


def test_a_read_one_epoch_long_is_never_overtaken(tmp_path: Path) -> None:
    """K = 2: a reader has one whole epoch of time."""
    db = make_bank(tmp_path / "bank")
    coordinator = Coordinator(db.store, HereRunner(db.store))
    coordinator.catch_up()
    before, asked, record_of = db.view("towns").get("t1"), [], db.store.get_record

    def slow(partition: int, table: int, key: bytes, moment: ReadTimestamp) -> bytes | None:
        asked.append(key)
        transfer(db, 1)
        coordinator.catch_up()
        return record_of(partition, table, key, moment)

    db.store.get_record = slow
    answer = db.view("towns").get("t1")

    assert len(asked) == 1
    assert answer == before  # the epoch that was committed when the read began
