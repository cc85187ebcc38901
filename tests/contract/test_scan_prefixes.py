"""The contract of `scan_prefixes`: the entries of a join key, or the first of an order, as of the epoch before."""

from __future__ import annotations

import contextlib
import random

import pytest

from tests.contract.conftest import Subject
from tests.contract.steps import VIEW, apply, at
from viewkeeper.errors import Fenced
from viewkeeper.model.epochs import Inflight

LIMITS = (499, 500, 511)  # where stores on LMDB begin to keep keys in another way, with and without a table's id


def write(subject: Subject, epoch: int, rows: dict[bytes, bytes | None], partition: int = 0) -> None:
    subject.begin(at(epoch))
    apply(subject, at(epoch), rows, partition)


def found(
    subject: Subject, prefixes: list[bytes], epoch: Inflight, *, partition: int = 0, rows_max: int | None = None
) -> list[tuple[int, bytes, bytes]]:
    batches = subject.store.scan_prefixes(partition, VIEW, prefixes, epoch, rows_max=rows_max)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_records_come_prefix_by_prefix_in_key_order(subject: Subject) -> None:
    rows = {key: key.upper() for key in (b"b2", b"a", b"ab", b"b1", b"ac", b"c", b"b", b"\x00", b"\xff\xff")}
    write(subject, 1, rows)

    assert found(subject, [b"b", b"a", b"nothing", b"ab"], at(2)) == [
        (0, b"b", b"B"), (0, b"b1", b"B1"), (0, b"b2", b"B2"),
        (1, b"a", b"A"), (1, b"ab", b"AB"), (1, b"ac", b"AC"),
        (3, b"ab", b"AB"),
    ]  # fmt: skip
    assert found(subject, [b""], at(2)) == [(0, key, rows[key]) for key in sorted(rows)]
    assert found(subject, [b"\xff"], at(2)) == [(0, b"\xff\xff", b"\xff\xff")]
    assert found(subject, [], at(2)) == []


def test_a_batch_names_its_columns(subject: Subject) -> None:
    write(subject, 1, {b"a": b"1"})
    (batch,) = subject.store.scan_prefixes(0, VIEW, [b"a"], at(2))

    assert batch.schema.names == ["prefix", "key", "row"]


def test_other_tables_and_other_partitions_are_not_seen(subject: Subject) -> None:
    write(subject, 1, {b"a": b"here"})
    apply(subject, at(1), {b"a": b"there"}, 1)

    assert found(subject, [b""], at(2)) == [(0, b"a", b"here")]
    assert found(subject, [b""], at(2), partition=1) == [(0, b"a", b"there")]
    assert list(subject.store.scan_prefixes(0, VIEW + 1, [b"", b"a"], at(2))) == []
    assert list(subject.store.scan_prefixes(0, VIEW - 1, [b"", b"a"], at(2))) == []


def test_a_rerun_finds_the_records_as_of_the_epoch_before_whatever_it_has_written(subject: Subject) -> None:
    write(subject, 1, {b"a1": b"1", b"a2": b"1", b"a3": b"1"})
    before = found(subject, [b"a"], at(2))
    write(subject, 2, {b"a1": b"2", b"a2": None, b"a4": b"2"})

    assert found(subject, [b"a"], at(2)) == before == [(0, b"a1", b"1"), (0, b"a2", b"1"), (0, b"a3", b"1")]
    assert found(subject, [b"a"], at(3)) == [(0, b"a1", b"2"), (0, b"a3", b"1"), (0, b"a4", b"2")]


def test_an_epoch_that_passed_without_a_write_changes_nothing(subject: Subject) -> None:
    write(subject, 1, {b"a": b"1"})

    assert found(subject, [b"a"], at(9)) == [(0, b"a", b"1")]


def test_a_tombstone_is_no_record_and_a_row_may_come_back(subject: Subject) -> None:
    write(subject, 1, {b"a1": b"1", b"a2": b"1"})
    write(subject, 2, {b"a1": None})
    assert found(subject, [b"a"], at(3)) == [(0, b"a2", b"1")]
    write(subject, 3, {b"a1": b"3"})

    assert found(subject, [b"a"], at(3)) == [(0, b"a2", b"1")]
    assert found(subject, [b"a"], at(4)) == [(0, b"a1", b"3"), (0, b"a2", b"1")]


def test_what_an_aborted_epoch_wrote_is_looked_through(subject: Subject) -> None:
    """R8."""
    write(subject, 1, {b"a1": b"1", b"a2": b"1"})
    write(subject, 2, {b"a1": b"2", b"a2": None, b"a3": b"2"})

    assert found(subject, [b"a"], at(3, aborted=(2,))) == [(0, b"a1", b"1"), (0, b"a2", b"1")]
    assert found(subject, [b"a"], at(3, aborted=(1, 2))) == []
    assert found(subject, [b"a"], at(3, aborted=(1,))) == [(0, b"a1", b"2"), (0, b"a3", b"2")]


@pytest.mark.parametrize("row", [b"3", None], ids=["record", "tombstone"])
@pytest.mark.parametrize("rows_max", [None, 1])
def test_an_epoch_that_meets_a_later_one_finds_its_own_state_or_is_fenced(
    subject: Subject, row: bytes | None, rows_max: int | None
) -> None:
    """R3: whatever the later epoch wrote, a task of an earlier one has nothing more to say."""
    write(subject, 1, {b"a1": b"1", b"a2": b"1", b"b": b"1"})
    write(subject, 3, {b"a2": row})

    with contextlib.suppress(Fenced):
        assert found(subject, [b"a"], at(2), rows_max=rows_max) == [(0, b"a1", b"1"), (0, b"a2", b"1")]
    assert found(subject, [b"b"], at(2)) == [(0, b"b", b"1")]  # it met nothing there
    assert [key for _, key, _ in found(subject, [b"a"], at(3))] == [b"a1", b"a2"]


@pytest.mark.parametrize("rows_max", [1, 2, 3, 100])
def test_batches_hold_so_many_records_at_most_and_together_all(subject: Subject, rows_max: int) -> None:
    rows = {b"k%02d" % number: b"%d" % number for number in range(20)}
    write(subject, 1, rows)
    write(subject, 2, dict.fromkeys(list(rows)[:10], None))  # tombstones at the head must not end the scan
    batches = list(subject.store.scan_prefixes(0, VIEW, [b"k0", b"k1"], at(3), rows_max=rows_max))

    assert max(map(len, batches)) <= rows_max
    assert [key for batch in batches for key in batch["key"].to_pylist()] == list(rows)[10:]
    assert {number for batch in batches for number in batch["prefix"].to_pylist()} == {1}


def test_a_scan_may_be_left_before_its_end_and_others_go_on_meanwhile(subject: Subject) -> None:
    write(subject, 1, {b"k%d" % number: b"1" for number in range(9)})
    scan = subject.store.scan_prefixes(0, VIEW, [b"k"], at(2), rows_max=1)
    first = next(scan)
    write(subject, 2, {b"k0": b"2", b"k8": None, b"k9": b"2"})  # the same manager writes what it read of
    second = next(scan)
    scan.close()

    assert [batch["key"].to_pylist() for batch in (first, second)] == [[b"k0"], [b"k1"]]
    assert len(found(subject, [b"k"], at(3))) == 9


@pytest.mark.parametrize("length", [limit + more for limit in LIMITS for more in (-5, -4, -1, 0, 1)])
def test_long_keys_and_long_prefixes_are_exact(subject: Subject, length: int) -> None:
    """Keys around the length above which LMDB cannot hold them, and prefixes that end before, at and behind it."""
    stem = b"x" * (length - 1)
    keys = [stem, stem + b"a", stem + b"ab", stem + b"b", stem + b"b" * 40, b"x" * length + b"y", b"w" + stem, b"y"]
    rows = {key: b"%d" % number for number, key in enumerate(keys)}
    write(subject, 1, rows)
    prefixes = [b"x", stem, stem + b"a", stem + b"b", stem + b"c", b"x" * 490, b"x" * length, stem + b"b" * 39, b""]

    assert found(subject, prefixes, at(2)) == [
        (number, key, rows[key])
        for number, prefix in enumerate(prefixes)
        for key in sorted(rows)
        if key.startswith(prefix)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_any_history_reads_as_a_dict_of_it_would(subject: Subject, seed: int) -> None:
    source, state, states, aborted = random.Random(seed), {}, [{}], ()
    parts = [b"", b"a", b"ab", b"b", b"\x00", b"\xff", b"a" * 495, b"a" * 496, b"a" * 500, b"b" * 600]
    keys = sorted({first + second for first in parts for second in parts})
    for epoch in range(1, 6):
        written = {key: source.choice([None, b"%d" % epoch]) for key in source.sample(keys, 25)}
        subject.begin(at(epoch))
        apply(subject, at(epoch, aborted=aborted), written)
        if epoch == 3:
            aborted = (3,)
        else:
            state = {key: row for key, row in (state | written).items() if row is not None}
        states.append(state)
        for now in (at(epoch, aborted=aborted), at(epoch + 1, aborted=aborted)):
            prefixes, expected = source.sample(parts, 5), states[now.epoch - 1]
            assert found(subject, prefixes, now, rows_max=source.choice([None, 1, 4])) == [
                (number, key, expected[key])
                for number, prefix in enumerate(prefixes)
                for key in sorted(expected)
                if key.startswith(prefix)
            ]
