"""Looks that other processes do: the same cuts as those of looks here, whatever servers do meanwhile."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.support.wal_worlds import ALL, Facts, World, log_of, put, read, server
from viewkeeper.errors import PositionLost
from viewkeeper.model.positions import Stream
from viewkeeper.stores.hbase.wal import wal_log
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, LookaheadResult
from viewkeeper.stores.hbase.wal.wal_log import WalLog


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Processes that have nothing of this one."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as made:
        yield made


def look(root: Path, asked: LookaheadRequest) -> bytes:
    return log_of(root, Facts()).scan_ahead(asked).to_bytes()


class SpreadLooks:
    """Has all looks done by the pool."""

    def __init__(self, pool: ProcessPoolExecutor, root: Path) -> None:
        self._pool, self._root, self.asked = pool, root, list[LookaheadRequest]()

    def __call__(self, looks: Sequence[LookaheadRequest]) -> list[LookaheadResult]:
        self.asked += looks
        return [LookaheadResult.from_bytes(found) for found in self._pool.map(partial(look, self._root), looks)]


@pytest.mark.parametrize("seed", range(8))
def test_looks_of_other_processes_give_the_cuts_of_looks_here(
    tmp_path: Path, pool: ProcessPoolExecutor, seed: int
) -> None:
    draw = random.Random(seed)
    world, spread = World(tmp_path, draw), SpreadLooks(pool, tmp_path)
    here, there = log_of(tmp_path, Facts()), log_of(tmp_path, Facts(), spread=spread)
    positions, found = dict[Stream, int](), list[int]()
    for _ in range(12):
        for _ in range(draw.choice((1, 5, 60))):
            world.act()
        if draw.random() < 0.2:
            there = log_of(tmp_path, Facts(), spread=spread)
        changes_max = draw.choice((1, 7, ALL))
        cuts = [log.cut(positions, changes_max=changes_max, bytes_max=ALL) for log in (here, there)]
        assert cuts[0] == cuts[1]
        found += read(there, positions, cuts[1].positions)
        positions = cuts[1].positions
        assert facts_of(here, positions) == facts_of(there, positions)
    found += read(there, positions, there.cut(positions, changes_max=ALL, bytes_max=ALL).positions)
    assert sorted(found) == [sequence for _, sequence in world.written]
    assert len(spread.asked) > 12


def facts_of(log: WalLog, positions: dict[Stream, int]) -> tuple[object, ...]:
    ends = log.ends()
    return log.describe(positions), log.describe(positions, ends).has_changes, log.describe(positions, ends).bytes


def test_what_is_brought_at_once_is_bounded_over_all_streams_and_nothing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: ProcessPoolExecutor
) -> None:
    monkeypatch.setattr(wal_log, "_SENT_MAX", 8)
    monkeypatch.setattr(wal_log, "_SENT_LEAST", 1)
    spread = SpreadLooks(pool, tmp_path)
    for number in range(4):
        one = server(tmp_path, number)
        for sequence in range(1, 7):
            one.write(put(f"{number}/{sequence}", "1", sequence=number * 10 + sequence))
            one.roll()
    log, positions, changes = log_of(tmp_path, Facts(), spread=spread), dict[Stream, int](), 0
    while (cut := log.cut(positions, changes_max=ALL, bytes_max=ALL)).changes:
        positions, changes = cut.positions, changes + cut.changes
    assert changes == 24
    assert {asked.told_max for asked in spread.asked[:4]} == {2}


def test_only_streams_with_bytes_ahead_are_looked_at_elsewhere_and_those_from_where_they_are_known(
    tmp_path: Path, pool: ProcessPoolExecutor
) -> None:
    spread = SpreadLooks(pool, tmp_path)
    servers = [server(tmp_path, number) for number in range(3)]
    log = log_of(tmp_path, Facts(), spread=spread)
    for one in servers:
        one.write(put("a", "1", sequence=1))
    start = log.cut({}, changes_max=ALL, bytes_max=ALL).positions
    spread.asked.clear()
    entry = put("b", "1", sequence=2)
    servers[1].write(entry)

    assert log.cut(start, changes_max=ALL, bytes_max=ALL).changes == 1
    assert [(asked.stream, asked.start, asked.bytes) for asked in spread.asked] == [
        (servers[1].name, start[servers[1].name], len(entry.encoded()))
    ]


def test_a_look_for_changes_in_a_backlog_is_spread_and_the_cut_goes_on_from_it(
    tmp_path: Path, pool: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_log, "_SENT_LEAST", 2)
    spread, names = SpreadLooks(pool, tmp_path), list[Stream]()
    for number in range(3):
        one = server(tmp_path, number)
        names.append(Stream(one.name))
        for sequence in range(1, 7):
            one.write(put("a", "1", sequence=sequence, ms=sequence * 100))
            one.roll()
    log = log_of(tmp_path, Facts(), spread=spread)
    assert log.describe({}, log.ends()).changes == 6
    assert sorted(asked.stream for asked in spread.asked) == names
    assert {asked.entries_max for asked in spread.asked} == {2}
    spread.asked.clear()
    assert log.cut({}, changes_max=ALL, bytes_max=ALL).changes == 18
    assert sorted(asked.stream for asked in spread.asked) == names
    assert all(asked.start for asked in spread.asked)


def test_a_log_that_is_lost_is_told_as_it_is_here(tmp_path: Path, pool: ProcessPoolExecutor) -> None:
    one = server(tmp_path)
    one.write(put("a", "1", sequence=1))
    start = log_of(tmp_path, Facts()).cut({}, changes_max=ALL, bytes_max=ALL).positions
    one.roll()
    one.files[0].unlink()
    one.write(put("b", "1", sequence=2))
    told = set()
    for log in (log_of(tmp_path, Facts()), log_of(tmp_path, Facts(), spread=SpreadLooks(pool, tmp_path))):
        with pytest.raises(PositionLost) as raised:
            log.cut(start, changes_max=ALL, bytes_max=ALL)
        told.add(str(raised.value))
    assert len(told) == 1
