"""The WAL reader finds every cell of every whole entry, once and in order, wherever it resumes and HBase moves the files."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.wal_files import TRAILER, Cell, Entry, Server, header, marker, number, random_entry, text, varint
from viewkeeper.errors import CorruptStore, InvariantBroken, NotOffered, PositionLost, StoreUnavailable
from viewkeeper.model.positions import Position, Stream
from viewkeeper.stores.hbase.wal.wal_files import BYTES_PER_MS, WalFile, WalFolder, check_order, first_position
from viewkeeper.stores.hbase.wal.wal_reader import Block, WalReader

Found = tuple[str, str, int, int, Cell]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(tmp_path)
    made.roll()
    return made


def reader(server: Server, **options: object) -> WalReader:
    return WalReader(WalFolder.at(str(server.root)), **options)


def expected(entries: list[Entry]) -> list[Found]:
    return [
        (entry.region, entry.table, entry.sequence, entry.written_ms, without_tags(cell))
        for entry in entries
        for cell in entry.cells
    ]


def without_tags(cell: Cell) -> Cell:
    return Cell(cell.row, cell.family, cell.qualifier, cell.timestamp, cell.kind, cell.value)


def cells_of(blocks: list[Block]) -> list[Found]:
    names = ("row", "family", "qualifier", "timestamp", "kind", "value")
    return [
        (row["region"], row["table"], row["sequence"], row["written_ms"], Cell(*(row[name] for name in names)))
        for block in blocks
        for row in block.cells.to_pylist()
    ]


def read(server: Server, start: int = 0, stop: int | None = None, **options: object) -> list[Block]:
    until = None if stop is None else Position(stop)
    return list(reader(server, **options).read(Stream(server.name), Position(start), until))


def entry(sequence: int, table: str = "orders", cells: int = 1) -> Entry:
    made = tuple(Cell(b"r%d" % index, b"f", b"q", sequence, 4, b"v" * index) for index in range(cells))
    return Entry("0f1e2d3c4b5a69788796a5b4c3d2e1f0", table, sequence, 1_794_937_856_873, made)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("block_bytes", [1, 1000, 8 << 20])
def test_cells_of_every_kind_and_shape_are_read_as_they_were_written(
    server: Server, seed: int, block_bytes: int
) -> None:
    rng = random.Random(seed)
    written = [random_entry(rng, sequence) for sequence in range(1, 60)]
    for one in written:
        server.write(one)

    blocks = read(server, block_bytes=block_bytes)
    assert cells_of(blocks) == expected(written)
    for names in (block.cells[column].dictionary.to_pylist() for block in blocks for column in ("region", "table")):
        assert len(set(names)) == len(names)


def test_a_file_that_is_cut_off_anywhere_gives_its_whole_entries_and_the_rest_when_it_has_grown(server: Server) -> None:
    written = [entry(1), replace(entry(2, cells=3), replicated=True), entry(3, table="t" * 130), entry(4, cells=0)]
    for one in written:
        server.write(one)
    server.write(TRAILER)
    file = server.files[0]
    whole = file.read_bytes()
    ends = [len(header())]
    for one in written:
        ends.append(ends[-1] + len(one.encoded()))
    for size in range(len(whole) + 1):
        file.write_bytes(whole[:size])
        before = read(server)
        count = sum(end <= size for end in ends[1:])
        assert cells_of(before) == expected(written[:count]), size
        file.write_bytes(whole)
        after = read(server, before[-1].position if before else 0)
        assert cells_of(after) == expected(written[count:]), size


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_or_repeated_while_a_server_writes_rolls_archives_and_dies(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    server = Server(tmp_path)
    server.roll()
    written: list[Entry] = []
    found: list[Found] = []
    position = last = 0
    for sequence in range(1, 80):
        one = random_entry(rng, sequence)
        written.append(one)
        halves = one.encoded()[: (cut := rng.randrange(len(one.encoded())))], one.encoded()[cut:]
        server.write(halves[0])
        for block in read(server, position, block_bytes=rng.choice([64, 4096, 1 << 20])) if rng.random() < 0.3 else []:
            found += cells_of([block])
            position = block.position
            if rng.random() < 0.3:
                break  # the rest is read again from here
        assert position >= last
        last = position
        server.write(halves[1])
        if rng.random() < 0.1:
            server.roll(trailer=rng.random() < 0.7)
        if rng.random() < 0.1 and (closed := [file for file in server.files[:-1] if "oldWALs" not in file.parts]):
            server.archive(server.files.index(closed[0]))
    server.write(random_entry(rng, 99).encoded()[:-1])
    server.die()
    if rng.random() < 0.5:
        server.split()
    found += cells_of(read(server, position))

    assert found == expected(written)


def test_every_range_between_two_positions_gives_exactly_its_entries(server: Server) -> None:
    written = []
    for sequence in range(1, 13):
        written.append(entry(sequence, cells=sequence))
        server.write(written[-1])
        if sequence % 4 == 0:
            server.roll()
    positions = [0] + [row["position"] for block in read(server) for row in block.cells.to_pylist()]
    positions = sorted(set(positions))
    for low in range(len(positions)):
        for high in range(low, len(positions)):
            blocks = read(server, positions[low], positions[high], block_bytes=100)
            assert cells_of(blocks) == expected(written[low:high])
            assert all(block.position <= positions[high] for block in blocks)


def test_a_range_whose_end_cannot_be_reached_is_an_error(server: Server) -> None:
    server.write(entry(1))
    server.write(entry(2))
    whole = server.files[0].read_bytes()
    end = read(server)[-1].position
    server.files[0].write_bytes(whole[:-1])
    with pytest.raises(StoreUnavailable, match="cannot be read up to"):
        read(server, stop=end)
    server.files[0].write_bytes(whole)
    assert cells_of(read(server, stop=end)) == expected([entry(1), entry(2)])


def test_a_file_that_a_listing_missed_is_not_passed_over(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for sequence in (1, 2, 3):
        server.write(entry(sequence))
        server.roll()
    listings = []

    def miss_the_second(folder: WalFolder) -> dict[Stream, list[WalFile]]:
        files = list_files(folder)
        listings.append(files)
        return files if len(listings) > 1 else {name: [found[0], *found[2:]] for name, found in files.items()}

    list_files = WalFolder.files
    monkeypatch.setattr(WalFolder, "files", miss_the_second)
    assert cells_of(read(server)) == expected([entry(1), entry(2), entry(3)])


def test_the_next_file_waits_until_the_one_before_is_whole(server: Server) -> None:
    server.write(entry(1))
    server.roll(trailer=False)
    first, second = server.files
    server.write(entry(3).encoded()[:-1])
    assert cells_of(read(server)) == expected([entry(1)]), "the first may still grow"
    with first.open("ab") as opened:
        opened.write(entry(2).encoded())
    server.write(entry(3).encoded()[-1:])
    assert cells_of(read(server)) == expected([entry(1), entry(2), entry(3)]), (
        "an entry of the second shows that it is whole"
    )
    second.write_bytes(header())
    server.archive(0)
    last = read(server)[-1]
    assert cells_of(read(server, last.position)) == []
    assert last.position == reader(server).folder.files()[Stream(server.name)][1].first, "it was archived"


def test_a_torn_tail_in_the_archive_is_the_end_of_its_file(server: Server) -> None:
    server.write(entry(1))
    server.write(entry(2).encoded()[:-1])
    server.archive(0)
    assert cells_of(read(server)) == expected([entry(1)])
    server.roll(trailer=False)
    server.write(entry(3))
    assert cells_of(read(server)) == expected([entry(1), entry(3)])


@pytest.mark.parametrize("tail", [b"", b"\0", TRAILER[:5], bytes(4096)], ids=["nothing", "zero", "half", "zeros"])
def test_a_trailer_that_is_missing_or_torn_ends_nothing_too_early(server: Server, tail: bytes) -> None:
    server.write(entry(1))
    server.write(tail)
    server.roll(trailer=False)
    assert [block.position for block in read(server)] == [read(server)[0].position], "it may still be written"
    server.write(entry(2))
    assert cells_of(read(server)) == expected([entry(1), entry(2)])


def test_a_damaged_entry_before_a_trailer_is_an_error_and_not_the_end(server: Server) -> None:
    server.write(entry(1))
    server.write(b"\0" + entry(2).encoded()[1:])
    server.roll()
    server.write(entry(3))
    with pytest.raises(CorruptStore, match="has no entry at"):
        read(server)


@pytest.mark.parametrize("at", [4, 8, 12])
def test_lengths_that_do_not_fit_are_an_error_unless_the_table_is_not_wanted(server: Server, at: int) -> None:
    broken = bytearray(entry(1, table="other").encoded())
    cell = len(broken) - len(entry(1).cells[0].encoded())
    broken[cell + at] = 0x7F
    server.write(bytes(broken))
    server.write(entry(2))
    with pytest.raises(CorruptStore, match="lengths do not fit"):
        read(server)
    assert cells_of(read(server, tables={"orders"})) == expected([entry(2)]), "it is stepped over unread"


@pytest.mark.parametrize("seed", range(200))
def test_bytes_that_no_hbase_writes_end_in_an_error_of_ours_or_in_waiting(server: Server, seed: int) -> None:
    rng = random.Random(seed)
    good = b"".join(random_entry(rng, sequence).encoded() for sequence in (1, 2))
    bad = bytearray(good)
    for _ in range(rng.choice([1, 3])):
        bad[rng.randrange(len(bad))] = rng.randrange(256)
    server.write(bytes(bad))
    try:
        read(server)
    except CorruptStore:
        pass


@pytest.mark.parametrize(
    ("extra", "setting"),
    [
        (number(1, 1), "hbase.regionserver.wal.enablecompression"),
        (text(2, b"key"), "hbase.regionserver.wal.encryption"),
        (number(3, 1), "hbase.regionserver.wal.tags.enablecompression"),
        (number(6, 1), "hbase.regionserver.wal.value.enablecompression"),
    ],
)
def test_what_is_compressed_or_encrypted_is_refused_with_its_setting(
    server: Server, extra: bytes, setting: str
) -> None:
    server.files[0].write_bytes(header(extra))
    with pytest.raises(NotOffered, match=setting):
        read(server)


def test_another_codec_and_another_file_are_refused(server: Server) -> None:
    codec = b"org.apache.hadoop.hbase.regionserver.wal.IndexedWALEditCodec"
    server.files[0].write_bytes(b"PWAL" + bytes([len(text(5, codec))]) + text(5, codec))
    with pytest.raises(NotOffered, match="hbase.regionserver.wal.codec"):
        read(server)
    server.files[0].write_bytes(b"PAR1")
    with pytest.raises(CorruptStore, match="is not a WAL"):
        read(server)


def test_markers_are_reported_and_are_no_cells(server: Server) -> None:
    region = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    markers = [
        ("REGION_OPEN", b"HBASE::REGION_EVENT::REGION_OPEN", number(1, 0) + text(2, b"orders")),
        ("START_FLUSH", b"HBASE::FLUSH", number(1, 0)),
        ("COMMIT_FLUSH", b"HBASE::FLUSH", number(1, 1)),
        ("COMPACTION", b"HBASE::COMPACTION", text(1, b"orders")),
        ("BULK_LOAD", b"HBASE::BULK_LOAD", text(1, b"orders")),
        ("REGION_CLOSE", b"HBASE::REGION_EVENT::REGION_CLOSE", number(1, 1)),
        ("NEW_KIND", b"HBASE::NEW_KIND", b"anything"),
    ]
    for sequence, (_, qualifier, value) in enumerate(markers):
        server.write(marker(region, "orders", sequence, qualifier, value))
        server.write(marker(region, "other", sequence, qualifier, value))
    server.write(entry(50))
    blocks = read(server, tables={"orders"})
    found = [marker for block in blocks for marker in block.markers]

    assert [(one.kind, one.sequence, one.table) for one in found] == [
        (kind, sequence, "orders") for sequence, (kind, _, _) in enumerate(markers)
    ]
    assert cells_of(blocks) == expected([entry(50)])


def test_a_position_whose_file_is_gone_is_lost(server: Server) -> None:
    server.write(entry(1, cells=9))
    position = read(server)[-1].position
    server.roll()
    server.write(entry(2))
    server.archive(0)
    assert cells_of(read(server, position)) == expected([entry(2)])
    server.files[0].unlink()
    with pytest.raises(PositionLost, match="is gone"):
        read(server, position)
    with pytest.raises(PositionLost, match="is gone"):
        list(reader(server).read(Stream("another,16020,1"), Position(5)))


def test_positions_of_a_later_file_are_after_those_of_an_earlier_one() -> None:
    first, later = first_position(1000, 1000), first_position(1001, 1000)
    check_order("wal", BYTES_PER_MS - 1, first, later)
    with pytest.raises(InvariantBroken, match="too large"):
        check_order("wal", BYTES_PER_MS, first, later)
    years = 8 * 365 * 86_400_000
    assert 0 < first_position(1, 1000) < first < first_position(1000 + years, 1000) < 1 << 63
    with pytest.raises(InvariantBroken, match="does not fit"):
        first_position(1000 + 2 * years, 1000)


def test_a_stream_is_one_start_of_a_server_and_files_of_others_are_left_out(server: Server, tmp_path: Path) -> None:
    server.write(entry(1))
    again = Server(tmp_path, "rs1.example.org,16020,1794937900000", 1_794_937_900_100)
    again.roll(group=".regiongroup-0")
    again.roll(group=".regiongroup-1")
    server.files[0].with_name(server.files[0].name + ".meta").write_bytes(b"PWAL")
    (tmp_path / "MasterData" / "WALs").mkdir(parents=True)
    streams = WalFolder.at(f"file://{tmp_path}").files()

    assert sorted(streams) == [server.name, f"{again.name}.regiongroup-0", f"{again.name}.regiongroup-1"]
    assert [file.server for files in streams.values() for file in files] == [server.name, again.name, again.name]


def test_a_stream_has_ended_when_its_server_is_gone_and_all_is_archived(server: Server) -> None:
    folder = reader(server).folder
    states = []
    for step in (lambda: None, lambda: server.archive(0), server.die, server.split):
        step()
        states.append(folder.ended())

    assert states == [set(), set(), set(), {Stream(server.name)}]


def test_the_ends_are_those_of_the_last_whole_entries(server: Server) -> None:
    server.write(entry(1))
    end = reader(server).last_entries()
    server.write(entry(2).encoded()[:-1])
    assert reader(server).last_entries() == end
    server.write(entry(2).encoded()[-1:])
    (position,) = reader(server).last_entries().values()
    assert position == end[Stream(server.name)] + len(entry(2).encoded())


@pytest.mark.parametrize("closed", [0, 1, 3], ids=["none", "one", "three"])
def test_the_ends_are_before_files_without_entries_while_one_before_them_may_get_some(
    server: Server, closed: int
) -> None:
    server.write(entry(1))
    end = reader(server).last_entries()
    server.roll(trailer=False)  # its closing takes long
    for _ in range(closed):
        server.roll()
    assert reader(server).last_entries() == end
    (position,) = end.values()
    assert cells_of(read(server, stop=position)) == expected([entry(1)])
    server.write(entry(2))
    (position,) = reader(server).last_entries().values()
    assert cells_of(read(server, stop=position)) == expected([entry(1), entry(2)])


def test_a_folder_that_is_no_hbase_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="hbase.rootdir"):
        WalFolder.at(str(tmp_path)).files()


@pytest.mark.parametrize("entries", [0, 1, 9])
@pytest.mark.parametrize("length", [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_a_cell_of_2_gib_is_waited_for_and_one_of_more_is_an_error(server: Server, length: int, entries: int) -> None:
    server.write(entry(1))
    whole = entry(2).encoded()
    key = whole[: len(whole) - len(entry(2).cells[0].encoded())]
    server.write(key + struct.pack(">I", length) + entry(3).encoded() * entries)
    if length == 0x7FFFFFFF:
        assert cells_of(read(server)) == expected([entry(1)])
    else:
        with pytest.raises(CorruptStore, match="a cell of more than 2 GiB"):
            read(server)


@pytest.mark.parametrize("lacking", [1, 2, 3, 4, 7])
def test_a_key_without_a_field_is_an_error_and_one_without_a_count_has_no_cells(server: Server, lacking: int) -> None:
    fields = {1: text(1, b"0f1e"), 2: text(2, b"orders"), 3: number(3, 9), 4: number(4, 9), 7: number(7, 0)}
    key = b"".join(value for known, value in fields.items() if known != lacking)
    server.write(varint(len(key)) + key)
    server.write(entry(2))
    if lacking == 7:
        assert cells_of(read(server)) == expected([entry(2)])
    else:
        with pytest.raises(CorruptStore, match="its key lacks a field"):
            read(server)
