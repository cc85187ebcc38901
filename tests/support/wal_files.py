"""WAL files made by hand, byte by byte after HBase's own writer, and a server that writes them: an oracle for the reader.

Always: nothing here is imported from the reader; the layout is that of HBase's AbstractProtobufLogWriter and KeyValueUtil.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

PUT, DELETE, DELETE_FAMILY_VERSION, DELETE_COLUMN, DELETE_FAMILY = 4, 8, 10, 12, 14
KINDS = (PUT, DELETE, DELETE_FAMILY_VERSION, DELETE_COLUMN, DELETE_FAMILY)
TRAILER = bytes(4) + b"LAWP"
CODEC = b"org.apache.hadoop.hbase.regionserver.wal.WALCellCodec"


@dataclass(frozen=True, slots=True)
class Cell:
    row: bytes
    family: bytes
    qualifier: bytes
    timestamp: int
    kind: int
    value: bytes
    tags: bytes = b""

    def encoded(self) -> bytes:
        key = struct.pack(">H", len(self.row)) + self.row + bytes([len(self.family)]) + self.family + self.qualifier
        key += struct.pack(">qB", self.timestamp, self.kind)
        body = struct.pack(">ii", len(key), len(self.value)) + key + self.value
        if self.tags:
            body += struct.pack(">H", len(self.tags)) + self.tags
        return struct.pack(">i", len(body)) + body


@dataclass(frozen=True, slots=True)
class Entry:
    region: str
    table: str
    sequence: int
    written_ms: int
    cells: tuple[Cell, ...]
    replicated: bool = False

    def encoded(self) -> bytes:
        key = text(1, self.region.encode()) + text(2, self.table.encode())
        key += number(3, self.sequence) + number(4, self.written_ms)
        if self.replicated:
            key += text(6, text(1, b"f") + number(2, 1))
        key += number(7, len(self.cells))
        if self.replicated:
            key += text(8, number(1, 1 << 63) + number(2, 5)) + number(9, (1 << 64) - 3) + number(10, 7)
        return varint(len(key)) + key + b"".join(cell.encoded() for cell in self.cells)


def varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def number(field_number: int, value: int) -> bytes:
    return varint(field_number * 8) + varint(value)


def text(field_number: int, value: bytes) -> bytes:
    return varint(field_number * 8 + 2) + varint(len(value)) + value


def header(*extra: bytes) -> bytes:
    body = b"".join(extra) + text(4, b"ProtobufLogWriter") + text(5, CODEC)
    return b"PWAL" + varint(len(body)) + body


def marker(region: str, table: str, sequence: int, qualifier: bytes, value: bytes) -> Entry:
    return Entry(region, table, sequence, 1, (Cell(b"METAROW", b"METAFAMILY", qualifier, 5, PUT, value),))


def random_entry(rng: random.Random, sequence: int) -> Entry:
    region = rng.choice(["0f1e2d3c4b5a69788796a5b4c3d2e1f0", "ffffffffffffffffffffffffffffffff", "1588230740"])
    table = rng.choice(["orders", "ns:orders", "t" * 200])
    cells = tuple(random_cell(rng) for _ in range(rng.choice([1, 1, 1, 2, 7, 150])))
    return Entry(region, table, sequence, 1_794_937_856_873 + sequence, cells, replicated=rng.random() < 0.2)


def random_cell(rng: random.Random) -> Cell:
    return Cell(
        rng.randbytes(rng.choice([1, 8, 300])),
        rng.choice([b"f", b"family", b"0123456789"]),
        rng.randbytes(rng.choice([0, 1, 20])),
        rng.choice([0, 1, 1_794_937_856_873, (1 << 63) - 1]),
        rng.choice(KINDS),
        rng.randbytes(rng.choice([0, 0, 5, 5, 70])),
        tags=rng.randbytes(rng.choice([0, 0, 9])),
    )


@dataclass(slots=True)
class Server:
    """A region server that writes WALs into `root`, and what HBase does with its files."""

    root: Path
    name: str = "rs1.example.org,16020,1794937834150"
    time_ms: int = 1_794_937_834_200
    files: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.root / "WALs" / self.name

    def roll(self, *, trailer: bool = True, group: str = "") -> Path:
        """Close the file and begin the next."""
        if trailer and self.files:
            self.write(TRAILER)
        self.time_ms += 3
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files.append(self.folder / f"{self.name.replace(',', '%2C')}{group}.{self.time_ms}")
        self.write(header())
        return self.files[-1]

    def write(self, data: bytes | Entry) -> None:
        with self.files[-1].open("ab") as opened:
            opened.write(data.encoded() if isinstance(data, Entry) else data)

    def archive(self, index: int = 0) -> None:
        """Move one of the files to oldWALs, as HBase does when its regions are flushed."""
        moved = self.root / "oldWALs" / self.files[index].name
        moved.parent.mkdir(exist_ok=True)
        self.files[index].rename(moved)
        self.files[index] = moved

    def die(self) -> None:
        """The master renames the folder of a dead server before it splits its files."""
        splitting = self.folder.with_name(self.name + "-splitting")
        self.folder.rename(splitting)
        self.files = [splitting / file.name if file.parent == self.folder else file for file in self.files]

    def split(self) -> None:
        for index, file in enumerate(self.files):
            if "oldWALs" not in file.parts:
                self.archive(index)
        self.folder.with_name(self.name + "-splitting").rmdir()
