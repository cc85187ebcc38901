"""The positions of a write: from the logs that may grow, however many are archived, and not before it wherever it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import fs

import viewkeeper as vk
from tests.support.running import keep_up
from tests.support.small_hbase import SmallHBase
from tests.support.wal_files import Server
from tests.support.wal_worlds import Facts, log_of, put, server
from viewkeeper.client.connection import is_at
from viewkeeper.stores.hbase.wal.wal_files import GrowingLogs, WalFile, WalFolder

LONG_AGO = (1, 1)  # so that a change of a folder shows, however coarse the clock of the file system is


def own_folder(server: Server) -> None:
    """Files of this server are archived in a folder of its own, as HBase can be told to."""
    folder = server.root / "oldWALs" / server.name
    folder.mkdir(exist_ok=True)
    for number, file in enumerate(server.files):
        server.files[number] = file.rename(folder / file.name)


def flat(server: Server) -> None:
    for number in range(len(server.files)):
        server.archive(number)


def nothing(server: Server) -> None:
    pass


def rolled(server: Server) -> None:
    server.roll()
    server.archive(-2)


def newest_first(server: Server) -> None:
    """Of a dead server the file with the write is archived, and an earlier one is not yet."""
    server.die()
    server.archive(-1)


def stopped(server: Server) -> None:
    flat(server)
    server.folder.rmdir()


def stopped_apart(server: Server) -> None:
    own_folder(server)
    server.folder.rmdir()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "oldWALs").mkdir()
    return tmp_path


@pytest.mark.parametrize("befalls", [nothing, rolled, newest_first, stopped, stopped_apart])
@pytest.mark.parametrize("is_known", [True, False], ids=["an old server", "a new server"])
def test_the_ends_cover_a_write_whatever_befalls_its_server(
    root: Path, befalls: Callable[[Server], None], is_known: bool
) -> None:
    log, other = log_of(root, Facts()), server(root, 1)
    made = server(root) if is_known else None
    if made is not None and befalls is stopped_apart:  # so that only this folder changes
        own_folder(made)
        made.roll()
    for folder in [root / "oldWALs", *(root / "oldWALs").iterdir()]:
        os.utime(folder, LONG_AGO)
    before = log.growing()
    made = made or server(root)
    made.roll()
    made.write(put("a", "1", sequence=1))
    written = log.ends()[made.name]
    befalls(made)
    ends = log.ends_since(before)

    assert ends[made.name] >= written
    assert ends[other.name] == log.ends()[other.name]


@pytest.mark.parametrize("befalls", [stopped, newest_first])
def test_a_server_that_goes_shows_though_no_time_of_a_folder_has_changed(
    root: Path, befalls: Callable[[Server], None]
) -> None:
    log, made = log_of(root, Facts()), server(root)
    made.write(put("a", "1", sequence=1))
    made.roll()
    os.utime(root / "oldWALs", LONG_AGO)
    before = log.growing()
    made.write(put("b", "2", sequence=2))
    written = log.ends()[made.name]
    befalls(made)
    os.utime(root / "oldWALs", LONG_AGO)

    assert log.ends_since(before)[made.name] >= written


def test_a_newer_file_that_is_archived_before_an_older_one_shows_though_the_ends_are_equal(root: Path) -> None:
    log, made = log_of(root, Facts()), server(root)
    os.utime(root / "oldWALs", LONG_AGO)
    before = log.growing()
    made.roll(trailer=False)
    made.write(put("a", "1", sequence=1))
    written = log.ends()[made.name]
    newest_first(made)

    assert log.folder.growing(before).ends == before.ends
    assert log.ends_since(before)[made.name] >= written


def test_where_folders_tell_no_time_all_files_are_listed() -> None:
    untold = GrowingLogs({}, {"oldWALs": None})

    assert not untold.cover_writes(untold)


@pytest.mark.parametrize(("kind", "is_covered"), [("local", True), ("hdfs", True), ("s3", False), ("subtree", False)])
def test_times_count_only_where_every_move_changes_them(root: Path, kind: str, is_covered: bool) -> None:
    server(root)
    folder = WalFolder(Counting(kind), str(root))
    before = folder.growing()

    assert folder.growing(before).cover_writes(before) == is_covered


@dataclass(frozen=True)
class StartsLate(WalFolder):
    """A folder in which something happens after the files in WALs were listed."""

    acts: list[Callable[[], object]]

    def _current(self) -> list[WalFile]:
        found = super()._current()
        while self.acts:
            self.acts.pop()()
        return found


@pytest.mark.parametrize("is_first", [True, False], ids=["the first look", "a later look"])
def test_a_server_that_starts_and_archives_while_the_folders_are_looked_at_is_not_missed(
    root: Path, is_first: bool
) -> None:
    acts: list[Callable[[], object]] = []
    log, started = log_of(root, Facts(), folder=StartsLate(fs.LocalFileSystem(), str(root), acts)), list[Server]()

    def start() -> None:
        started.append(server(root))
        own_folder(started[0])
        started[0].roll()

    server(root, 1)
    os.utime(root / "oldWALs", LONG_AGO)
    first = None if is_first else log.growing()
    acts.append(start)
    if first is not None:
        log.ends_since(first)
    before = log.growing()
    (made,) = started
    made.write(put("a", "1", sequence=1))
    written = log.ends()[made.name]
    stopped_apart(made)

    assert log.ends_since(before)[made.name] >= written
    before = log.growing()
    log.ends_since(before)
    again = log.growing()
    assert log.folder.growing(again).cover_writes(again), "from then on times are known again"


def test_folders_of_servers_that_are_gone_are_not_looked_at_for_ever(root: Path) -> None:
    log, stays = log_of(root, Facts()), server(root, 1)
    for number in range(2, 6):
        gone = server(root, number)
        log.ends_since(log.growing())
        assert any(gone.name in path for path in log.growing().archived)
        stopped_apart(gone)
        log.ends_since(log.growing())
    old = f"{root}/oldWALs"

    assert log.growing().archived.keys() == {old, f"{old}/{stays.name}"}


class Counting:
    """A file system of some kind that counts what it is asked for, and the entries that it names."""

    def __init__(self, kind: str = "local") -> None:
        self._own, self.asked, self.named, self.type_name = fs.LocalFileSystem(), 0, 0, kind

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)

    def get_file_info(self, asked: object) -> object:
        found = self._own.get_file_info(asked)
        self.asked, self.named = self.asked + 1, self.named + (len(found) if isinstance(found, list) else 1)
        return found


@pytest.fixture
def hbase(root: Path) -> Iterator[SmallHBase]:
    made = SmallHBase(root)
    made.create(b"orders", [b"f"])
    with made.replying():
        yield made


def counts(hbase: SmallHBase, archived: int) -> dict[str, tuple[int, int]]:
    """What a put asks for, and a look whether a state has it: one that has not, before and after the changes are read."""
    db, found, counting = vk.connect(hbase.url), dict[str, tuple[int, int]](), Counting()
    db.store._wals.folder = WalFolder(counting, db.store._wals.folder.root)
    db.execute(
        "CREATE TABLE IF NOT EXISTS t (k STRING PRIMARY KEY, x INT) USING hbase OPTIONS (table 'orders', family 'f')"
    )
    keep_up(db)
    dead = hbase.servers[0].name.replace("rs0", "rs9").replace(",", "%2C")
    for number in range(archived):
        (hbase.root / "oldWALs" / f"{dead}.{hbase.servers[0].time_ms + number}").touch()
    os.utime(hbase.root / "oldWALs", LONG_AGO)

    def counted(what: str, act: Callable[[], object]) -> object:
        counting.asked = counting.named = 0
        result = act()
        found[what] = counting.asked, counting.named
        return result

    counted("first put", lambda: db.table("t").put("a", {"x": archived}))
    token = counted("put", lambda: db.table("t").put("b", {"x": archived}))
    reached = db.store.read_frontier().positions
    assert not is_at(db.store, token, reached)
    assert not counted("look", lambda: is_at(db.store, token, reached))
    later = db.table("t").put("c", {"x": archived})
    assert not counted("look further", lambda: is_at(db.store, later, reached))
    db.close()
    return found


def test_archived_files_cost_a_write_and_who_waits_for_it_nothing(hbase: SmallHBase) -> None:
    counts(hbase, 0)  # from here on each has an epoch to begin with
    few, many = counts(hbase, 3), counts(hbase, 90)

    assert few == many
    assert all(asked for asked, _ in (many["first put"], many["put"]))
