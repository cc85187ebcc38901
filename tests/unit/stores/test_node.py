"""A node: rows and log move together; positions count changes; the log can be read, cut and truncated."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.handles import close_environments
from viewkeeper.model.stored_rows import RowWrites
from viewkeeper.stores.kv.lmdb_environment import Environment
from viewkeeper.stores.kv.lmdb_files import make_part, part_of
from viewkeeper.stores.local import node_log
from viewkeeper.stores.local.node import Node

Rows = dict[bytes, bytes]


def make_node(path: Path) -> Node:
    part = part_of({}, "node-0")
    make_part(path, part)
    environment = Environment(path, part, synced=False)
    return Node(lambda: environment, 0, synced=False, before_images=True)


def clock(first: int = 10) -> Callable[[], int]:
    ticks = itertools.count(first, 10)
    return lambda: next(ticks)


def put(rows: dict[bytes, bytes | None], table: int = 1) -> RowWrites:
    return RowWrites(table, list(rows), lambda befores: list(rows.values()))


def log_of(node: Node, start: int = 0, stop: int | None = None) -> list[tuple]:
    """(position, table, key, before, after) of every change, in the order of positions."""
    batches = node.read_log(start, node.end() if stop is None else stop)
    return sorted(
        (row["position"], table, row["key"], row["before"], row["after"])
        for table, b in batches
        for row in b.to_pylist()
    )


def test_a_write_is_in_the_rows_and_in_the_log(tmp_path: Path) -> None:
    node = make_node(tmp_path / "n")
    assert node.write([put({b"a": b"1", b"b": b"2"})], clock()) == 2
    assert node.write([put({b"a": None}), put({b"z": b"9"}, table=2)], clock(50)) == 4

    assert node.get_many(1, [b"a", b"b"]) == [None, b"2"]
    assert node.get(2, b"z") == b"9"
    assert log_of(node) == [
        (1, 1, b"a", None, b"1"),
        (2, 1, b"b", None, b"2"),
        (3, 1, b"a", b"1", None),
        (4, 2, b"z", None, b"9"),
    ]


def test_a_write_that_changes_nothing_leaves_no_trace(tmp_path: Path) -> None:
    node = make_node(tmp_path / "n")
    node.write([put({b"a": b"1"})], clock())

    assert node.write([put({b"a": b"1", b"gone": None})], clock(50)) == 1
    assert node.end() == len(log_of(node)) == 1
    assert node.log_end().stamp == 10


def test_a_write_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    node = make_node(tmp_path / "n")
    node.write([put({b"a": b"1"})], clock())

    def fail(befores: list) -> list:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        node.write([put({b"a": b"2"}), RowWrites(1, [b"b"], fail)], clock(50))
    assert node.get(1, b"a") == b"1"
    assert (node.end(), node.log_entries(), node.count_rows(1)) == (1, 1, 1)


def test_stamps_grow_even_when_the_clock_does_not(tmp_path: Path) -> None:
    node = make_node(tmp_path / "n")
    stamps = []
    for number, now in enumerate((100, 100, 7, 200)):
        node.write([put({b"k": b"%d" % number})], lambda now=now: now)
        stamps.append(node.log_end().stamp)

    assert stamps == [100, 101, 102, 200]


STEPS = st.lists(
    st.dictionaries(st.sampled_from([b"a", b"b", b"c" * 600, b"d"]), st.none() | st.binary(max_size=2), min_size=1),
    max_size=12,
)


@settings(max_examples=40)
@given(steps=STEPS, cuts=st.lists(st.integers(0, 40), max_size=3))
def test_the_log_replayed_gives_the_rows_as_of_every_position(
    tmp_path_factory: pytest.TempPathFactory, steps: list, cuts: list[int]
) -> None:
    node = make_node(tmp_path_factory.mktemp("replay") / "n")
    tick, states = clock(), {0: {}}
    rows: Rows = {}
    for step in steps:
        end = node.write([put(step)], tick)
        rows = {key: row for key, row in (rows | step).items() if row is not None}
        states[int(end)] = rows
    for position, state in states.items():
        found = [
            pair for keys, values in node.scan_as_of(1, position, b"", None) for pair in zip(keys, values, strict=True)
        ]
        assert sorted(found) == sorted(state.items())
    replayed: Rows = {}
    borders = sorted({0, *(min(cut, int(node.end())) for cut in cuts), int(node.end())})
    for start, stop in itertools.pairwise(borders):  # ranges cut anywhere hold each entry once
        for _, _, key, before, after in log_of(node, start, stop):
            assert replayed.get(key) == before
            replayed = {**replayed, key: after}
    assert {key: row for key, row in replayed.items() if row is not None} == rows
    close_environments()


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(1, 4), max_size=10), start=st.integers(0, 12), stamp=st.integers(0, 130))
def test_a_stamp_is_found_at_the_end_of_its_transaction(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], start: int, stamp: int
) -> None:
    node, tick = make_node(tmp_path_factory.mktemp("stamps") / "n"), clock()
    borders = [(0, 0)]
    for number, size in enumerate(sizes):
        end = node.write([put({b"%d-%d" % (number, i): b"v" for i in range(size)})], tick)
        borders.append((int(end), node.log_end().stamp))
    begin = max(end for end, _ in borders if end <= start)

    assert node.find_stamp(begin, stamp) == max(begin, *(end for end, at in borders if at <= stamp))
    close_environments()


def test_a_truncated_log_keeps_the_entry_at_the_position_and_its_numbers(tmp_path: Path) -> None:
    node, tick = make_node(tmp_path / "n"), clock()
    for number in range(6):
        node.write([put({b"k": b"%d" % number})], tick)
    checksum = node.find_entry(4)[1].checksum

    assert node.truncate_log(4, 1 << 62, entries_max=100) == 3
    assert node.find_entry(4)[1].checksum == checksum
    assert [row[0] for row in log_of(node, 4)] == [5, 6]
    assert node.write([put({b"k": b"x"})], tick) == 7
    assert node.truncate_log(7, 1 << 62, entries_max=100) == 3
    assert node.truncate_log(7, 1 << 62, entries_max=100) == 0
    assert (node.end(), node.log_entries()) == (7, 1)


def test_a_log_is_not_truncated_behind_what_is_still_wanted_for_its_age(tmp_path: Path) -> None:
    node, tick = make_node(tmp_path / "n"), clock()
    for number in range(4):
        node.write([put({b"k": b"%d" % number})], tick)  # stamped 10, 20, 30, 40

    assert node.truncate_log(4, 25, entries_max=100) == 2
    assert [row[0] for row in log_of(node, 2)] == [3, 4]


def test_a_row_that_is_written_twice_in_one_transaction_is_two_changes_of_one_entry(tmp_path: Path) -> None:
    node = make_node(tmp_path / "node")
    node.write(
        [put({b"a": b"1"}), put({b"a": b"2", b"b": b"1"}), put({b"z": b"9"}, table=2), put({b"b": None})], clock()
    )

    assert node.log_entries() == 3
    assert log_of(node) == [
        (1, 1, b"a", None, b"1"),
        (2, 1, b"a", b"1", b"2"),
        (3, 1, b"b", None, b"1"),
        (4, 2, b"z", None, b"9"),
        (5, 1, b"b", b"1", None),
    ]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what a process has mapped")
def test_who_read_a_long_log_does_not_hold_it(tmp_path: Path) -> None:
    node = make_node(tmp_path / "node")
    data = tmp_path / "node" / "data.mdb"
    for number in range(20):
        node.write([put({b"%d %d" % (number, i): b"." * 500 for i in range(1_000)})], clock(1 + number))
    entries = sum(len(batch) for _, batch in node.read_log(0, node.end()))

    assert entries == 20_000
    assert _mapped_bytes(data) < data.stat().st_size / 10


def _mapped_bytes(file: Path) -> int:
    """How much of a mapped file this process holds."""
    held, is_file = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line.split(" ", 1)[0].endswith(":"):
            is_file = line.endswith(f" {file}")
        elif is_file and line.startswith("Rss:"):
            held += 1024 * int(line.split()[1])
    return held


def test_a_long_log_is_decoded_in_pieces_and_given_in_large_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node(tmp_path / "n")
    for number in range(80):
        node.write([put({b"%d" % number: b"row"}, table=1 + number % 2)], clock())
    whole = log_of(node)

    monkeypatch.setattr("viewkeeper.stores.local.node_log._DECODED_CHANGES_MAX", 7)
    assert log_of(node) == whole
    assert [len(batch) for _, batch in node.read_log(0, node.end())] == [40, 40]
    monkeypatch.setattr("viewkeeper.stores.local.node_log._READ_CHANGES_MAX", 20)
    assert log_of(node) == whole
    assert len(list(node.read_log(0, node.end()))) == 8


@pytest.mark.parametrize(
    ("read", "decoded", "batches"), [(1 << 27, 0, 2), (1 << 27, 700, 2), (1, 1 << 24, 2), (1, 0, 12), (700, 0, 8)]
)
def test_a_log_that_is_read_a_few_bytes_at_a_time_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int, decoded: int, batches: int
) -> None:
    made, tick = make_node(tmp_path / "n"), clock()
    for number in range(12):
        made.write([put({b"k%d" % number: b"x" * 200, b"again": b"%d" % number}, table=1 + number % 2)], tick)
    whole = [log_of(made, start) for start in range(0, 24, 2)]
    monkeypatch.setattr(node_log, "_READ_BYTES_MAX", read)
    monkeypatch.setattr(node_log, "_DECODED_BYTES_MAX", decoded)

    assert [log_of(made, start) for start in range(0, 24, 2)] == whole
    assert log_of(made, 4, 10) == [change for change in whole[2] if change[0] <= 10]
    assert len(list(made.read_log(0, made.end()))) == batches
