"""The WAL reader on a real HBase: what clients wrote is what it finds, whatever happens to regions, files and servers."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.hbase_writes import Logged, Writer, writing
from tests.support.services.admin import Admin
from tests.support.services.hbase import Cluster
from tests.support.services.waiting import say_nothing, wait_until
from viewkeeper.model.positions import Position, Positions, Stream
from viewkeeper.stores.hbase.wal.wal_entries import CELLS_SCHEMA, Marker
from viewkeeper.stores.hbase.wal.wal_files import WalFile, WalFolder
from viewkeeper.stores.hbase.wal.wal_reader import WalReader

COLUMNS = ("row", "family", "qualifier", "timestamp", "kind", "value")
KINDS = {4: "Put", 8: "Delete", 10: "DeleteFamilyVersion", 12: "DeleteColumn", 14: "DeleteFamily"}


class Tail:
    """Follows all streams from look to look; each look begins with a new reader at the positions of the last."""

    def __init__(self, hbase: Cluster, table: str) -> None:
        self.folder = WalFolder.at(f"file://{hbase.layout.root}")
        self.table = table
        self.positions: Positions = WalReader(self.folder, ()).last_entries()
        self.cells: list[tuple[int, Logged]] = []
        self.markers: list[Marker] = []

    def look(self) -> None:
        reader = WalReader(self.folder, {self.table})
        for stream in self.folder.files():
            for block in reader.read(stream, self.positions.get(stream, Position(0))):
                rows = block.cells.to_pylist()
                assert block.cells.schema == CELLS_SCHEMA and {row["table"] for row in rows} <= {self.table}
                self.cells += [(row["sequence"], tuple(row[name] for name in COLUMNS)) for row in rows]
                self.markers += block.markers
                assert block.position > self.positions.get(stream, Position(0))
                self.positions[stream] = block.position


def by_row(cells: list[Logged]) -> dict[bytes, list[Logged]]:
    rows: dict[bytes, list[Logged]] = {}
    for cell in cells:
        rows.setdefault(cell[0], []).append(cell)
    return rows


def check(tail: Tail, writers: list[Writer], *, doubtful_max: int = 0, again_max: int = 0) -> None:
    """Every acknowledged cell is there, in the order of its row's sequence ids, and no cell of nobody's.

    A cell is there once, but for a few that the Thrift server itself wrote again, under another sequence id, to the next
    server of their region: it had no answer from the last.
    """
    acknowledged = [cell for writer in writers for cell in writer.acknowledged]
    doubtful = {cell for writer in writers for cell in writer.doubtful}
    ordered = sorted(
        ((sequence, cell) for sequence, cell in tail.cells if cell not in doubtful), key=lambda one: one[0]
    )
    found = by_row(list({cell: sequence for sequence, cell in reversed(ordered)})[::-1])

    assert len(acknowledged) > 100
    assert len(ordered) == len(set(ordered)) <= len(acknowledged) + again_max
    assert found == by_row(acknowledged)
    assert len(doubtful) <= doubtful_max


def kinds(markers: list[Marker]) -> Counter[str]:
    return Counter(marker.kind for marker in markers)


def test_what_was_acknowledged_is_found_at_the_first_look(hbase: Cluster, table: str) -> None:
    tail, writer = Tail(hbase, table), Writer(hbase, table, seed=1)
    with hbase.client() as client:
        for _ in range(60):
            writer.write(client, 5)
            tail.look()
            assert len(tail.cells) == len(writer.acknowledged)
    check(tail, [writer])
    assert {cell[4] for _, cell in tail.cells} == set(KINDS), "all kinds of deletes"


def test_rolls_flushes_moves_splits_and_merges_lose_and_repeat_nothing(
    hbase: Cluster, admin: Admin, table: str
) -> None:
    tail, writers = Tail(hbase, table), [Writer(hbase, table, seed) for seed in (2, 3)]
    with writing(writers):
        # Before the moves: the client of a Thrift server loses the way to a region that moved there and back and was then
        # split, until its operation times out.
        admin.split(table, b"d")
        tail.look()
        admin.merge(table)
        for _ in range(2):
            for server in admin.servers():
                admin.roll(server)
                tail.look()
                for region in admin.regions(table)[:2]:
                    admin.move(region, server)
                    tail.look()
                admin.flush(table)
                tail.look()
    tail.look()
    check(tail, writers)
    seen = kinds(tail.markers)
    assert min(seen[kind] for kind in ("REGION_OPEN", "REGION_CLOSE", "START_FLUSH", "COMMIT_FLUSH")) > 0
    assert len(admin.regions(table)) == 3


def test_kill_9_of_region_servers_loses_and_repeats_nothing(hbase: Cluster, admin: Admin, table: str) -> None:
    tail, writers = Tail(hbase, table), [Writer(hbase, table, seed) for seed in (4, 5)]
    with writing(writers):
        for number in (1, 2):
            tail.look()
            (dead,) = [name for name in admin.servers() if f",{hbase.layout.port(f'regionserver-{number}')}," in name]
            hbase.kill(f"regionserver-{number}")
            hbase.run(f"regionserver-{number}")
            moved = wait_until(lambda: _has_ended(tail, dead), seconds_max=300, state=lambda: dead, tell=say_nothing)  # noqa: B023
            assert moved, f"the files of {dead} were not archived"
            before = len(writers[0].acknowledged)
            went_on = wait_until(
                lambda: len(writers[0].acknowledged) > before + 20,  # noqa: B023
                seconds_max=300,
                state=str,
                tell=say_nothing,
            )
            assert went_on, "nobody could write after the kill"
    tail.look()
    check(tail, writers, doubtful_max=50, again_max=20)
    hbase.wait_until_serving()


def _has_ended(tail: Tail, server: str) -> bool:
    tail.look()
    return Stream(server) in tail.folder.ended()


def test_entries_positions_and_cells_are_those_of_hbases_own_printer(hbase: Cluster, admin: Admin, table: str) -> None:
    writer = Writer(hbase, table, seed=6)
    with hbase.client() as client:
        writer.write(client, 100)
        for server in admin.servers():
            admin.roll(server)
        writer.write(client, 100)
    folder = WalFolder.at(str(hbase.layout.root))
    files = folder.files()
    with_trailer, without = ([files[Stream(server)][index] for server in admin.servers()] for index in (-2, -1))
    for group in (with_trailer, without):
        assert sum(len(_compare(hbase, folder, file)) for file in group) > 0


def _compare(hbase: Cluster, folder: WalFolder, file: WalFile) -> list[int]:
    """Up to the size that the file had when it was listed; returns the ends of entries with cells."""
    printed = {end: cells for end, cells in _printed(_print(hbase, folder, file)).items() if end <= file.size}
    found: dict[int, list[object]] = {}
    markers = []
    for block in WalReader(folder).read(file.stream, file.first):
        markers += [
            marker.position - file.first for marker in block.markers if marker.position <= file.first + file.size
        ]
        for row in block.cells.to_pylist():
            if row["position"] <= file.first + file.size:
                found.setdefault(row["position"] - file.first, []).append(_as_printed(row))
    assert found == {end: cells for end, cells in printed.items() if end not in markers}
    assert sorted([*found, *markers]) == list(printed), "every entry is there, and where it ends"
    return list(found)


def _print(hbase: Cluster, folder: WalFolder, file: WalFile) -> str:
    """Of the file wherever it is; again, if it was moved meanwhile."""
    while True:
        (path,) = [Path(one.path) for one in folder.files()[file.stream] if one.name == file.name]
        text = hbase.print_wal(path)
        if path.exists():
            return text


def _printed(text: str) -> dict[int, list[object]]:
    """Entries by their ends."""
    entries: dict[int, list[object]] = {}
    decode = json.JSONDecoder().raw_decode
    for start in re.finditer(r'^[\[,]?\{"sequence"', text, re.MULTILINE):
        entry, stop = decode(text, text.index("{", start.start()))
        end = int(re.compile(r"position: (\d+)").search(text, stop)[1])
        entries[end] = [
            (
                entry["table"]["nameAsString"],
                entry["region"],
                int(entry["sequence"]),
                *(action[name] for name in ("row", "family", "qualifier", "value")),
                int(action["timestamp"]),
                action["type"],
            )
            for action in entry["actions"]
        ]
    return entries


def _as_printed(row: dict[str, Any]) -> tuple[object, ...]:
    data = [_escaped(row[name]) for name in ("row", "family", "qualifier", "value")]
    return row["table"], row["region"], row["sequence"], *data, row["timestamp"], KINDS[row["kind"]]


def _escaped(data: bytes) -> str:
    """As HBase's Bytes.toStringBinary writes bytes."""
    return "".join(chr(byte) if 32 <= byte <= 126 and byte != 92 else f"\\x{byte:02X}" for byte in data)
