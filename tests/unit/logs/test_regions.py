"""What markers in HBase's log tell of changes that are not in it: from the markers of a real HBase, without their bulk."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.small_hbase import SmallHBase
from tests.support.wal_files import number, text
from viewkeeper.model.positions import Position
from viewkeeper.stores.hbase.unlogged_changes import LOADED, MADE_ANEW, RESTORED, Region, UnloggedChanges, follow
from viewkeeper.stores.hbase.wal.wal_entries import (
    BULK_LOAD,
    CLOSED,
    COMPACTION,
    FLUSHED,
    OPENED,
    Marker,
    marker_from_json,
    marker_of,
)

OLD, YOUNG = "t,,1000.{}.", "t,,2000.{}."


def marker(
    kind: str, sequence: int, *files: str, region: str = "r", name: str = OLD, gone: tuple[str, ...] = (), ms: int = 0
) -> Marker:
    full = "" if kind == BULK_LOAD else name.format(region)
    return Marker(Position(sequence), region, "t", sequence, kind, ms or sequence, full, files, gone)


LIFE = [
    marker(OPENED, 9, "a"),
    marker(FLUSHED, 12, "b"),
    marker(CLOSED, 13),
    marker(OPENED, 15, "a", "b"),
    marker(FLUSHED, 20, "c"),
    marker(COMPACTION, 21, "abc", gone=("a", "b", "c")),
    marker(FLUSHED, 25, "d"),  # and the server dies
    marker(OPENED, 30, "abc", "d"),
    marker(CLOSED, 31),
    marker(OPENED, 33, "abc.r", "d.r", region="low", name=YOUNG),
    marker(OPENED, 33, region="high", name="t,m,2000.{}."),
]


def test_a_region_that_moves_crashes_is_compacted_and_split_tells_of_nothing() -> None:
    assert follow({}, LIFE)[1] == []


@pytest.mark.parametrize("at", range(len(LIFE)))
def test_it_does_not_matter_when_markers_are_followed_and_how_often(at: int) -> None:
    whole = follow({}, LIFE)
    known, found = follow({}, LIFE[:at])
    again, more = follow(known, random.Random(at).sample(LIFE, len(LIFE)))
    assert (again, [*found, *more]) == whole


@pytest.mark.parametrize(
    ("then", "what"),
    [
        ([marker(OPENED, 3, region="new", name=YOUNG, ms=50)], MADE_ANEW),
        ([marker(BULK_LOAD, 40, "loaded", region="low", ms=50)], LOADED),
        ([marker(OPENED, 40, "abc.r", region="low", name=YOUNG, ms=50)], RESTORED),  # without a file that it had
        ([marker(OPENED, 20, "abc.r", "d.r", region="low", name=YOUNG, ms=50)], RESTORED),  # sequence ids go back
        ([marker(OPENED, 40, "abc", "d", ms=50)], RESTORED),  # the half that begins where it did was opened since
    ],
)
def test_what_is_not_in_the_log_is_told_once_with_its_time(then: list[Marker], what: str) -> None:
    known, found = follow({}, [*LIFE, *then])
    assert [(one.table, one.what, one.written_ms) for one in found] == [("t", what, 50)]
    if what != LOADED:  # which is told each time: nothing else of it is kept
        assert follow(known, then) == (known, [])


def test_a_file_that_was_there_before_the_log_was_read_is_missed_too() -> None:
    known = {"r": Region("t", 10, 0, "", frozenset({"newest"}))}
    assert follow(known, [marker(OPENED, 9, "older", ms=9)])[1] == [], "that was before"
    assert [one.what for one in follow(known, [marker(OPENED, 12, "older")])[1]] == [RESTORED]
    compacted = [marker(COMPACTION, 11, "both", gone=("older", "newest")), marker(OPENED, 13, "both")]
    assert follow(known, compacted)[1] == []


def test_markers_are_read_as_hbase_writes_them_and_travel_as_json() -> None:
    store = text(1, b"f") + text(2, b"f") + text(3, b"one") + text(3, b"two") + number(4, 7)
    name = b"t,\xff,1000.r."
    values = {
        b"HBASE::REGION_EVENT::REGION_OPEN": number(1, 0) + text(5, store) + text(7, name),
        b"HBASE::FLUSH": number(1, 1) + text(5, store) + text(6, name),
        b"HBASE::COMPACTION": text(4, b"old") + text(5, b"one") + text(5, b"two") + text(7, name),
        b"HBASE::BULK_LOAD": text(3, store) + number(4, 11),
    }
    place = {"position": Position(5), "region": "r", "table": "t", "sequence": 9, "written_ms": 3}
    found = [marker_of(qualifier, value, **place) for qualifier, value in values.items()]
    opened = Marker(Position(5), "r", "t", 9, OPENED, 3, name.decode("latin-1"), ("one", "two"))
    assert found == [
        opened,
        replace(opened, kind=FLUSHED),
        replace(opened, kind=COMPACTION, gone=("old",)),
        replace(opened, kind=BULK_LOAD, name=""),
    ]
    assert [marker_from_json(one.to_json()) for one in found] == found


def test_what_one_pipeline_writes_late_erases_nothing_that_the_next_one_has_found(tmp_path: Path) -> None:
    """The first has read what is known, and writes after it was fenced off."""
    hbase = SmallHBase(tmp_path)
    with hbase.replying(), vk.connect(hbase.url) as db:
        rows, folder = db.store._site.rows, db.store._wals.folder
        late, next_one = UnloggedChanges(rows, folder), UnloggedChanges(rows, folder)
        late.follow(frozenset("t"), LIFE, now_ms=0)
        loaded = [*LIFE, marker(BULK_LOAD, 40)]

        def overtaken(row: bytes, *rest: object, **options: object) -> bool:
            rows.swap = swap
            next_one.follow(frozenset("t"), [*loaded, marker(OPENED, 2, region="new")], now_ms=0)
            return swap(row, *rest, **options)

        swap, rows.swap = rows.swap, overtaken
        late.follow(frozenset("t"), loaded, now_ms=0)
        assert next_one.happened([]) == {"t": {LOADED: 40, MADE_ANEW: 2}}
        late.follow(frozenset("t"), loaded, now_ms=0)
        assert late.happened([]) == {"t": {LOADED: 40, MADE_ANEW: 2}}
