"""The WALs of an HBase as a log source: whole cuts, whatever regions and files do, and cells as writes to mapped columns."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from tests.support import wal_files as wal
from tests.support.wal_files import Server
from viewkeeper.errors import PositionLost
from viewkeeper.logs.hbase.files import WalFile, WalFolder
from viewkeeper.logs.hbase.mapped import MappedTables
from viewkeeper.logs.hbase.source import WalLog
from viewkeeper.model.cellrows import HIDE, PUT
from viewkeeper.model.keys import encode_key
from viewkeeper.model.positions import Positions, Stream
from viewkeeper.model.schema import Cell, Column, Foreign, TableId, TableSchema
from viewkeeper.model.types import parse_type

ALL = 1 << 62
START_MS = 1_794_937_834_150
_OPEN = wal.number(1, 0)  # RegionEventDescriptor: REGION_OPEN


def table_of(name: str = "orders", key: str = "STRING") -> TableSchema:
    columns = (Column("id", parse_type(key), nullable=False), *(Column(c, parse_type("STRING")) for c in "ab"))
    cells = (Cell("f", "a", "text"), Cell("g", "b", "text"))
    return TableSchema(TableId(1), "t", columns, ("id",), TableId(2), Foreign(name, cells))


@dataclass(slots=True)
class Facts:
    """What a store remembers of its log."""

    begun: Positions | None = field(default_factory=dict)
    looked_at: int | None = None
    ends: Positions = field(default_factory=dict)
    uncovered: list[int] = field(default_factory=list)  # the sequence numbers of deletes of single versions

    def began(self) -> Positions | None:
        return self.begun

    def begin(self, now: Positions) -> Positions:
        self.begun = now
        return now

    def looked(self) -> int | None:
        return self.looked_at

    def look(self, now: int) -> None:
        self.looked_at = now

    def ended(self) -> Positions:
        return self.ends

    def end(self, streams: Positions) -> None:
        self.ends |= streams


def log_of(root: Path, facts: Facts, *, now: Callable[[], int] = lambda: 1, folder: WalFolder | None = None) -> WalLog:
    mapped = MappedTables((table_of(),))

    def uncover(_: TableSchema, deletes: pa.RecordBatch) -> None:
        facts.uncovered += deletes["sequence"].to_pylist()

    return WalLog(folder or WalFolder.at(str(root)), lambda: mapped, facts, uncover=uncover, now=now, kept_seconds=600)


def server(root: Path, number: int = 0) -> Server:
    made = Server(root, f"rs{number},16020,{START_MS}", START_MS + 50)
    made.roll()
    return made


def put(
    row: str, value: str, *, sequence: int, region: str = "r", table: str = "orders", ms: int = START_MS
) -> wal.Entry:
    cell = wal.Cell(row.encode(), b"f", b"a", sequence, wal.PUT, value.encode())
    return wal.Entry(region, table, sequence, ms, (cell,))


def opened(region: str, sequence: int, ms: int) -> wal.Entry:
    cell = wal.Cell(b"METAROW", b"METAFAMILY", b"HBASE::REGION_EVENT::REGION_OPEN", 5, wal.PUT, _OPEN)
    return wal.Entry(region, "orders", sequence, ms, (cell,))


class World:
    """Servers whose regions move; each region's entries have rising sequence numbers, wherever they are written."""

    def __init__(self, root: Path, draw: random.Random, *, servers: int = 3, regions: int = 4) -> None:
        self.draw, self.ms, self.sequence = draw, START_MS + 1_000, 0
        self.servers = [server(root, number) for number in range(servers)]
        self.skews = [draw.choice((0, 0, 5_000, 14_000)) for _ in self.servers]
        self.homes = {f"region{number}": draw.randrange(servers) for number in range(regions)}
        self.written: list[tuple[str, int]] = []  # region and sequence of each put, in real order

    def act(self) -> None:
        region, self.ms = self.draw.choice(sorted(self.homes)), self.ms + self.draw.choice((0, 1, 40, 4_000))
        self.sequence += 1
        if self.draw.random() < 0.15:
            self.homes[region] = self.draw.randrange(len(self.servers))
            self._log(region, opened(region, self.sequence, self._clock(region)))
        elif self.draw.random() < 0.1:
            self.draw.choice(self.servers).roll(trailer=self.draw.random() < 0.5)
        elif self.draw.random() < 0.2:
            self._log(region, put("x", "y", sequence=self.sequence, table="ns:view.7", ms=self._clock(region)))
        else:
            name = f"{region}/{self.sequence}"
            self._log(region, put(name, "v", sequence=self.sequence, region=region, ms=self._clock(region)))
            self.written.append((region, self.sequence))

    def _clock(self, region: str) -> int:
        return self.ms + self.skews[self.homes[region]]

    def _log(self, region: str, entry: wal.Entry) -> None:
        self.servers[self.homes[region]].write(entry)


@dataclass(frozen=True)
class LivingFolder(WalFolder):
    """A folder in which servers go on writing while it is listed."""

    act: Callable[[], None] = lambda: None

    def files(self) -> dict[Stream, list[WalFile]]:
        self.act()
        return super().files()


def read(log: WalLog, start: Positions, stop: Positions) -> list[int]:
    """The stamps of all cells between two cuts, which are their sequence numbers."""
    found = []
    for stream, end in stop.items():
        borders = log.pieces(stream, start.get(stream, 0), end, count=3) if end > start.get(stream, 0) else []
        for low, high in zip(borders, borders[1:], strict=False):
            found += [stamp for _, batch in log.read_log(stream, low, high) for stamp in batch["stamp"].to_pylist()]
    return found


@pytest.mark.parametrize("seed", range(16))
def test_a_cut_has_all_that_was_written_to_a_region_before_it_moved(tmp_path: Path, seed: int) -> None:
    """Of each region a cut holds the first writes and no later ones: none is missing that came before another."""
    draw = random.Random(seed)
    world = World(tmp_path, draw)
    local = fs.LocalFileSystem()
    folder = LivingFolder(local, str(tmp_path), lambda: [world.act() for _ in range(draw.choice((0, 0, 1, 3)))])
    log, positions, read_so_far = log_of(tmp_path, Facts(), folder=folder), dict[Stream, int](), set[int]()
    for _ in range(20):
        for _ in range(draw.choice((0, 1, 5, 20))):
            world.act()
        cut = log.cut(positions, changes_max=draw.choice((1, 3, ALL)), bytes_max=ALL)
        if draw.random() < 0.3:
            log = log_of(tmp_path, Facts(), folder=folder)
        found = read(log, positions, cut.positions)
        assert len(found) == cut.changes == len(set(found) - read_so_far)
        read_so_far |= set(found)
        positions = cut.positions
        for region in world.homes:
            own = [sequence for one, sequence in world.written if one == region]
            count = sum(sequence in read_so_far for sequence in own)
            assert set(own[:count]) <= read_so_far, f"a write of {region} is missing that came before another"
    log = log_of(tmp_path, Facts())
    rest = read(log, positions, log.cut(positions, changes_max=ALL, bytes_max=ALL).positions)
    assert read_so_far | set(rest) == {sequence for _, sequence in world.written}


def test_a_cut_stays_where_it_is_while_others_write_until_a_file_is_finished(tmp_path: Path) -> None:
    one, log = server(tmp_path), log_of(tmp_path, Facts())
    one.write(put("a", "1", sequence=1))
    first = log.cut({}, changes_max=ALL, bytes_max=ALL)
    one.write(put("b", "1", sequence=2, table="other"))

    assert first.changes == 1
    assert log.cut(first.positions, changes_max=ALL, bytes_max=ALL).positions == first.positions
    assert not log.has_changes(first.positions, log.ends()), "nothing of ours lies between"
    one.roll()
    rolled = log.cut(first.positions, changes_max=ALL, bytes_max=ALL)
    assert rolled.changes == 0
    one.archive(0)
    one.files[0].unlink()
    one.write(put("c", "1", sequence=3))
    assert log.has_changes(rolled.positions, log.ends())
    assert log.waiting(rolled.positions).changes == 1
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
        else:
            with pytest.raises(PositionLost, match="rs1"):
                log.cut(end.positions, changes_max=ALL, bytes_max=ALL)


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
    anew = log.skip_log(start)
    assert log.cut(anew.positions, changes_max=ALL, bytes_max=ALL).changes == 0


def test_reading_begins_at_the_last_entry_that_was_there(tmp_path: Path) -> None:
    one, facts = server(tmp_path), Facts(begun=None)
    one.write(put("a", "1", sequence=1))
    one.write(put("b", "1", sequence=2).encoded()[:-1])
    log = log_of(tmp_path, facts)
    assert log.has_changes({}, log.ends()), "nobody can tell yet"
    assert log.cut({}, changes_max=ALL, bytes_max=ALL).changes == 0
    one.write(put("b", "1", sequence=2).encoded()[-1:])
    assert log.cut({}, changes_max=ALL, bytes_max=ALL).changes == 1


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
