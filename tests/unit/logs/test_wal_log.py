"""The WALs of an HBase as a log source: whole cuts, whatever regions and files do, and cells as writes to mapped columns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from tests.support import wal_files as wal
from tests.support.wal_worlds import ALL, START_MS, Facts, LivingFolder, World, log_of, put, read, server, table_of
from viewkeeper.errors import PositionLost
from viewkeeper.model.foreign_rows import HIDE, PUT
from viewkeeper.model.keys import encode_key
from viewkeeper.model.positions import Position, Positions, Stream
from viewkeeper.stores.hbase.wal import wal_log
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, LookaheadResult, scan_ahead
from viewkeeper.stores.hbase.wal.wal_files import WalFile, WalFolder
from viewkeeper.stores.hbase.wal.wal_reader import WalReader


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize(
    ("entries_max", "is_spread"), [(ALL, False), (3, False), (ALL, True)], ids=["whole", "in parts", "spread"]
)
def test_a_cut_has_all_that_was_written_to_a_region_before_it_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, entries_max: int, is_spread: bool
) -> None:
    """Of each region a cut holds the first writes and no later ones: none is missing that came before another.

    Looks that are spread are at small parts of the streams, in any order.
    """
    draw = random.Random(seed)
    world = World(tmp_path, draw)
    local = fs.LocalFileSystem()
    folder = LivingFolder(local, str(tmp_path), lambda: [world.act() for _ in range(draw.choice((0, 0, 1, 3)))])
    monkeypatch.setattr(wal_log, "_ENTRIES_MAX", entries_max)
    monkeypatch.setattr(wal_log, "_SENT_MAX", 4)
    monkeypatch.setattr(wal_log, "_SENT_LEAST", 1)

    def spread(looks: Sequence[LookaheadRequest]) -> list[LookaheadResult] | None:
        if not is_spread or draw.random() < 0.2:
            return None
        turns = draw.sample(range(len(looks)), len(looks))
        found = {
            turn: scan_ahead(WalReader(folder, looks[turn].tables, block_bytes=300), looks[turn]) for turn in turns
        }
        return [LookaheadResult.from_bytes(found[turn].to_bytes()) for turn in range(len(looks))]

    log = log_of(tmp_path, Facts(), folder=folder, spread=spread)
    positions, read_so_far = dict[Stream, int](), set[int]()
    for _ in range(20):
        for _ in range(draw.choice((0, 1, 5, 20))):
            world.act()
        cut = log.cut(positions, changes_max=draw.choice((1, 3, ALL)), bytes_max=ALL)
        if draw.random() < 0.3:
            log = log_of(tmp_path, Facts(), folder=folder, spread=spread)
        if draw.random() < 0.5:  # who asks whether there are changes has part of the log scanned before the next cut
            log.describe(cut.positions, log.ends())
        found = read(log, positions, cut.positions)
        assert len(found) == cut.changes == len(set(found) - read_so_far)
        read_so_far |= set(found)
        positions = cut.positions
        for region in world.homes:
            own = [sequence for one, sequence in world.written if one == region]
            count = sum(sequence in read_so_far for sequence in own)
            assert set(own[:count]) <= read_so_far, f"a write of {region} is missing that came before another"
    log = log_of(tmp_path, Facts())
    while (cut := log.cut(positions, changes_max=ALL, bytes_max=ALL)).changes:
        read_so_far |= set(read(log, positions, cut.positions))
        positions = cut.positions
    assert read_so_far == {sequence for _, sequence in world.written}


def test_a_cut_stays_where_it_is_while_others_write_until_a_file_is_finished(tmp_path: Path) -> None:
    one, log = server(tmp_path), log_of(tmp_path, Facts())
    one.write(put("a", "1", sequence=1))
    first = log.cut({}, changes_max=ALL, bytes_max=ALL)
    one.write(put("b", "1", sequence=2, table="other"))

    assert first.changes == 1
    assert log.cut(first.positions, changes_max=ALL, bytes_max=ALL).positions == first.positions
    assert not log.describe(first.positions, log.ends()).has_changes, "nothing of ours lies between"
    one.roll()
    rolled = log.cut(first.positions, changes_max=ALL, bytes_max=ALL)
    assert rolled.changes == 0
    one.archive(0)
    one.files[0].unlink()
    one.write(put("c", "1", sequence=3))
    assert log.describe(rolled.positions, log.ends()).has_changes
    assert log.describe(rolled.positions).changes == 1
    assert log.cut(rolled.positions, changes_max=ALL, bytes_max=ALL).changes == 1
    with pytest.raises(PositionLost, match="is gone"):
        log.cut(first.positions, changes_max=ALL, bytes_max=ALL)


def test_a_server_that_ended_may_be_forgotten_only_when_it_was_read_to_its_end(tmp_path: Path) -> None:
    facts = Facts()
    for number, is_read in enumerate((True, False)):
        gone, log = server(tmp_path, number), log_of(tmp_path, facts)
        gone.write(put("a", "1", sequence=1))
        start = log.cut({}, changes_max=ALL, bytes_max=ALL).positions
        gone.write(put("b", "1", sequence=2))
        gone.write(b"\x05torn")
        gone.die()
        gone.split()
        end = log.cut(start, changes_max=ALL, bytes_max=ALL)
        assert end.changes == 1
        if is_read:
            log.cut(end.positions, changes_max=ALL, bytes_max=ALL)
        gone.files[0].unlink()
        if is_read:
            assert log.cut(end.positions, changes_max=ALL, bytes_max=ALL).positions == {}
            assert log.describe(end.positions).changes == 0
        else:
            with pytest.raises(PositionLost, match="rs1"):
                log.cut(end.positions, changes_max=ALL, bytes_max=ALL)
            with pytest.raises(PositionLost, match="rs1"):
                log.describe(end.positions)


def test_a_log_that_nobody_read_for_longer_than_it_is_kept_is_lost_until_it_is_skipped(tmp_path: Path) -> None:
    clock = 10**18
    one, facts = server(tmp_path), Facts()
    one.write(put("a", "1", sequence=1))
    log = log_of(tmp_path, facts, now=lambda: clock)
    start = log.cut({}, changes_max=ALL, bytes_max=ALL).positions
    clock += 599 * 10**9
    start = log.cut(start, changes_max=ALL, bytes_max=ALL).positions
    clock += 601 * 10**9
    one.write(put("b", "1", sequence=2))
    with pytest.raises(PositionLost, match="601 s.*retention"):
        log_of(tmp_path, facts, now=lambda: clock).cut(start, changes_max=ALL, bytes_max=ALL)
    with pytest.raises(PositionLost, match="601 s.*viewkeeper rebuild"):
        log.describe(start)
    anew = log.skip_log()
    assert log.describe(anew.positions).changes == 0
    assert log.cut(anew.positions, changes_max=ALL, bytes_max=ALL).changes == 0


def test_a_log_that_another_pipeline_went_on_reading_is_not_lost(tmp_path: Path) -> None:
    """A standby that takes over, or a repair, in a process that had read the log itself long before."""
    clock = 10**18
    one, facts = server(tmp_path), Facts()
    one.write(put("a", "1", sequence=1))
    mine, others = (log_of(tmp_path, facts, now=lambda: clock) for _ in range(2))
    start = mine.cut({}, changes_max=ALL, bytes_max=ALL).positions
    for _ in range(2):
        clock += 400 * 10**9
        start = others.cut(start, changes_max=ALL, bytes_max=ALL).positions
    one.write(put("b", "1", sequence=2))
    assert mine.cut(start, changes_max=ALL, bytes_max=ALL).changes == 1
    clock += 601 * 10**9
    with pytest.raises(PositionLost, match="601 s"):
        mine.cut(start, changes_max=ALL, bytes_max=ALL)


def test_reading_begins_at_the_last_entry_that_was_there(tmp_path: Path) -> None:
    one, facts = server(tmp_path), Facts(begun=None)
    one.write(put("a", "1", sequence=1))
    one.write(put("b", "1", sequence=2).encoded()[:-1])
    log = log_of(tmp_path, facts)
    assert log.describe({}, log.ends()).has_changes, "nobody can tell yet"
    assert log.cut({}, changes_max=ALL, bytes_max=ALL).changes == 0
    one.write(put("b", "1", sequence=2).encoded()[-1:])
    assert log.cut({}, changes_max=ALL, bytes_max=ALL).changes == 1


def test_a_log_without_entries_is_read_to_its_end(tmp_path: Path) -> None:
    """Of a server that has just started; and of one that has rolled its log, and may still end the one before."""
    one, log = server(tmp_path), log_of(tmp_path, Facts())
    assert read(log, {}, log.last_entries()) == []
    assert [list(log.read_log(stream, Position(0), end)) for stream, end in log.last_entries().items()] == [[]]
    one.write(put("a", "1", sequence=1))
    one.roll(trailer=False)
    assert read(log, {}, log.last_entries()) == [1]
    one.write(put("b", "1", sequence=2))
    assert read(log, {}, log.last_entries()) == [1, 2]


def test_reading_that_has_begun_and_was_not_gone_on_with_is_lost_when_the_log_may_be(tmp_path: Path) -> None:
    clock = 10**18
    facts = Facts(begun=None)
    server(tmp_path)
    log_of(tmp_path, facts, now=lambda: clock).begin()
    clock += 601 * 10**9
    with pytest.raises(PositionLost, match="601 s"):
        log_of(tmp_path, facts, now=lambda: clock).cut({}, changes_max=ALL, bytes_max=ALL)


def test_cells_of_every_kind_become_writes_to_mapped_columns(tmp_path: Path) -> None:
    one, log = server(tmp_path), log_of(tmp_path, Facts())
    cells = [
        wal.Cell(row, family, qualifier, 7, kind, b"v")
        for row in (b"1", b"\xff")
        for family in (b"f", b"g", b"h")
        for qualifier in (b"a", b"b", b"")
        for kind in wal.KINDS
    ]
    one.write(wal.Entry("r", "orders", 3, START_MS, tuple(cells)))
    ((stream, end),) = log.cut({}, changes_max=ALL, bytes_max=ALL).positions.items()
    found = pa.concat_tables(pa.table(batch) for _, batch in log.read_log(stream, 0, end)).to_pylist()

    key = encode_key(table_of().key_columns, ("1",))  # the other row key is no text
    puts = [(key, 0, PUT, b"v"), (key, 1, PUT, b"v")]
    hidden = [(key, 0, HIDE, None)] * (1 + 3) + [(key, 1, HIDE, None)] * (1 + 3)  # by column; and by family, thrice
    told = [(row["key"], row["column"], row["kind"], row["value"]) for row in found]
    assert sorted(told, key=repr) == sorted(puts + hidden, key=repr)
    assert {(row["stamp"], row["order"] >> 20) for row in found} == {(7, 3)}


def test_deletes_of_single_versions_are_told_once_before_a_cut_has_them(tmp_path: Path) -> None:
    one, facts = server(tmp_path), Facts()
    log = log_of(tmp_path, facts)
    positions: Positions = {}
    for sequence in range(1, 9):
        kind = (wal.PUT, wal.DELETE, wal.DELETE_FAMILY_VERSION, wal.DELETE_COLUMN)[sequence % 4]
        one.write(wal.Entry("r", "orders", sequence, START_MS, (wal.Cell(b"k", b"f", b"a", 5, kind, b""),)))
        if sequence % 3 == 0:
            positions = log.cut(positions, changes_max=1, bytes_max=ALL).positions
    for _ in range(8):
        positions = log.cut(positions, changes_max=1, bytes_max=ALL).positions
    assert facts.uncovered == [1, 2, 5, 6]


@dataclass(frozen=True)
class FailingFolder(WalFolder):
    """A folder whose reads fail at these turns."""

    turns: list[int]

    def read(self, file: WalFile, offset: int, size: int) -> tuple[bytes, WalFile]:
        self.turns[0] -= 1
        if self.turns[0] == 0:
            raise OSError("no reply from the file system")
        return super().read(file, offset, size)


def test_a_look_that_fails_half_way_loses_nothing(tmp_path: Path) -> None:
    one = server(tmp_path)
    for sequence in range(1, 7):
        one.write(put(f"{sequence}", "1", sequence=sequence))
        one.roll()
    folder = FailingFolder(fs.LocalFileSystem(), str(tmp_path), [0])
    for turn in range(1, 14):
        log = log_of(tmp_path, Facts(), folder=folder)
        folder.turns[0] = turn
        with pytest.raises(OSError, match="no reply"):
            log.cut({}, changes_max=ALL, bytes_max=ALL)
        assert log.cut({}, changes_max=ALL, bytes_max=ALL).changes == 6


@pytest.mark.parametrize("changes_max", [1, 2, ALL])
def test_a_backlog_that_is_longer_than_what_is_known_at_once_is_cut_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes_max: int
) -> None:
    monkeypatch.setattr(wal_log, "_ENTRIES_MAX", 2)
    one, log = server(tmp_path), log_of(tmp_path, Facts())
    for sequence in range(1, 7):
        one.write(put(f"{sequence}", "1", sequence=sequence, ms=START_MS + sequence))
        one.roll()
    positions, changes = dict[Stream, int](), 0
    while (cut := log.cut(positions, changes_max=changes_max, bytes_max=ALL)).changes:
        positions, changes = cut.positions, changes + cut.changes
    assert changes == 6


def test_what_is_known_of_a_backlog_grows_with_the_time_of_its_writing(tmp_path: Path) -> None:
    one, log = server(tmp_path), log_of(tmp_path, Facts())
    for sequence in range(1, 2_001):
        one.write(put(f"{sequence}", "1", sequence=sequence, ms=START_MS + sequence // 20))
    stream, files = next(iter(WalFolder.at(str(tmp_path)).files().items()))
    seen = log.scan_ahead(LookaheadRequest(stream, Position(0), frozenset({"orders"}), ALL, tuple(files)))

    assert len(seen.entries) == 11  # 101 ms
    assert seen.entries["entries"].sum() == seen.entries["cells"].sum() == 2_000
    assert log.cut({}, changes_max=ALL, bytes_max=ALL).changes == 2_000
    assert log.log_entries() == 2_000
    assert log.cut({}, changes_max=1, bytes_max=ALL).changes == 199, "what was written at once is one"


def test_a_position_within_entries_that_are_known_as_one_is_told_apart(tmp_path: Path) -> None:
    one, log = server(tmp_path), log_of(tmp_path, Facts())
    ends = []
    for sequence in range(1, 4):
        one.write(put(f"{sequence}", "1", sequence=sequence))
        ends.append(log.ends())
    log.cut({}, changes_max=ALL, bytes_max=ALL)

    ranges = [({}, ends[0]), (ends[0], ends[1]), (ends[2], ends[2])]
    assert [log.describe(*some).has_changes for some in ranges] == [True, True, False]
    assert [log.describe(end).changes for end in ends] == [2, 1, 0]
    assert log.cut(ends[1], changes_max=ALL, bytes_max=ALL).changes == 1


@dataclass(frozen=True)
class CountingFolder(WalFolder):
    """A folder that counts the bytes of entries that are read."""

    counts: list[int] = field(default_factory=list)

    def read(self, file: WalFile, offset: int, size: int) -> tuple[bytes, WalFile]:
        data, now = super().read(file, offset, size)
        self.counts.append(len(data) if offset else 0)  # a header is read at 0
        return data, now

    def counted(self) -> int:
        found = sum(self.counts)
        self.counts.clear()
        return found


def entry_of(sequence: int, table: str = "orders") -> bytes:
    """All of one length."""
    return put(f"{sequence:03}", "1", sequence=sequence, table=table, ms=START_MS + 10 * sequence).encoded()


SIZE, LEAST = len(entry_of(1)), 10


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingFolder:
    """Read in blocks of five entries, and described by ten of each stream."""
    monkeypatch.setattr(wal_log, "WalReader", partial(WalReader, block_bytes=5 * SIZE))
    monkeypatch.setattr(wal_log, "_SENT_LEAST", LEAST)
    return CountingFolder(fs.LocalFileSystem(), str(tmp_path))


def test_a_look_for_changes_and_the_next_cut_read_each_byte_once(tmp_path: Path, folder: CountingFolder) -> None:
    servers, log = [server(tmp_path, number) for number in range(2)], log_of(tmp_path, Facts(), folder=folder)
    positions: Positions = {}
    for begin in (1, 51):
        for one in servers:
            one.write(b"".join(map(entry_of, range(begin, begin + 50))))
        assert log.describe(positions, log.ends()).has_changes
        assert folder.counted() == 2 * LEAST * SIZE, "one change is enough"
        assert log.describe(positions, log.ends()).has_changes
        assert folder.counted() == 0
        cut = log.cut(positions, changes_max=ALL, bytes_max=ALL)
        assert (cut.changes, folder.counted()) == (100, 2 * (50 - LEAST) * SIZE)
        positions = cut.positions
    for one in servers:
        one.write(b"".join(entry_of(number, "others") for number in range(101, 121)))
    assert not log.describe(positions, log.ends()).has_changes
    assert folder.counted() == 2 * 20 * SIZE
    assert not log.describe(positions, log.ends()).has_changes
    assert log.cut(positions, changes_max=ALL, bytes_max=ALL).changes == folder.counted() == 0


def test_parts_of_a_backlog_are_read_once(
    tmp_path: Path, folder: CountingFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_log, "_ENTRIES_MAX", 20)
    one, log = server(tmp_path), log_of(tmp_path, Facts(), folder=folder)
    one.write(b"".join(map(entry_of, range(1, 101))))
    positions, changes = dict[Stream, int](), 0
    while log.describe(positions, log.ends()).has_changes:
        cut = log.cut(positions, changes_max=7, bytes_max=ALL)
        positions, changes = cut.positions, changes + cut.changes
    assert (changes, folder.counted()) == (100, 100 * SIZE)


def test_who_only_waits_forgets_what_others_have_read(tmp_path: Path, folder: CountingFolder) -> None:
    one, log = server(tmp_path), log_of(tmp_path, Facts(), folder=folder)
    ends = [log.ends()]
    for number in range(1, 31):
        one.write(entry_of(number))
        ends.append(log.ends())
        assert log.describe(ends[-2], ends[-1]).changes == 1
        assert log.log_entries() == 1
    assert folder.counted() == 30 * SIZE
    one.write(entry_of(31))
    one.write(entry_of(32))
    ends.append(log.ends())
    assert log.describe(ends[10], ends[-1]).has_changes, "others are behind"
    folder.counted()
    assert log.describe(ends[11], ends[-1]).has_changes
    assert folder.counted() == 0


def test_a_server_without_entries_costs_who_waits_one_look_at_archived_files(tmp_path: Path) -> None:
    listed = list[int]()
    log = log_of(tmp_path, Facts(), folder=LivingFolder(fs.LocalFileSystem(), str(tmp_path), lambda: listed.append(1)))
    server(tmp_path)
    ends = log.ends()
    listed.clear()
    for _ in range(3):
        assert not log.describe({}, ends).has_changes
    assert len(listed) == 1
    assert log.cut({}, changes_max=ALL, bytes_max=ALL).positions == {}
