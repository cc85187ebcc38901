"""The contract of VersionedTables: what view programs and the coordinator may rely on, over every store."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.contract.conftest import Subject
from tests.contract.steps import VIEW, apply, at, pairs_in, rows_of, spans_of
from viewkeeper.errors import Fenced
from viewkeeper.model.read_frontier import ReadTimestamp
from viewkeeper.ports.records import VersionWrite
from viewkeeper.stores.open import open_store


@pytest.mark.parametrize(("rows_max", "bytes_max"), [(7, 1 << 40), (1_000, 60), (1_000, 1 << 40)])
def test_borders_cut_records_in_pieces(subject: Subject, rows_max: int, bytes_max: int) -> None:
    """From border to border everything is met once, in order, and no step is larger than was asked for."""
    rows = {b"%03d" % number: b"x" * (number % 9) for number in range(50)}
    subject.begin(at(1))
    apply(subject, at(1), rows)
    most = {"rows_max": rows_max, "bytes_max": bytes_max, "pieces": 3}
    spans = spans_of(lambda after: subject.store.record_borders(VIEW, 0, after, **most), rows_max)
    scans = [list(subject.store.scan_versions(0, VIEW, 1, (), low, high)) for low, high in spans]

    assert [pair for batches in scans for pair in pairs_in(batches)] == list(rows.items())


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
            moment = ReadTimestamp(seen, aborted, subject.store.read_frontier())
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


def has_records(subject: Subject, partition: int) -> bool:
    """Whether there is any, tombstones included."""
    return subject.store.record_borders(VIEW, partition, b"", rows_max=1, bytes_max=1, pieces=1).rows > 0


def test_a_write_to_a_table_that_was_dropped_is_nobodys(subject: Subject) -> None:
    """By a task of the newest epoch that wakes up late, and by the epoch that was planned before the drop."""
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    subject.store.drop(VIEW)
    apply(subject, at(1), {b"a": b"1"})
    subject.end(aborted=())
    subject.begin(at(2))
    apply(subject, at(2), {b"a": b"1", b"b": None}, partition=1)

    assert not any(has_records(subject, partition) for partition in range(subject.store.partitions))


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


def test_a_pipeline_that_starts_views_anew_late_takes_no_record_of_that_epoch(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused when it had looked which epochs were admitted, and another one did the epoch meanwhile."""
    again, other = replace(at(2), anew=2), Subject(open_store(subject.store.url))
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    other.begin(again)
    apply(other, again, {b"b": b"2"})
    with monkeypatch.context() as patch:
        patch.setattr(type(subject.store), "written_epochs", lambda store: (1, 1))
        subject.store.admit(again)
    other.store.close()
    other = Subject(open_store(subject.store.url))

    assert rows_of(other, at(3), [b"a", b"b"]) == [None, b"2"]
    other.store.close()


def test_a_dropped_view_leaves_nothing(subject: Subject) -> None:
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    subject.store.drop(VIEW)

    assert rows_of(subject, at(2), [b"a"]) == [None]
    assert not has_records(subject, 0)


def test_a_table_that_another_client_dropped_is_empty_and_takes_nothing(subject: Subject) -> None:
    other = open_store(subject.store.url)
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    other.drop(VIEW)
    apply(subject, at(1), {b"a": b"1"})

    assert rows_of(subject, at(2), [b"a"]) == [None]
    assert not has_records(subject, 0)
    other.close()


def test_syncs_may_be_asked_for_at_any_time(subject: Subject) -> None:
    subject.store.sync()
    subject.begin(at(1))
    apply(subject, at(1), {b"a": b"1"})
    subject.store.sync()
    subject.store.sync(closed_by="nobody")

    assert rows_of(subject, at(2), [b"a"]) == [b"1"]
