"""Lives of mapped tables: statements, epochs, crashes, repairs and rebuilds, while other clients of HBase write at any step.

In: a seed and a folder. Out: nothing, or an AssertionError. Always: over the real store, on a small HBase of this
process; others may act ahead of every request that the store sends, so no moment of a staging or of an epoch is left out. At
quiet moments every view equals what DuckDB makes of the rows that HBase shows. The same seed gives the same life.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import pyarrow as pa

import viewkeeper as vk
from tests.support import wal_files as wal
from tests.support.duck_judge import NO_SPARK, judged_by_duckdb
from tests.support.foreign import recomputed
from tests.support.oracle import bag_of
from tests.support.running import HereRunner, Interrupted
from tests.support.small_hbase import SmallHBase
from viewkeeper.check import check_files
from viewkeeper.check.check_views import check_views
from viewkeeper.coordinator.backfill import reset_views
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import InputError
from viewkeeper.model.schema import TableSchema
from viewkeeper.plan.replacements import with_shadow_views
from viewkeeper.settings import EpochLimits
from viewkeeper.stores.hbase import snapshot_copy
from viewkeeper.stores.hbase.log import LogPart

TABLE = "CREATE TABLE {0} (k STRING PRIMARY KEY, g STRING, x INT) USING hbase OPTIONS (table '{0}', x.cell 'e:x', family 'f')"
TEXTS = {
    "everything": "SELECT k, g, x FROM t",
    "sums": "SELECT g, COUNT(*) AS n, SUM(x) AS s, MIN(x) AS lo FROM t GROUP BY g",
    "others": "SELECT k, x FROM u WHERE x > 2",
    "pairs": "SELECT t.k, u.k AS o, u.x FROM t JOIN u ON t.g = u.g",
}
_ROWS = "abcdmnop"  # the second half in a region of its own
_CELLS = {(b"f", b"g"): (b"p", b"q"), (b"e", b"x"): (b"1", b"5", b"7")}
_STEPS = 14


class Life:
    """One store, and others who use the same HBase.

    A short life is the first staging alone, with many writes.
    """

    def __init__(self, root: Path, seed: int, *, is_short: bool = False) -> None:
        self.draw, self.hbase = random.Random(seed), SmallHBase(root)
        for name in (b"t", b"u"):
            self.hbase.create(name, [b"e", b"f"], [b"m"])
        self._often, self._steps = self.draw.choice((0.05, 0.2, 0.5)), _STEPS
        if is_short:
            self._often, self._steps = 0.5, 0
        self._until_crash: int | None = None
        self.compared = self.checked = 0

    def run(self) -> None:
        """Live, and compare at the end."""
        for _ in range(self.draw.choice((0, 6, 20))):
            self._write()
        with self.hbase.replying(), mock.patch.object(snapshot_copy, "_CHUNK_ROWS", 2):
            self._db = self._connect()
            self.hbase.reached = self._reached
            for act in (self._map, self._create, self._epoch, *[self._step] * self._steps):
                act()
            self._compare()

    def _step(self) -> None:
        acts: list[Callable[[], None]] = [
            *[self._epoch] * 4,
            *[self._map] * 3,
            *[self._create] * 3,
            *[self._compare] * 2,
            *[self._check] * 2,
            *(self._crash, self._reopen, self._fill_anew, self._reset_all, self._drop, self._collect),
        ]
        self.draw.choice(acts)()

    # what others do

    def _reached(self, request: str, asked: object) -> None:
        """Something may happen ahead of a request: others write, or somebody runs a statement elsewhere."""
        if self.draw.random() < self._often:
            self._write()
        if self.draw.random() < 0.01:
            with mock.patch.object(self.hbase, "reached", _nothing), mock.patch.object(self, "_db", self._connect()):
                self.draw.choice((self._map, self._create))()
                self._db.close()
        if self._until_crash is not None:
            self._until_crash -= 1
            if self._until_crash < 0:
                self._until_crash = None
                raise Interrupted

    def _write(self) -> None:
        """Others write cells of a row, with any timestamps, or delete some; or a region moves, or a log is rolled."""
        draw, hbase = self.draw, self.hbase
        table, row = draw.choice((b"t", b"u")), draw.choice(_ROWS).encode()
        kind = draw.choice("ppppppodcvfmr")
        if kind == "m":
            hbase.move(table, row)
        elif kind == "r":
            draw.choice(hbase.servers).roll(trailer=draw.random() < 0.7)
        elif cells := list(self._cells(kind, table, row)):
            hbase.begin_write(table, cells)
        if draw.random() < 0.6:
            hbase.settle()

    def _cells(self, kind: str, table: bytes, row: bytes) -> Iterator[wal.Cell]:
        """Of one write: puts (p), with older timestamps (o), deletes of a row (d), a column (c) or a version (v, f)."""
        draw, hbase = self.draw, self.hbase
        chosen = draw.sample(sorted(_CELLS), draw.choice((1, 2)))
        now = hbase.tick()
        stamp = now - draw.randrange(1, 40) if kind == "o" or draw.random() < 0.2 else now
        for place in chosen if kind != "d" else sorted(_CELLS):
            stored = [one.cell for one in hbase.written(table, row) if one.cell.family == place[0]]
            puts = [cell.timestamp for cell in stored if cell.kind == wal.PUT]
            gone = {cell.timestamp for cell in stored if cell.kind in (wal.DELETE, wal.DELETE_FAMILY_VERSION)}
            if kind in "po":
                if stamp not in gone:  # docs/hbase.md: a put below a delete
                    yield wal.Cell(row, *place, stamp, wal.PUT, draw.choice(_CELLS[place]))
            elif kind == "d":
                yield wal.Cell(row, place[0], b"", stamp, wal.DELETE_FAMILY, b"")
            elif kind == "c":
                yield wal.Cell(row, *place, stamp, wal.DELETE_COLUMN, b"")
            elif puts:
                whole = kind == "f"
                name, delete = (b"", wal.DELETE_FAMILY_VERSION) if whole else (place[1], wal.DELETE)
                yield wal.Cell(row, place[0], name, draw.choice(puts), delete, b"")

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        self.hbase.settle()
        with mock.patch.object(self.hbase, "reached", _nothing):
            yield

    # what users of the store do

    def _connect(self) -> vk.Database:
        return vk.connect(self.hbase.url)

    def _mapped(self) -> set[str]:
        return {table.name for table in self._db.catalog().tables}

    @property
    def _views(self) -> set[str]:
        return {view.name for view in self._db.catalog().views}

    def _execute(self, statement: str) -> None:
        with suppress(InputError):  # somebody else did the same meanwhile, or made a view of it
            self._db.execute(statement)

    def _map(self) -> None:
        if names := sorted({"t", "u"} - self._mapped()):
            self._execute(TABLE.format(self.draw.choice(names)))

    def _create(self) -> None:
        mapped = self._mapped()
        can = [name for name in sorted(set(TEXTS) - self._views) if _bases(name) <= mapped]
        if can:
            name = self.draw.choice(can)
            self._execute(f"CREATE MATERIALIZED VIEW {name} AS {TEXTS[name]}")

    def _drop(self) -> None:
        """A view, or a table with its views."""
        views = sorted(self._views)
        what = self.draw.choice((*views, "t", "u"))
        for name in [name for name in views if what in (name, *_bases(name))]:
            self._execute(f"DROP MATERIALIZED VIEW {name}")
        if what in self._mapped():
            self._execute(f"DROP TABLE {what}")

    def _fill_anew(self) -> None:
        """Ask for a repair or a rebuild; the next epochs do it."""
        if views := sorted(self._views):
            names, ending = [self.draw.choice(views)], self.draw.choice(("repair", "rebuild"))
            epoch = self._db.epoch
            with suppress(InputError):  # it is being filled anew
                self._db.change_catalog(lambda catalog: with_shadow_views(catalog, names, ending, epoch)[0])

    def _reset_all(self) -> None:
        reset_views(self._db.store)

    def _epoch(self) -> None:
        limits = EpochLimits(changes=self.draw.choice((1, 5, 1_000)), rows=self.draw.choice((2, 6, 1_000)))
        coordinator = Coordinator(self._db.store, HereRunner(self._db.store), limits=limits)
        for _ in range(self.draw.choice((1, 1, 3))):
            coordinator.step()

    def _crash(self) -> None:
        """A pipeline dies ahead of one of its requests."""
        self._until_crash = self.draw.choice((5, 15, 30, 60))
        with suppress(Interrupted):
            self._epoch()
        self._until_crash = None
        self._reopen()

    def _reopen(self) -> None:
        self._db.close()
        self._db = self._connect()

    def _collect(self) -> None:
        collect_garbage(self._db.store)

    def _compare(self) -> None:
        """Nobody writes until all views have what was written."""
        with self._quiet():
            Coordinator(self._db.store, HereRunner(self._db.store)).catch_up()
            tables = {name: self._rows(name) for name in ("t", "u")}
            for name in sorted(self._views):
                found = bag_of(tuple(row.values()) for row in self._db.view(name).scan())
                assert found == recomputed(TEXTS[name], tables), name
                self.compared += 1

    def _check(self) -> None:
        """Others go on writing meanwhile."""
        self.hbase.settle()
        with judged_by_duckdb(), mock.patch.object(check_files, "_BATCH_ROWS", 2):
            report = check_views(self._db, None, NO_SPARK)
        assert not report.findings, report.findings
        self.checked += len(report.views)

    def _rows(self, table: str) -> list[tuple[str | None, ...]]:
        seen = self.hbase.seen(table.encode()).items()
        texts = ((row, [cells.get(place) for place in ((b"f", b"g"), (b"e", b"x"))]) for row, cells in seen)
        return [(row.decode(), *(None if one is None else one.decode() for one in values)) for row, values in texts]


def _nothing(request: str, asked: object) -> None:
    pass


def _bases(view: str) -> set[str]:
    return {"t", "u"} if view == "pairs" else {"u"} if view == "others" else {"t"}


@contextmanager
def reading_begins_after_the_first_rows_are_staged() -> Iterator[None]:
    """`docs/epochs.md`, R20: what is written between is in neither."""

    def stage(self: LogPart, table: TableSchema, *, rows_max: int) -> bool:
        return self._staging.stage(self._staging.parts(table, rows_max=rows_max))

    with mock.patch.object(LogPart, "stage", stage):
        yield


@contextmanager
def a_staging_reads_before_what_was_logged_is_visible() -> Iterator[None]:
    """R20: it is before the beginning of the log, and not among the rows that are read."""
    with mock.patch.object(SmallHBase, "sleep", lambda self, seconds: None):
        yield


@contextmanager
def an_epoch_finds_its_chunks_once() -> Iterator[None]:
    """R9: who runs it again has another input."""

    def read(self: LogPart, chunks: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        there = [chunk for chunk in chunks if chunk in self.staged()]
        yield from self._chunks.read(there)
        self.drop_staged(there)

    with mock.patch.object(LogPart, "read_staged", read):
        yield
