"""The contract of LogSource: what every source of changes promises, over every store."""

from __future__ import annotations

import itertools

import pytest

from tests.contract.conftest import TABLE, Subject
from viewkeeper.errors import PositionLost
from viewkeeper.model.positions import LogRange
from viewkeeper.model.rowbatches import CHANGES_SCHEMA
from viewkeeper.model.stored_rows import RowWrites


def changes_of(subject: Subject, start: dict, stop: dict) -> dict[str, list[tuple]]:
    """(position, table, key, before, after) of each stream, in the order of positions."""
    found: dict[str, list[tuple]] = {}
    for stream, end in stop.items():
        for table, batch in subject.store.read_log(stream, start.get(stream, 0), end):
            assert batch.schema == CHANGES_SCHEMA
            assert batch["position"].to_pylist() == sorted(batch["position"].to_pylist())
            rows = (tuple(row.values()) for row in batch.to_pylist())
            found.setdefault(stream, []).extend((row[0], table, *row[1:]) for row in rows)
    return {stream: sorted(rows) for stream, rows in found.items()}


def test_a_range_is_read_again_with_the_same_answer(subject: Subject) -> None:
    subject.write(30)
    ends = subject.store.ends()
    first = changes_of(subject, {}, ends)
    subject.write(10)

    assert changes_of(subject, {}, ends) == first
    assert sum(map(len, first.values())) == 30


def test_positions_grow_with_the_changes_of_a_stream_up_to_its_end(subject: Subject) -> None:
    subject.write(25)
    for stream, rows in changes_of(subject, {}, subject.store.ends()).items():
        positions = [row[0] for row in rows]
        assert 0 < positions[0] and positions == sorted(set(positions))
        assert positions[-1] == subject.store.ends()[stream]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_pieces_of_a_range_hold_its_changes_once(subject: Subject, count: int) -> None:
    subject.write(30)
    for stream, end in subject.store.ends().items():
        borders = subject.store.pieces(stream, 2, end, count=count)
        assert (borders[0], borders[-1]) == (2, end)
        assert borders == sorted(set(borders)) and len(borders) <= count + 1
        found = [changes_of(subject, {stream: low}, {stream: high}) for low, high in itertools.pairwise(borders)]
        joined = [row for piece in found for row in piece.get(stream, ())]
        assert joined == changes_of(subject, {stream: 2}, {stream: end})[stream]


def test_ranges_that_follow_each_other_hold_every_change_once(subject: Subject) -> None:
    subject.write(40)
    ends, last, parts = subject.store.ends(), {}, []
    while last != ends:
        cut = subject.store.cut(last, changes_max=7, bytes_max=1 << 40).positions
        assert cut != last
        parts.append(changes_of(subject, last, cut))
        last = cut
    joined: dict[str, list[tuple]] = {}
    for part in parts:
        for stream, rows in part.items():
            joined.setdefault(stream, []).extend(rows)

    assert len(parts) > 3
    assert joined == changes_of(subject, {}, ends)


def test_a_change_carries_the_row_before_and_after_it(subject: Subject) -> None:
    subject.put(b"k", b"1")
    subject.put(b"k", b"2")
    subject.put(b"k", None)
    ((_, rows),) = changes_of(subject, {}, subject.store.ends()).items()

    assert [row[2:] for row in rows] == [(b"k", None, b"1"), (b"k", b"1", b"2"), (b"k", b"2", None)]


def test_a_plain_log_carries_the_row_after_a_change_alone(plain: Subject) -> None:
    plain.put(b"k", b"1")
    plain.put(b"k", b"2")
    plain.put(b"k", None)
    ((_, rows),) = changes_of(plain, {}, plain.store.ends()).items()

    assert [row[2:] for row in rows] == [(b"k", None, b"1"), (b"k", None, b"2"), (b"k", None, None)]
    assert not plain.store.capabilities.before_images


def test_the_changes_of_one_row_are_in_one_stream_in_their_order(subject: Subject) -> None:
    for number in range(20):
        subject.put(b"k%d" % (number % 4), b"%d" % number)
    for rows in changes_of(subject, {}, subject.store.ends()).values():
        seen: dict[bytes, bytes | None] = {}
        for _, _, key, before, after in rows:
            assert seen.get(key) == before
            seen[key] = after


def test_a_cut_lies_between_its_start_and_the_ends_and_stands_still_when_nothing_is_written(subject: Subject) -> None:
    subject.write(12)
    cut = subject.store.cut({}, changes_max=1_000, bytes_max=1 << 40)
    again = subject.store.cut(cut.positions, changes_max=1_000, bytes_max=1 << 40)

    assert cut.positions == subject.store.ends() == again.positions
    assert again.stamp >= cut.stamp


def test_a_cut_never_parts_a_transaction(subject: Subject) -> None:
    """Neither by changes nor by bytes, although each transaction here is more than is asked for."""
    store, borders = subject.store, {stream: {0} for stream in subject.store.ends()}
    for number in range(12):
        every = [b"%d-%d" % (number, place) for place in range(9)]
        for chosen in store.together(every):
            keys = [every[i] for i in chosen]
            groups = [RowWrites(table, keys, lambda befores: [b"v" * 100] * len(befores)) for table in (1, 2)]
            for stream, position in store.write(groups).items():
                borders[stream].add(position)
    for most in ({"changes_max": 4, "bytes_max": 1 << 40}, {"changes_max": 1 << 40, "bytes_max": 400}):
        last, steps = dict.fromkeys(borders, 0), 0
        while last != store.ends():
            cut = store.cut(last, **most).positions
            assert all(last[stream] <= cut[stream] and cut[stream] in borders[stream] for stream in borders)
            assert sum(cut[stream] - last[stream] for stream in borders) <= 2 * 18
            last, steps = cut, steps + 1
        assert steps >= 6


def test_the_bytes_of_ranges_add_up(subject: Subject) -> None:
    subject.write(20)
    ends, middle = subject.store.ends(), subject.store.cut({}, changes_max=9, bytes_max=1 << 40).positions
    sizes = [subject.store.describe(*between).bytes for between in (({}, middle), (middle, ends), ({}, ends))]

    assert all(sizes) and sizes[0] + sizes[1] == sizes[2]
    assert subject.store.describe(ends, ends).bytes == 0


def test_the_oldest_change_that_waits_has_a_stamp_between_two_cuts(subject: Subject) -> None:
    subject.write(3)
    before = subject.store.cut({}, changes_max=1_000, bytes_max=1 << 40)
    assert subject.store.describe(before.positions) == LogRange()
    subject.write(4)
    after = subject.store.cut({}, changes_max=1_000, bytes_max=1 << 40)

    waiting = subject.store.describe(before.positions)
    assert before.stamp < waiting.oldest <= after.stamp <= subject.store.now()
    assert (before.changes, waiting.changes, after.changes) == (3, 4, 7)


def test_checksums_tell_entries_apart_and_stay(subject: Subject) -> None:
    seen = []
    for number in range(4):
        (stream,) = subject.put(b"k", b"%d" % number)
        seen.append(subject.store.checksums(subject.store.ends()))

    assert len({sums[stream] for sums in seen}) == 4
    assert subject.store.checksums({stream: 2}) == {stream: seen[1][stream]}
    assert subject.store.checksums({stream: 99}) == {}
    assert subject.store.checksums({stream: 0}) == {}


def test_a_truncated_log_can_be_read_from_where_it_was_truncated(subject: Subject) -> None:
    subject.write(20)
    cut = subject.store.cut({}, changes_max=1_000, bytes_max=1 << 40).positions
    sums = subject.store.checksums(cut)
    subject.write(8)
    behind = changes_of(subject, cut, subject.store.ends())
    while subject.store.truncate_log(cut, older_than_seconds=0, entries_max=5_000):
        pass

    assert changes_of(subject, cut, subject.store.ends()) == behind
    assert subject.store.checksums(cut) == sums  # still asked for
    assert subject.store.facts().log_entries == len(cut) + 8
    with pytest.raises(PositionLost):
        changes_of(subject, {}, cut)
    for part in subject.store.parts(TABLE):
        with pytest.raises(PositionLost):
            list(subject.store.scan_as_of(TABLE, part, {stream: end - 2 for stream, end in cut.items()}))


def test_a_log_is_truncated_a_few_entries_at_a_time_and_only_where_it_is_old(subject: Subject) -> None:
    subject.write(20)
    ends = subject.store.ends()

    assert subject.store.truncate_log(ends, older_than_seconds=3_600, entries_max=5_000) == 0
    assert subject.store.truncate_log(ends, older_than_seconds=0, entries_max=3) == 3 * len(ends)
    assert subject.store.facts().log_entries == 20 - 3 * len(ends)
    assert subject.store.ends() == ends


def test_a_range_is_described_without_its_end_up_to_the_end_of_the_log(subject: Subject) -> None:
    subject.write(20)
    ends = subject.store.ends()
    whole = subject.store.describe({})

    assert (whole.changes, whole.has_changes) == (20, True)
    assert whole == subject.store.describe({}, ends)
    assert subject.store.describe(ends) == subject.store.describe(ends, ends) == LogRange()
    subject.write(1)
    assert subject.store.describe(ends, ends) == LogRange()
    assert subject.store.describe(ends).changes == 1


def test_a_cut_that_skips_lies_at_the_end_of_the_log_also_where_what_it_skips_is_lost(subject: Subject) -> None:
    subject.write(20)
    ends = subject.store.ends()
    while subject.store.truncate_log(ends, older_than_seconds=0, entries_max=5_000):
        pass

    assert subject.store.cut({}, skips=True).positions == ends
    beyond = {stream: end + 7 for stream, end in ends.items()}
    assert subject.store.cut(beyond, skips=True).positions == ends


def test_keys_that_changed_after_a_position_are_those_of_the_changes(subject: Subject) -> None:
    subject.put(b"before", b"1")
    start = subject.store.ends()
    subject.put(b"k", b"1")
    subject.put(b"k", None)
    subject.store.write([RowWrites(TABLE + 1, [b"other"], lambda befores: [b"1"])])

    found = {key for keys in subject.store.changed_keys(TABLE, start) for key in keys.to_pylist()}
    assert found == {b"k"}
    assert not list(subject.store.changed_keys(TABLE, subject.store.ends()))
