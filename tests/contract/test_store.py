"""The contract of Store: what view programs and the coordinator may rely on, over every store."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

from tests.contract.conftest import TABLE, Subject
from viewkeeper.errors import CorruptStore, Fenced
from viewkeeper.model import epochs
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Cut
from viewkeeper.model.schema import TableSchema
from viewkeeper.ports.store import VersionWrite
from viewkeeper.stores.open import open_store

VIEW = 9
SCHEMA = TableSchema(TABLE, "t", (), ())


def at(epoch: int, *, floor: int = 0, void: tuple[int, ...] = ()) -> Inflight:
    return Inflight(epoch, {}, Cut({}, 0), {}, floor, void, ())


def settle(subject: Subject, epoch: Inflight, rows: dict[bytes, bytes | None], place: int = 0) -> None:
    subject.store.open_epoch(place, epoch)
    found = subject.store.read_versions(VIEW, pa.array(list(rows), pa.binary()), np.full(len(rows), place), epoch)
    chosen = np.flatnonzero(~found.applied)
    new = pa.array(list(rows.values()), pa.binary()).take(pa.array(chosen))
    subject.store.write_versions([VersionWrite(VIEW, found, chosen, new)], epoch)


def rows_of(subject: Subject, epoch: Inflight, keys: list[bytes], place: int = 0) -> list[bytes | None]:
    return subject.store.read_versions(
        VIEW, pa.array(keys, pa.binary()), np.full(len(keys), place), epoch
    ).rows.to_pylist()


def test_a_url_opens_the_same_store_again(subject: Subject) -> None:
    subject.write(5)
    other = open_store(subject.store.url)

    assert other.ends() == subject.store.ends()
    assert other.read_epoch_record() == subject.store.read_epoch_record()


def test_base_rows_are_there_in_key_order_both_ways(subject: Subject) -> None:
    subject.write(40)
    subject.put(b"row-3", None)
    pairs = sorted(subject.rows.items())

    assert list(subject.store.scan(TABLE, b"", None)) == pairs
    assert list(subject.store.scan(TABLE, b"row-2", b"row-5", reverse=True)) == [
        pair for pair in pairs[::-1] if b"row-2" <= pair[0] < b"row-5"
    ]
    keys = [b"row-3", *subject.rows, b"none"]
    assert subject.store.get_many(TABLE, keys) == [subject.rows.get(key) for key in keys]
    assert [subject.store.get(TABLE, key) for key in keys] == [subject.rows.get(key) for key in keys]
    assert list(subject.store.scan(TABLE + 1, b"", None)) == []


def test_a_table_can_be_read_as_of_any_cut(subject: Subject) -> None:
    cuts = []
    for _ in range(4):
        subject.write(9)
        subject.put(b"row-1", None)
        cuts.append((subject.store.cut({}, changes_max=1_000, bytes_max=1 << 40).positions, dict(subject.rows)))
    for positions, rows in cuts:
        found: dict[bytes, bytes] = {}
        for stream, position in positions.items():
            for batch in subject.store.scan_as_of(TABLE, stream, position):
                found |= dict(zip(batch["key"].to_pylist(), batch["row"].to_pylist(), strict=True))
        assert found == rows


def test_a_version_is_seen_by_its_epoch_and_later_ones(subject: Subject) -> None:
    for epoch, row in ((1, b"1"), (3, b"3"), (4, None)):
        subject.store.raise_fences(epoch)
        settle(subject, at(epoch), {b"k": row})

    assert [rows_of(subject, at(5), [b"k", b"other"])] == [[None, None]]
    subject.store.raise_fences(5)
    settle(subject, at(5), {b"k": b"5"})
    assert rows_of(subject, at(6), [b"k"]) == [b"5"]


def test_a_rerun_finds_what_the_epoch_before_left_and_that_it_was_applied(subject: Subject) -> None:
    subject.store.raise_fences(1)
    settle(subject, at(1), {b"a": b"1"})
    subject.store.raise_fences(2)
    settle(subject, at(2), {b"a": b"2", b"b": b"2"})
    found = subject.store.read_versions(VIEW, pa.array([b"a", b"b", b"c"], pa.binary()), np.zeros(3, int), at(2))

    assert found.rows.to_pylist() == [b"1", None, None]
    assert found.applied.tolist() == [True, True, False]
    assert found.now.to_pylist()[:2] == [b"2", b"2"]


def test_an_epoch_that_is_not_at_the_fence_writes_nothing(subject: Subject) -> None:
    subject.store.raise_fences(2)
    settle(subject, at(2), {b"a": b"2"})
    subject.store.raise_fences(3)

    with pytest.raises(Fenced):
        settle(subject, at(2), {b"new": b"2"})
    with pytest.raises(Fenced):  # it met a record of a later epoch
        rows_of(subject, at(1), [b"a"])
    assert rows_of(subject, at(3), [b"new"]) == [None]
    assert subject.store.fences()[1] == 3


def test_what_a_void_epoch_wrote_is_not_seen(subject: Subject) -> None:
    subject.store.raise_fences(1)
    settle(subject, at(1), {b"a": b"1"})
    subject.store.raise_fences(2)
    settle(subject, at(2), {b"a": None, b"b": b"2"})
    subject.store.raise_fences(3)

    assert rows_of(subject, at(3, void=(2,)), [b"a", b"b"]) == [b"1", None]


def test_places_do_not_see_each_other(subject: Subject) -> None:
    subject.store.raise_fences(1)
    for place in range(subject.store.places):
        settle(subject, at(1), {b"k": b"%d" % place}, place)

    assert [rows_of(subject, at(2), [b"k"], place) for place in range(subject.store.places)] == [
        [b"%d" % place] for place in range(subject.store.places)
    ]


def test_of_two_who_swap_the_epoch_record_at_once_one_succeeds(subject: Subject) -> None:
    """R5."""
    won: list[str] = []
    for _ in range(10):
        record, start = subject.store.read_epoch_record(), threading.Barrier(3)
        attempts: list[tuple[str, bool]] = []

        def take(name: str, record: object = record, start: object = start, attempts: list = attempts) -> None:
            start.wait()
            taken = subject.store.swap_epoch_record(record.version, epochs.take_over(record, name))
            attempts.append((name, taken))

        threads = [threading.Thread(target=take, args=(f"driver {number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [name for name, taken in attempts if taken]
        assert len(winners) == 1
        assert subject.store.read_epoch_record().owner == winners[0]
        assert subject.store.read_epoch_record().version == record.version + 1
        won += winners

    assert len(won) == 10


def test_the_catalog_is_swapped_by_its_version(subject: Subject) -> None:
    assert subject.store.read_catalog() == {}
    assert subject.store.swap_catalog(0, {"version": 1, "note": "é"})
    assert not subject.store.swap_catalog(0, {"version": 1, "note": "other"})
    assert subject.store.read_catalog() == {"version": 1, "note": "é"}
    assert subject.store.swap_catalog(1, {"version": 2})


def test_a_dropped_view_and_a_dropped_table_leave_nothing(subject: Subject) -> None:
    subject.write(10)
    subject.store.raise_fences(1)
    settle(subject, at(1), {b"a": b"1"})
    subject.store.drop_records(VIEW)
    subject.store.drop_rows(TABLE)

    assert rows_of(subject, at(2), [b"a"]) == [None]
    assert list(subject.store.scan(TABLE, b"", None)) == []
    assert subject.store.count_rows(TABLE) == 0


def test_syncs_may_be_asked_for_at_any_time(subject: Subject) -> None:
    subject.store.sync_views()
    subject.store.sync_epoch_record()
    subject.store.open_views()
    subject.store.close_views("nobody")

    assert subject.store.capabilities.snapshots


def test_a_plan_is_kept_for_the_epoch_in_flight_and_goes_with_the_next_one(subject: Subject) -> None:
    store = subject.store
    store.keep_plan("first", {"nodes": [1]})
    store.keep_plan("first", {"nodes": [1]})
    assert store.read_plan("first") == {"nodes": [1]}
    record = epochs.take_over(store.read_epoch_record(), "me")
    assert store.swap_epoch_record(record.version - 1, record)
    begun = epochs.begin(record, "me", Cut({}, 1), "first")
    assert store.swap_epoch_record(record.version, begun)
    store.keep_plan("second", {"nodes": [2]})  # by one who does not know of the epoch
    assert store.read_plan("first") == {"nodes": [1]}
    done = epochs.commit(begun, "me", begun.last, {}, frozenset())
    assert store.swap_epoch_record(begun.version, done)
    store.keep_plan("third", {"nodes": [3]})

    assert store.read_plan("third") == {"nodes": [3]}
    for digest in ("first", "second"):
        with pytest.raises(CorruptStore, match=f"the plan {digest} of an epoch is not there"):
            store.read_plan(digest)
