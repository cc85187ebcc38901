"""The contract of reads that clients hold open, and of the right to run the pipeline, over every store."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

from tests.contract.conftest import TABLE, Subject
from tests.contract.test_store import VIEW, at, settle
from viewkeeper.errors import InputError, PipelineRunning, StoreInUse
from viewkeeper.model import epochs
from viewkeeper.model.writes import RowWrites
from viewkeeper.stores.open import open_store
from viewkeeper.stores.versions import version_at


def write(
    subject: Subject, epoch: int, rows: dict[bytes, bytes | None], place: int = 0, *, indexed: bool = True
) -> None:
    subject.store.admit(at(epoch))
    settle(subject, replace(at(epoch), indexed=frozenset({VIEW} if indexed else ())), rows, place)


def test_held_records_stay_as_they_were(subject: Subject) -> None:
    write(subject, 1, {b"a": b"1", b"b": b"1"})
    held = subject.store.hold(range(subject.store.places))
    write(subject, 2, {b"a": b"2", b"b": None, b"c": b"2"})
    subject.store.drop_records(VIEW)

    assert [version_at(chain, 9, ()) for _, chain in held.scan([0], VIEW, b"", None)] == [b"1", b"1"]
    assert version_at(held.get(0, VIEW, b"a"), 9, ()) == b"1"
    assert held.get(0, VIEW, b"c") is None
    held.close()
    assert list(subject.store.hold([0]).scan([0], VIEW, b"", None)) == []


def test_held_records_come_in_key_order_across_places_both_ways(subject: Subject) -> None:
    keys = [b"%02d" % number for number in range(30)]
    for place in range(3):
        write(subject, 1, dict.fromkeys(keys[place::3], b"%d" % place), place)
    held = subject.store.hold(range(3))

    assert [key for key, _ in held.scan(range(3), VIEW, b"", None)] == keys
    assert [key for key, _ in held.scan(range(3), VIEW, b"05", b"20", reverse=True)] == keys[5:20][::-1]
    assert [key for key, _ in held.scan([1], VIEW, b"05", b"20")] == [key for key in keys[1::3] if b"05" <= key < b"20"]


def test_held_rows_stay_as_they_were(subject: Subject) -> None:
    subject.write(30)
    rows, held = dict(subject.rows), subject.store.hold_rows()
    scan = subject.store.scan(TABLE, b"", None)
    first = next(scan)
    subject.write(30)
    subject.put(b"row-3", None)

    assert dict(held.scan_all(TABLE, b"", None)) == dict([first, *scan]) == rows
    assert [key for key, _ in held.scan_all(TABLE, b"row-2", b"row-5")] == sorted(
        key for key in rows if b"row-2" <= key < b"row-5"
    )
    held.close()


def test_what_indexed_epochs_wrote_is_found_by_the_epoch(subject: Subject) -> None:
    write(subject, 1, {b"a": b"1", b"b": b"1", b"c": b"1"})
    write(subject, 2, {b"a": b"2"}, indexed=False)
    write(subject, 3, {b"b": None})
    write(subject, 5, {b"c": b"5", b"d": b"5"})
    write(subject, 5, {b"e": b"5"}, place=1)
    held = subject.store.hold(range(2))

    def keys(since: int, epoch: int) -> list[bytes]:
        return [key for key, _ in held.written_between(range(2), VIEW, since, epoch)]

    assert keys(0, 9) == [b"a", b"b", b"c", b"d", b"e"]
    assert (keys(1, 2), keys(1, 4), keys(3, 4), keys(4, 5)) == ([], [b"b"], [], [b"c", b"d", b"e"])
    assert held.written_between(range(2), VIEW + 1, 0, 9) == []
    subject.store.admit(at(6, floor=3))
    assert keys(0, 9) == [b"a", b"b", b"c", b"d", b"e"]
    now = subject.store.hold([0])
    assert [key for key, _ in now.written_between([0], VIEW, 0, 9)] == [b"c", b"d"]


def test_a_scan_beside_a_writer_sees_each_row_as_one_write_left_it(subject: Subject) -> None:
    """All rows of a node are written together, so a scan that sees two numbers in one node is torn."""
    store, enough = subject.store, threading.Event()
    by_node = {node: [key for n in range(40) if store.node_of(key := b"k%d" % n) == node] for node in store.ends()}

    def write_all(number: int) -> None:
        for node, keys in by_node.items():
            store.write(node, [RowWrites(TABLE, keys, lambda befores: [b"%d" % number] * len(befores))])

    def keep_writing() -> None:
        number = 0
        while not enough.is_set():
            number += 1
            write_all(number)

    write_all(0)
    writer = threading.Thread(target=keep_writing)
    writer.start()
    seen: set[bytes] = set()
    try:
        while len(seen) < 20:
            rows = dict(store.scan(TABLE, b"", None))
            assert len(rows) == 40
            for keys in by_node.values():
                assert len({rows[key] for key in keys}) == 1
            seen |= set(rows.values())
    finally:
        enough.set()
        writer.join()


def test_the_horizon_follows_record_and_catalog(subject: Subject) -> None:
    store = subject.store
    seen = [store.last_meta_change()]
    assert store.swap_catalog(0, {"version": 7})
    seen.append(store.last_meta_change())
    changed = store.change_epoch_record(lambda record: epochs.pin(record, "reader", 0, 5))
    seen.append(store.last_meta_change())

    assert store.read_horizon().catalog_version == 7
    assert store.read_epoch_record() == changed and changed.pins == {"reader": (0, 5)}
    assert seen == sorted(set(seen))


def test_a_catalog_that_was_read_can_be_changed_without_harm(subject: Subject) -> None:
    subject.store.swap_catalog(0, {"version": 1, "tables": []})
    subject.store.read_catalog()["tables"].append("mine")

    assert subject.store.read_catalog() == {"version": 1, "tables": []}


def test_one_pipeline_at_a_time_has_the_claim(subject: Subject) -> None:
    other = open_store(subject.store.url)
    assert other.claimed_by() is None
    first = subject.store.claim(take_over=False)
    with pytest.raises(PipelineRunning, match=f"pid {os.getpid()}"):
        other.claim(take_over=False)
    with pytest.raises(PipelineRunning, match="stop it first"), other.alone():
        pass
    second = other.claim(take_over=True)
    first.release()

    assert other.claimed_by() == os.getpid()  # the one who was taken over has nothing to give back
    second.release()
    assert not second.is_held and other.claimed_by() is None
    with pytest.raises(StoreInUse, match="open 2 times"), other.alone():
        pass
    other.close()
    with subject.store.alone():
        assert subject.store.claimed_by() == os.getpid()
    subject.store.claim(take_over=False).release()


def test_a_store_that_is_closed_says_so(subject: Subject) -> None:
    subject.write(3)
    subject.store.close()
    subject.store.close()

    with pytest.raises(InputError, match="closed"):
        subject.store.ends()
