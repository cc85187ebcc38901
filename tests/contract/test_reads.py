"""The contract of Reads: records that clients read as of a moment, over every store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.conftest import Subject
from tests.contract.steps import VIEW, apply, at
from viewkeeper.model.read_frontier import EPOCH_MAX, ReadFrontier, ReadTimestamp, RecordChange

ALL = [([0], b"", None)]


def seen_at(epoch: int, *, aborted: tuple[int, ...] = (), indexed_from: int | None = None) -> ReadTimestamp:
    return ReadTimestamp(epoch, aborted, ReadFrontier(epoch, 0, aborted, 0, {}, {}, frozenset(), 0, indexed_from))


def write(
    subject: Subject, epoch: int, rows: dict[bytes, bytes | None], partition: int = 0, *, indexed: bool = True
) -> None:
    subject.begin(at(epoch))
    apply(subject, replace(at(epoch), indexed=frozenset({VIEW} if indexed else ())), rows, partition)


def test_held_records_stay_as_they_were(subject: Subject) -> None:
    write(subject, 1, {b"a": b"1", b"b": b"1"})
    held = subject.store.hold(seen_at(9), range(subject.store.partitions))
    write(subject, 2, {b"a": b"2", b"b": None, b"c": b"2"})
    if subject.store.capabilities.held_reads:
        subject.store.drop(VIEW)
        assert list(held.scan([0], VIEW, b"", None)) == [(b"a", b"1"), (b"b", b"1")]
        assert held.get(0, VIEW, b"a") == b"1"
        assert held.get(0, VIEW, b"c") is None
    held.close()


def test_stored_records_are_those_of_a_partition_wherever_they_belong(subject: Subject) -> None:
    write(subject, 1, {b"a": b"1", b"b": b"1"})
    write(subject, 2, {b"a": b"2", b"b": None, b"c": b"2"})
    write(subject, 3, {b"a": b"3"}, partition=1)
    held = subject.store.hold(seen_at(2), [0, 1])
    found = {
        (part, key): row
        for part in (0, 1)
        for keys, rows, _ in held.stored(part, VIEW, 3)
        for key, row in zip(keys.to_pylist(), rows.to_pylist(), strict=True)
    }
    assert found == {(0, b"a"): b"2", (0, b"c"): b"2"}
    assert not any(damaged for part in (0, 1) for _, _, damaged in held.stored(part, VIEW, 3))
    if subject.store.capabilities.held_reads:
        ((key, why),) = [one for _, _, damaged in held.stored(1, VIEW, 2) for one in damaged]
        assert (key, why) == (b"a", "it is of epoch 3, and the last one is 2")
    held.close()


def test_a_moment_sees_the_versions_up_to_its_epoch_that_are_not_aborted(subject: Subject) -> None:
    write(subject, 1, {b"a": b"1", b"b": b"1"})
    write(subject, 2, {b"a": b"2", b"b": None, b"c": b"2"})
    write(subject, 3, {b"a": b"3", b"b": b"3", b"c": None})
    states = [
        (seen_at(0), {}),
        (seen_at(1), {b"a": b"1", b"b": b"1"}),
        (seen_at(2), {b"a": b"2", b"c": b"2"}),
        (seen_at(3), {b"a": b"3", b"b": b"3"}),
        (seen_at(3, aborted=(2,)), {b"a": b"3", b"b": b"3"}),
        (seen_at(2, aborted=(2,)), {b"a": b"1", b"b": b"1"}),
        (seen_at(EPOCH_MAX), {b"a": b"3", b"b": b"3"}),
    ]
    for moment, state in states:
        held = subject.store.hold(moment, [0])
        assert dict(held.scan([0], VIEW, b"", None)) == state
        for key in (b"a", b"b", b"c", b"d"):
            assert held.get(0, VIEW, key) == subject.store.get_record(0, VIEW, key, moment) == state.get(key)
        batches = [zip(keys.to_pylist(), rows.to_pylist(), strict=True) for keys, rows in held.batches(VIEW, ALL)]
        assert [pair for batch in batches for pair in batch] == sorted(state.items())
        held.close()


def test_a_look_at_a_record_and_the_frontier_tells_its_committed_version_or_nothing(subject: Subject) -> None:
    keys = (b"a", b"b", b"c", b"d")
    for epoch, rows in ((1, {b"a": b"1", b"b": b"1"}), (2, {b"a": b"2", b"b": None, b"c": b"2"}), (3, {b"a": b"3"})):
        subject.begin(at(epoch))
        apply(subject, at(epoch), rows)
        frontier = subject.store.read_frontier()
        for key in keys:
            found = subject.store.get_committed(0, VIEW, key)
            moment = ReadTimestamp(frontier.committed, frontier.aborted, frontier)
            assert found is None or found[0] == subject.store.get_record(0, VIEW, key, moment)
            assert found is None or found[1].committed <= frontier.committed


def test_batches_give_span_after_span_what_scans_give(subject: Subject) -> None:
    rows = {b"%04d" % number: b"%d" % number for number in range(2_500)}
    for partition in range(2):
        write(subject, 1, dict(list(rows.items())[partition::2]), partition)
    held = subject.store.hold(seen_at(1), range(2))
    spans = [(range(2), b"0100", b"2400"), ([1], b"", b"0010"), (range(2), b"2490", None)]
    for reverse in (False, True):
        batches = list(held.batches(VIEW, spans, reverse=reverse))
        scans = [
            pair for partitions, low, high in spans for pair in held.scan(partitions, VIEW, low, high, reverse=reverse)
        ]
        assert [key for keys, _ in batches for key in keys.to_pylist()] == [key for key, _ in scans]
        assert [row for _, rows in batches for row in rows.to_pylist()] == [row for _, row in scans]
        assert len(batches) > 1
    held.close()


def test_held_records_come_in_key_order_across_partitions_both_ways(subject: Subject) -> None:
    keys = [b"%02d" % number for number in range(30)]
    for partition in range(3):
        write(subject, 1, dict.fromkeys(keys[partition::3], b"%d" % partition), partition)
    held = subject.store.hold(seen_at(1), range(3))

    assert [key for key, _ in held.scan(range(3), VIEW, b"", None)] == keys
    assert [key for key, _ in held.scan(range(3), VIEW, b"05", b"20", reverse=True)] == keys[5:20][::-1]
    assert [key for key, _ in held.scan([1], VIEW, b"05", b"20")] == [key for key in keys[1::3] if b"05" <= key < b"20"]


@pytest.mark.parametrize("indexed_from", [None, 1, 3], ids=["no index", "an index", "an index of the later epochs"])
def test_steps_are_what_each_epoch_did_by_epoch_and_key(subject: Subject, indexed_from: int | None) -> None:
    """Whether or not it was written down which records an epoch wrote."""
    write(subject, 1, {b"a": b"1", b"b": b"1", b"c": b"1"}, indexed=indexed_from == 1)
    write(subject, 2, {b"a": b"2", b"f": b"2"}, indexed=indexed_from == 1)
    write(subject, 3, {b"b": None}, indexed=indexed_from is not None)
    write(subject, 5, {b"c": b"5", b"d": b"5"}, indexed=indexed_from is not None)
    write(subject, 5, {b"e": b"5"}, partition=1, indexed=indexed_from is not None)
    every = [
        RecordChange(1, b"a", None, b"1"), RecordChange(1, b"b", None, b"1"), RecordChange(1, b"c", None, b"1"),
        RecordChange(2, b"a", b"1", b"2"), RecordChange(2, b"f", None, b"2"),
        RecordChange(3, b"b", b"1", None),
        RecordChange(5, b"c", b"1", b"5"), RecordChange(5, b"d", None, b"5"), RecordChange(5, b"e", None, b"5"),
    ]  # fmt: skip
    for since in (0, 1, 2, 3, 5):
        for epoch in (3, 4, 5, 9):
            held = subject.store.hold(seen_at(epoch, indexed_from=indexed_from), range(2))
            assert held.steps(range(2), VIEW, since) == [step for step in every if since < step.epoch <= epoch]
            assert held.steps(range(2), VIEW + 1, since) == []
            held.close()
    aborted = subject.store.hold(seen_at(9, aborted=(2,), indexed_from=indexed_from), range(2))
    assert aborted.steps(range(2), VIEW, 2) == [step for step in every if step.epoch > 2]
    aborted.close()


def test_steps_after_the_floor_are_there_when_those_below_it_were_purged(subject: Subject) -> None:
    for epoch, rows in ((1, {b"a": b"1", b"b": b"1"}), (2, {b"a": None}), (3, {b"b": b"3"}), (4, {b"b": b"4"})):
        write(subject, epoch, rows)
    subject.begin(at(6, floor=3))
    held = subject.store.hold(seen_at(4, indexed_from=1), [0])

    assert held.steps([0], VIEW, 3) == [RecordChange(4, b"b", b"3", b"4")]
    held.close()
