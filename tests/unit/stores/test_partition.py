"""Partitions: the fence inside every write, and tombstones that go when no reader needs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.dump import chain_epochs, dump, tombstone_index
from viewkeeper.errors import Fenced
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Cut
from viewkeeper.ports.records import VersionWrite
from viewkeeper.stores.kv.kernel import table_prefix
from viewkeeper.stores.local import partition as partitions
from viewkeeper.stores.local.embedded_store import EmbeddedStore
from viewkeeper.stores.version_chains import runs

TABLE = 5
LONG = b"l" * 700


def at(epoch: int, *, floor: int = 0, aborted: tuple[int, ...] = ()) -> Inflight:
    return Inflight(epoch, {}, Cut({}, 0, 0), {}, floor, aborted, ())


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    return EmbeddedStore(f"embedded:{tmp_path / 's'}?sync=off")


def apply(store: EmbeddedStore, epoch: Inflight, rows: dict[bytes, bytes | None], *, partition: int = 0) -> None:
    """What a view program does with a partition: read, write what is not applied yet."""
    found = store.read_versions(TABLE, pa.array(list(rows), pa.binary()), np.full(len(rows), partition), epoch)
    chosen = np.flatnonzero(~found.applied)
    new = pa.array(list(rows.values()), pa.binary()).take(pa.array(chosen))
    store.write_versions([VersionWrite(TABLE, found, chosen, new)], epoch)


@given(st.lists(st.integers(0, 7)))
def test_runs_cover_the_partitions_in_order(partitions: list[int]) -> None:
    partitions.sort()
    found = [partition for partition, start, stop in runs(np.array(partitions, int)) for _ in range(start, stop)]

    assert found == partitions


def test_a_write_of_an_old_epoch_is_fenced_and_leaves_no_trace(store: EmbeddedStore) -> None:
    store.admit(at(1))
    apply(store, at(1), {b"a": b"1"})
    store.admit(at(2))
    before = dump(store)

    with pytest.raises(Fenced, match="epoch 1 cannot write: epoch 2 has started"):
        apply(store, at(1), {b"new": b"1"})
    with pytest.raises(Fenced):  # nor may one from the future
        apply(store, at(3), {b"new": b"1"})
    assert dump(store) == before


def test_a_write_whose_fence_was_raised_after_it_had_read_is_fenced(store: EmbeddedStore) -> None:
    """R1a: the test is inside the transaction that writes, not before it."""
    store.admit(at(1))
    found = store.read_versions(TABLE, pa.array([b"a"], pa.binary()), np.zeros(1, int), at(1))
    store.admit(at(2))

    with pytest.raises(Fenced):
        store.write_versions([VersionWrite(TABLE, found, np.array([0]), pa.array([b"1"]))], at(1))
    assert dump(store) == []


def test_a_fence_never_goes_down(store: EmbeddedStore) -> None:
    store.admit(at(5))
    store.admit(at(3))

    assert {store.partition(number).fence() for number in range(store.partitions)} == {5}
    assert store.written_epochs()[1] == 5


def test_a_record_of_a_later_epoch_stops_the_reader(store: EmbeddedStore) -> None:
    """R3."""
    store.admit(at(2))
    apply(store, at(2), {b"a": b"1"})

    with pytest.raises(Fenced, match="an epoch later than 1"):
        store.read_versions(TABLE, pa.array([b"a", b"b"], pa.binary()), np.zeros(2, int), at(1))


def test_all_writes_of_one_call_are_there_or_none(store: EmbeddedStore) -> None:
    store.admit(at(1))
    found = store.read_versions(TABLE, pa.array([b"a", b"b"], pa.binary()), np.zeros(2, int), at(1))
    good = VersionWrite(TABLE, found, np.array([0, 1]), pa.array([b"1", b"2"]))
    broken = VersionWrite(TABLE, found, np.array([0]), None)

    with pytest.raises(AttributeError):
        store.write_versions([good, broken], at(1))
    assert dump(store) == []


@pytest.mark.parametrize("key", [b"k", LONG], ids=["short key", "long key"])
def test_a_tombstone_is_purged_once_the_floor_has_passed_it(store: EmbeddedStore, key: bytes) -> None:
    for epoch, row in ((1, b"1"), (2, None)):
        store.admit(at(epoch))
        apply(store, at(epoch), {key: row})
    assert [epoch for epoch, _ in tombstone_index(store)] == [2]
    store.admit(at(3, floor=1))
    assert chain_epochs(store, TABLE) == {key: [2, 1]}  # a reader of epoch 1 still sees the row

    store.admit(at(4, floor=2))
    assert (dump(store), tombstone_index(store)) == ([], [])


@pytest.mark.parametrize("key", [b"k", LONG], ids=["short key", "long key"])
def test_a_record_written_again_since_its_tombstone_is_left_alone(store: EmbeddedStore, key: bytes) -> None:
    for epoch, row in ((1, b"1"), (2, None), (3, b"3")):
        store.admit(at(epoch))
        apply(store, at(epoch), {key: row})
    store.admit(at(4, floor=2))
    assert chain_epochs(store, TABLE) == {key: [3, 2, 1]}
    assert tombstone_index(store) == []

    apply(store, at(4, floor=3), {key: None})
    store.admit(at(6, floor=4))
    assert (dump(store), tombstone_index(store)) == ([], [])


@pytest.mark.parametrize("tail", [b"", LONG], ids=["short keys", "long keys"])
def test_of_many_tombstones_those_of_records_written_again_since_purge_nothing(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, tail: bytes
) -> None:
    monkeypatch.setattr(partitions, "_PURGE_BATCH", 1_500)
    keys = [b"%04d" % number + tail for number in range(2_400)]
    again = keys[5::7]
    for epoch, rows in ((1, dict.fromkeys(keys, b"1")), (2, dict.fromkeys(keys)), (3, dict.fromkeys(again, b"3"))):
        store.admit(at(epoch))
        apply(store, at(epoch), rows)
    store.admit(at(4, floor=1))
    assert sorted(tombstone_index(store)) == [(2, table_prefix(TABLE) + key) for key in keys]
    store.admit(at(5, floor=2))

    assert chain_epochs(store, TABLE) == {key: [3, 2, 1] for key in again}
    assert tombstone_index(store) == []


def test_many_long_keys_that_share_their_first_bytes_are_purged_each_for_itself(store: EmbeddedStore) -> None:
    keys = [LONG + bytes([number]) for number in range(5)]
    store.admit(at(1))
    apply(store, at(1), dict.fromkeys(keys, b"1"))
    store.admit(at(2))
    apply(store, at(2), dict.fromkeys(keys[:3]))
    store.admit(at(4, floor=2))

    assert sorted(key for _, key, _ in dump(store)) == keys[3:]


def test_a_purge_of_an_old_epoch_is_fenced(store: EmbeddedStore) -> None:
    for epoch, row in ((1, b"1"), (2, None)):
        store.admit(at(epoch))
        apply(store, at(epoch), {b"k": row})
    store.admit(at(5))
    before = dump(store)

    with pytest.raises(Fenced):
        store.admit(at(4, floor=2))
    assert dump(store) == before


def test_what_an_aborted_epoch_wrote_is_not_there_and_goes_when_the_floor_has_passed_it(store: EmbeddedStore) -> None:
    """R8."""
    store.admit(at(1))
    apply(store, at(1), {b"k": b"1", b"gone": b"1"})
    store.admit(at(2))
    apply(store, at(2), {b"k": b"2", b"gone": None})
    store.admit(at(3))
    epoch = at(3, aborted=(2,))
    found = store.read_versions(TABLE, pa.array([b"gone", b"k"], pa.binary()), np.zeros(2, int), epoch)

    assert found.rows.to_pylist() == [b"1", b"1"]
    apply(store, epoch, {b"k": b"3"})
    assert chain_epochs(store, TABLE) == {b"k": [3, 2, 1], b"gone": [2, 1]}
    store.admit(at(5, floor=3, aborted=(2,)))  # the aborted tombstone kills nothing
    apply(store, at(5, floor=3, aborted=(2,)), {b"k": b"5"})
    assert chain_epochs(store, TABLE) == {b"k": [5, 3], b"gone": [2, 1]}


def test_a_dropped_table_is_gone_from_every_partition(store: EmbeddedStore) -> None:
    store.admit(at(1))
    for partition in range(store.partitions):
        apply(store, at(1), {b"k%d" % partition: b"1", LONG + b"%d" % partition: b"2"}, partition=partition)
    store.drop(TABLE)

    assert dump(store) == []


def test_that_a_table_was_dropped_is_forgotten_when_nobody_can_write_to_it(store: EmbeddedStore) -> None:
    store.admit(at(1))
    store.drop(TABLE)
    kept = []
    for epoch in (2, 3):
        store.admit(at(epoch))
        with store.partition(0).kernel.read("info") as info:
            kept.append(len(info))

    assert kept == [2, 1]
