"""Region servers whose regions move while they write WALs, and the log source over these files, without an HBase.

Always: each region's entries have rising sequence numbers, wherever they are written.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tests.support import wal_files as wal
from tests.support.wal_files import Server
from viewkeeper.model.positions import Positions, Stream
from viewkeeper.model.schema import Cell, Column, Foreign, TableId, TableSchema
from viewkeeper.model.types import parse_type
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, LookaheadResult
from viewkeeper.stores.hbase.wal.mapped_tables import MappedTables
from viewkeeper.stores.hbase.wal.wal_files import WalFile, WalFolder
from viewkeeper.stores.hbase.wal.wal_log import WalLog

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


def log_of(
    root: Path,
    facts: Facts,
    *,
    now: Callable[[], int] = lambda: 1,
    folder: WalFolder | None = None,
    spread: Callable[[Sequence[LookaheadRequest]], list[LookaheadResult] | None] = lambda looks: None,
) -> WalLog:
    mapped = MappedTables((table_of(),))

    def uncover(_: TableSchema, deletes: pa.RecordBatch) -> None:
        facts.uncovered += deletes["sequence"].to_pylist()

    where = folder or WalFolder.at(str(root))
    return WalLog(where, lambda: mapped, facts, uncover=uncover, now=now, kept_seconds=600, spread=spread)


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
