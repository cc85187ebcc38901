"""Work of a store that is spread over Spark's executors: the same results and errors as here, whatever happens to workers."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import viewkeeper as vk
from tests.support.wal_worlds import ALL, Facts, World, log_of
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.errors import StoreReplaced
from viewkeeper.ports.store import Store
from viewkeeper.settings import EngineSettings
from viewkeeper.stores.hbase.wal.lookahead import LookaheadRequest, LookaheadResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE = EngineSettings().spread_above_rows + 1


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 'store'}?sync=off") as opened:
        yield opened


@pytest.fixture
def runner(db: vk.Database, spark: SparkSession) -> SparkRunner:
    return SparkRunner(db.store, LazySession(spark, view_managers=2), view_managers=2)


def where(store: Store, piece: int) -> bytes:
    return f"{piece} {store.incarnation} {os.getpid()}".encode()


def test_pieces_are_done_by_workers_that_opened_the_same_store_and_come_back_in_order(
    db: vk.Database, runner: SparkRunner
) -> None:
    found = [one.decode().split() for one in runner.spread(where, range(50), rows=LARGE)]

    assert [int(piece) for piece, _, _ in found] == list(range(50))
    assert {incarnation for _, incarnation, _ in found} == {db.store.incarnation}
    assert str(os.getpid()) not in {pid for _, _, pid in found}


def test_what_is_small_or_in_one_piece_is_left_to_the_caller(runner: SparkRunner) -> None:
    settings = EngineSettings()

    assert runner.spread(where, range(2), rows=settings.spread_above_rows) is None
    assert runner.spread(where, range(2), log_bytes=settings.spread_above_log_bytes) is None
    assert runner.spread(where, range(1), rows=LARGE) is None
    assert runner.spread(where, range(2), log_bytes=settings.spread_above_log_bytes + 1) is not None


def test_without_a_session_that_is_up_nothing_is_started(db: vk.Database) -> None:
    session = LazySession(None, view_managers=2)

    assert SparkRunner(db.store, session, view_managers=2).spread(where, range(2), rows=LARGE) is None
    assert not session.is_ready


def refuse(store: Store, piece: int) -> bytes:
    if piece:
        raise vk.PositionLost("the WAL of rs1 is gone", "raise its TTL")
    return b""


def test_an_error_of_ours_is_raised_as_it_would_be_here(runner: SparkRunner) -> None:
    with pytest.raises(vk.PositionLost) as raised:
        runner.spread(refuse, range(3), rows=LARGE)
    assert vars(raised.value) == vars(vk.PositionLost("the WAL of rs1 is gone", "raise its TTL"))


def test_a_store_that_was_replaced_is_told(db: vk.Database, runner: SparkRunner, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "old")
    vk.connect(f"embedded:{tmp_path / 'store'}?sync=off").close()

    with pytest.raises(StoreReplaced):
        runner.spread(where, range(3), rows=LARGE)


def stumble(store: Store, piece: int) -> bytes:
    raise ZeroDivisionError


def test_any_other_failure_is_left_to_the_caller(runner: SparkRunner) -> None:
    assert runner.spread(stumble, range(3), rows=LARGE) is None


class Dying:
    """Kills its process so many times, then does the piece."""

    def __init__(self, marks: Path, times: int) -> None:
        self._marks, self._times = marks, times

    def __call__(self, store: Store, piece: int) -> bytes:
        if piece == 1 and len(list(self._marks.iterdir())) < self._times:
            (self._marks / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return str(piece).encode()


def test_a_worker_that_is_killed_is_replaced_and_one_that_always_dies_is_left_to_the_caller(
    runner: SparkRunner, tmp_path: Path
) -> None:
    for times, result in ((1, [b"0", b"1", b"2"]), (99, None)):
        (marks := tmp_path / f"marks{times}").mkdir()
        assert runner.spread(Dying(marks, times), range(3), rows=LARGE) == result
        assert any(marks.iterdir())


class LookIn:
    """Looks at the WALs in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, store: Store, look: LookaheadRequest) -> bytes:
        return log_of(self._root, Facts()).scan_ahead(look).to_bytes()


def test_looks_by_spark_give_the_cuts_of_looks_here(runner: SparkRunner, tmp_path: Path) -> None:
    draw = random.Random(5)
    world, jobs = World(tmp_path, draw), list[int]()

    def spread(looks: Sequence[LookaheadRequest]) -> list[LookaheadResult] | None:
        found = runner.spread(LookIn(tmp_path), looks, rows=LARGE)
        jobs.append(0 if found is None else len(found))
        return None if found is None else [LookaheadResult.from_bytes(one) for one in found]

    here, there = log_of(tmp_path, Facts()), log_of(tmp_path, Facts(), spread=spread)
    positions: dict = {}
    for _ in range(5):
        for _ in range(60):
            world.act()
        cuts = [log.cut(positions, changes_max=40, bytes_max=ALL) for log in (here, there)]
        assert cuts[0] == cuts[1]
        positions = cuts[0].positions
    assert sum(jobs) >= 10
