"""The contract of Store: what view programs and the coordinator may rely on, over every store."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.contract.conftest import TABLE, Subject
from viewkeeper.errors import BadRow, CorruptStore, Fenced, InputError
from viewkeeper.model import epochs
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.fills import Borders
from viewkeeper.model.moments import Moment
from viewkeeper.model.positions import Cut
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.writes import RowWrites
from viewkeeper.ports.records import VersionWrite
from viewkeeper.stores.open import open_store

VIEW = 9
SCHEMA = TableSchema(TABLE, "t", (), ())


def at(epoch: int, *, floor: int = 0, aborted: tuple[int, ...] = ()) -> Inflight:
    return Inflight(epoch, {}, Cut({}, 0, 0), {}, floor, aborted, ())


def apply(subject: Subject, epoch: Inflight, rows: dict[bytes, bytes | None], partition: int = 0) -> None:
    found = subject.store.read_versions(VIEW, pa.array(list(rows), pa.binary()), np.full(len(rows), partition), epoch)
    chosen = np.flatnonzero(~found.applied)
    new = pa.array(list(rows.values()), pa.binary()).take(pa.array(chosen))
    subject.store.write_versions([VersionWrite(VIEW, found, chosen, new)], epoch)


def rows_of(subject: Subject, epoch: Inflight, keys: list[bytes], partition: int = 0) -> list[bytes | None]:
    return subject.store.read_versions(
        VIEW, pa.array(keys, pa.binary()), np.full(len(keys), partition), epoch
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
        for part in subject.store.parts(TABLE):
            for batch in subject.store.scan_as_of(TABLE, part, positions):
                found |= dict(zip(batch["key"].to_pylist(), batch["row"].to_pylist(), strict=True))
        assert found == rows


def test_a_group_of_writes_is_there_or_not_at_all(subject: Subject) -> None:
    subject.put(b"k", b"1")
    ends = subject.store.ends()

    def fail(befores: list) -> list:
        assert befores == [b"2"]  # it sees what the group before it wrote
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        subject.store.write([RowWrites(TABLE, [b"k"], lambda befores: [b"2"]), RowWrites(TABLE, [b"k"], fail)])
    assert subject.store.get(TABLE, b"k") == b"1"
    assert subject.store.ends() == ends


def test_a_write_that_changes_nothing_leaves_nothing_in_the_log(subject: Subject) -> None:
    reached = subject.put(b"k", b"1")
    ends = subject.store.ends()

    assert subject.put(b"k", b"1") == reached and reached.items() <= ends.items()
    subject.put(b"other", None)
    assert subject.store.ends() == ends


def test_rows_of_several_nodes_are_not_one_group(subject: Subject) -> None:
    keys = [b"k%d" % number for number in range(20)]
    parts = subject.store.together(keys)
    group = [RowWrites(TABLE, keys, lambda befores: [b"1"] * len(befores))]
    if len(parts) == 1:
        subject.store.write(group)
    else:
        with pytest.raises(InputError, match=f"several {subject.store.capabilities.atomic_group}s"):
            subject.store.write(group)

    assert sorted(i for part in parts for i in part) == list(range(20))
    assert subject.store.count_rows(TABLE) == (20 if len(parts) == 1 else 0)


def test_a_write_on_a_condition_is_done_where_the_row_is_as_expected(subject: Subject) -> None:
    writes = RowWrites(TABLE, [b"k"], lambda befores: [b"2"])

    assert subject.store.write_if(writes, lambda before: before == b"1") is None
    assert subject.store.get(TABLE, b"k") is None and not any(subject.store.ends().values())
    subject.put(b"k", b"1")
    reached = subject.store.write_if(writes, lambda before: before == b"1")
    assert reached.items() <= subject.store.ends().items()
    assert subject.store.get(TABLE, b"k") == b"2"


def test_a_row_that_is_too_large_is_refused(subject: Subject) -> None:
    with pytest.raises(BadRow, match="134,217,728"):
        subject.put(b"k", bytes((128 << 20) + 1))
    assert subject.store.get(TABLE, b"k") is None


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(7, 1 << 40), (1_000, 60), (1_000, 1 << 40)])
def test_borders_cut_rows_and_records_in_pieces(subject: Subject, rows_max: int, bytes_max: int) -> None:
    """From border to border everything is met once, in order, and no step is larger than was asked for."""
    rows = {b"%03d" % number: b"x" * (number % 9) for number in range(50)}
    for key, row in rows.items():
        subject.put(key, row)
    subject.begin(at(1))
    apply(subject, at(1), rows)
    most = {"rows_max": rows_max, "bytes_max": bytes_max, "pieces": 3}
    found: list[tuple[bytes, bytes]] = []
    for part in subject.store.parts(TABLE):
        ends = subject.store.ends()
        spans = spans_of(lambda after, of=part: subject.store.row_borders(TABLE, of, after, **most), rows_max)
        scans = [list(subject.store.scan_as_of(TABLE, part, ends, low, high)) for low, high in spans]
        mine = [pair for batches in scans for pair in pairs_in(batches)]
        assert mine == sorted(mine)
        found += mine
    assert sorted(found) == list(rows.items())
    spans = spans_of(lambda after: subject.store.record_borders(VIEW, 0, after, **most), rows_max)
    scans = [list(subject.store.scan_versions(0, VIEW, 1, (), low, high)) for low, high in spans]

    assert [pair for batches in scans for pair in pairs_in(batches)] == list(rows.items())
    assert subject.store.count_records(VIEW) == subject.store.count_rows(TABLE) == 50


def spans_of(borders_of: Callable[[bytes], Borders], rows_max: int) -> list[tuple[bytes, bytes | None]]:
    """All pieces (low, high] from the start of a part to its end."""
    spans: list[tuple[bytes, bytes | None]] = []
    after: bytes | None = b""
    while after is not None:
        found = borders_of(after)
        assert found.keys[0] == after and found.rows <= rows_max
        spans += itertools.pairwise(found.keys)
        after = found.keys[-1]
    return spans


def pairs_in(batches: list[pa.RecordBatch]) -> list[tuple[bytes, bytes]]:
    return [(row["key"], row["row"]) for batch in batches for row in batch.to_pylist()]


def test_a_version_is_seen_by_its_epoch_and_later_ones(subject: Subject) -> None:
    for epoch, row in ((1, b"1"), (3, b"3"), (4, None)):
        subject.begin(at(epoch))
        apply(subject, at(epoch), {b"k": row})

    assert [rows_of(subject, at(5), [b"k", b"other"])] == [[None, None]]
    subject.begin(at(5))
    apply(subject, at(5), {b"k": b"5"})
    assert rows_of(subject, at(6), [b"k"]) == [b"5"]


def test_a_rerun_finds_what_the_epoch_before_left_and_changes_nothing(subject: Subject) -> None:
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    subject.begin(at(2))
    apply(subject, at(2), {b"a": b"2", b"b": b"2"})
    found = subject.store.read_versions(VIEW, pa.array([b"a", b"b", b"c"], pa.binary()), np.zeros(3, int), at(2))

    assert found.rows.to_pylist() == [b"1", None, None]
    assert found.applied.tolist() in ([True, True, False], [False, False, False])  # who does not look marks none
    assert all(row == b"2" for row, applied in zip(found.now.to_pylist(), found.applied, strict=True) if applied)
    apply(subject, at(2), {b"a": b"2", b"b": b"2"})
    assert rows_of(subject, at(3), [b"a", b"b", b"c"]) == [b"2", b"2", None]


def test_a_task_whose_epoch_is_not_in_flight_writes_nothing(subject: Subject) -> None:
    subject.begin(at(2))
    apply(subject, at(2), {b"a": b"2"})
    late = subject.store.read_versions(VIEW, pa.array([b"a", b"new"], pa.binary()), np.zeros(2, int), at(2))
    subject.begin(at(3))

    for epoch in (at(2), at(1), at(4)):  # that of one who comes late, and one from the future
        with pytest.raises(Fenced):
            subject.store.write_versions([VersionWrite(VIEW, late, np.arange(2), pa.array([b"x", b"x"]))], epoch)
        assert rows_of(subject, at(3), [b"a", b"new"]) == [b"2", None]
    with contextlib.suppress(Fenced):  # it may notice that it met a record of a later epoch
        assert rows_of(subject, at(1), [b"a"]) == [None]
    assert subject.store.written_epochs()[1] == 3


def test_what_an_aborted_epoch_wrote_is_not_seen(subject: Subject) -> None:
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    subject.begin(at(2))
    apply(subject, at(2), {b"a": None, b"b": b"2"})
    subject.begin(at(3))

    assert rows_of(subject, at(3, aborted=(2,)), [b"a", b"b"]) == [b"1", None]


def test_what_readers_at_or_above_the_floor_see_outlives_every_purge(subject: Subject) -> None:
    """Records that go and come back, epochs that are aborted, and a purge between any two epochs."""
    choose, keys = random.Random(6), [b"k%d" % number for number in range(6)]
    states: list[dict[bytes, bytes]] = [{}]
    aborted: tuple[int, ...] = ()
    for number in range(1, 25):
        epoch = at(number, floor=_not_void(max(0, number - choose.choice([3, 3, 4])), aborted), aborted=aborted)
        subject.begin(epoch)
        rows = {key: choose.choice([None, b"%d" % number]) for key in choose.sample(keys, 3)}
        apply(subject, epoch, rows)
        after = {key: row for key, row in (states[-1] | rows).items() if row is not None}
        if number % 5 == 0:
            aborted, after = (*aborted, number), states[-1]
        states.append(after)
        subject.end(aborted=aborted)
        for seen in range(epoch.floor, number + 1):
            moment = Moment(seen, aborted, subject.store.read_horizon())
            held = subject.store.hold(moment, [0])
            assert dict(held.scan([0], VIEW, b"", None)) == states[seen]
            assert [subject.store.get_record(0, VIEW, key, moment) for key in keys] == [
                states[seen].get(key) for key in keys
            ]
            held.close()


def _not_void(epoch: int, aborted: tuple[int, ...]) -> int:
    return epoch if epoch not in aborted else epoch - 1


def test_partitions_do_not_see_each_other(subject: Subject) -> None:
    subject.begin(at(1))
    for partition in range(subject.store.partitions):
        apply(subject, at(1), {b"k": b"%d" % partition}, partition)

    assert [rows_of(subject, at(2), [b"k"], partition) for partition in range(subject.store.partitions)] == [
        [b"%d" % partition] for partition in range(subject.store.partitions)
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
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    subject.store.drop_records(VIEW)
    subject.store.drop_rows(TABLE)

    assert rows_of(subject, at(2), [b"a"]) == [None]
    assert list(subject.store.scan(TABLE, b"", None)) == []
    assert subject.store.count_rows(TABLE) == 0
    assert not subject.store.has_records(0, VIEW)


def test_a_write_to_a_table_that_was_dropped_is_nobodys(subject: Subject) -> None:
    """By a task of the newest epoch that wakes up late, and by the epoch that was planned before the drop."""
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    subject.store.drop_records(VIEW)
    apply(subject, at(1), {b"a": b"1"})
    subject.end(aborted=())
    subject.begin(at(2))
    apply(subject, at(2), {b"a": b"1", b"b": None}, partition=1)

    assert not any(subject.store.has_records(partition, VIEW) for partition in range(subject.store.partitions))


def test_where_views_start_anew_an_epoch_finds_no_record_of_those_before_and_its_rerun_finds_its_own(
    subject: Subject,
) -> None:
    for partition in (0, 1):
        subject.begin(at(1))
        apply(subject, at(1), {b"a": b"1"}, partition)
    again = replace(at(2), anew=2)
    subject.begin(again)
    assert [rows_of(subject, again, [b"a"], partition) for partition in (0, 1)] == [[None], [None]]
    apply(subject, again, {b"b": b"2"})
    subject.store.admit(again)

    assert rows_of(subject, at(3), [b"a", b"b"]) == [None, b"2"]


def test_syncs_may_be_asked_for_at_any_time(subject: Subject) -> None:
    subject.store.sync_views()
    subject.store.sync_epoch_record()
    subject.store.open_views()
    subject.store.close_views("nobody")

    assert subject.store.capabilities.held_reads


def test_a_plan_is_kept_for_the_epoch_in_flight_and_goes_with_the_next_one(subject: Subject) -> None:
    store = subject.store
    store.keep_plan("first", {"nodes": [1]})
    store.keep_plan("first", {"nodes": [1]})
    assert store.read_plan("first") == {"nodes": [1]}
    record = epochs.take_over(store.read_epoch_record(), "me")
    assert store.swap_epoch_record(record.version - 1, record)
    begun = epochs.begin(record, "me", Cut({}, 1, 0), "first")
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


def test_what_epochs_measured_is_kept_until_it_is_replaced(subject: Subject) -> None:
    assert subject.store.read_note("measured") == {}
    subject.store.keep_note("measured", {"epochs": 1})
    subject.store.keep_note("other", {"n": 1})
    subject.store.keep_note("measured", {"epochs": 2, "seen": {"7": 3}})

    assert subject.store.read_note("measured") == {"epochs": 2, "seen": {"7": 3}}
