"""Views that come and go under load: one process writes, one runs epochs, and this one changes views and looks at them.

In: a database, a folder for files by which the processes talk, and a seed. Out: `LiveViews` and `PipelineProcess`. Always:
a sample is one snapshot; what it must show is computed by DuckDB over the rows that its committed positions cover, so that
no clock decides; statements and samples come from one process, which so knows the views of each. The same seed draws the
same writes and statements; how they interleave is up to the machine.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.running import HereRunner
from viewkeeper import failpoints
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.model.positions import Stream, covers
from viewkeeper.settings import EpochLimits

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.client.session import Snapshot

CONTEXT = multiprocessing.get_context("forkserver")  # a process that was killed is soon started again
CONTEXT.set_forkserver_preload([__name__])
POLL_SECONDS, WRITE_SECONDS = 0.002, 0.004  # between two looks, and between two transactions of the load
IN_VAIN_SECONDS = 120  # only a process that hangs takes longer
LIMITS = EpochLimits(rows=100)  # a backfill takes several epochs
ROWS, GROUPS = 240, 12
COLUMNS = {"r": ("k", "x", "y"), "s": ("x", "w")}
GROUPINGS = {
    "r": ("x", "x % 3, y % 2"),
    "r JOIN s ON r.x = s.x": ("s.w",),
}
CONDITIONS = ("", "y > 20", "y % 2 = 0", "y BETWEEN 5 AND 30", "k % 3 = 1")
AGGREGATES = ("COUNT(*) AS n", "COUNT(*) AS n, SUM(y) AS t", "MIN(y) AS lo, MAX(y) AS hi", "AVG(y) AS a")

Rows = dict[str, dict[int, tuple]]  # by table and key
Change = tuple[str, int, tuple | None]  # a table, a key, and the rest of its row; None: deleted


def drawn_text(choose: random.Random) -> str:
    """A view; many of them can share a grouping."""
    source = choose.choice(list(GROUPINGS))
    groups = choose.choice(GROUPINGS[source])
    shown = [f"{part} AS g{place}" for place, part in enumerate(groups.split(", "))] if groups else []
    where = choose.choice(CONDITIONS)
    text = f"SELECT {', '.join([*shown, choose.choice(AGGREGATES)])} FROM {source}"
    return text + (f" WHERE {where}" if where else "") + (f" GROUP BY {groups}" if groups else "")


def first_rows() -> Rows:
    rows = {key: (key % GROUPS, key % 50) for key in range(ROWS)}
    return {"r": rows, "s": {key: (key % 3,) for key in range(GROUPS - 2)}}


def drawn_transaction(seed: str, number: int) -> list[Change]:
    """Few rows that change again and again; some transactions change several, of both tables."""
    choose = random.Random(f"{seed} {number}")
    changes: list[Change] = []
    for _ in range(choose.choice((1, 1, 1, 3))):
        is_deleted = choose.random() < 0.2
        if choose.random() < 0.1:
            changes.append(("s", choose.randrange(GROUPS), None if is_deleted else (choose.randrange(4),)))
        else:
            row = (choose.choice([None, *range(GROUPS)]), choose.choice([None, *range(50)]))
            changes.append(("r", choose.randrange(ROWS), None if is_deleted else row))
    return changes


def write_steadily(url: str, seed: str, folder: Path) -> None:
    """The load, until the file `stop` is there; after each transaction, a line tells which it was and where the log ends."""
    with vk.connect(url) as db, open(folder / "written", "w", buffering=1) as told:
        for number in itertools.count():
            while (folder / "pause").exists() and not (folder / "stop").exists():
                time.sleep(POLL_SECONDS)
            if (folder / "stop").exists():
                return
            with db.write() as group:
                for table, key, row in drawn_transaction(seed, number):
                    if row is None:
                        group.delete(table, key)
                    else:
                        group.put(table, key, dict(zip(COLUMNS[table][1:], row, strict=True)))
            told.write(f"{number} {group.token.positions[Stream('0')]}\n")
            time.sleep(WRITE_SECONDS)


def run_epochs(url: str, folder: Path) -> None:
    """The pipeline, until the file `stop` is there. With the file `hold` it waits as soon as a backfill is under way.

    For each epoch, a line tells how many changes it took in, and whether any waited when it began.
    """
    failpoints.hook(failpoints.killing(folder))
    with vk.connect(url) as db, open(folder / "epochs", "a", buffering=1) as told:
        db.store.claim(take_over=False)
        coordinator = Coordinator(db.store, HereRunner(db.store), limits=LIMITS)
        while not (folder / "stop").exists():
            is_waited_for = not covers(db.store.read_epoch_record().positions, db.store.ends())
            if (done := coordinator.step()) is None:
                time.sleep(POLL_SECONDS)
            else:
                told.write(f"{done.epoch} {done.changes} {int(is_waited_for)}\n")
            while _is_held(folder) and db.store.read_epoch_record().filling:
                (folder / "held").touch()
                time.sleep(POLL_SECONDS)
            collect_garbage(db.store)


def _is_held(folder: Path) -> bool:
    return (folder / "hold").exists() and not (folder / "stop").exists()


class PipelineProcess:
    """The pipeline in a process of its own, which can be killed at a named point and started again."""

    def __init__(self, db: Database, folder: Path) -> None:
        self._db, self._folder = db, folder
        self._process: multiprocessing.process.BaseProcess | None = None

    def __enter__(self) -> PipelineProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / "stop").touch()
        self._process.join()
        assert self._process.exitcode == 0

    def start(self) -> None:
        self._process = CONTEXT.Process(target=run_epochs, args=(self._db.url, self._folder))
        self._process.start()

    def require_running(self) -> None:
        assert self._process.exitcode in (None, -signal.SIGKILL)

    def hold(self) -> None:
        """Let it wait in the next backfill."""
        (self._folder / "held").unlink(missing_ok=True)
        (self._folder / "hold").touch()

    @property
    def is_held(self) -> bool:
        return (self._folder / "held").exists()

    def kill_at(self, point: str) -> None:
        """Let it die at the next hit of a failpoint; one that is held goes on to there."""
        (self._folder / f"{point}.armed").write_text("1")
        (self._folder / "hold").unlink(missing_ok=True)

    def wait_for_death(self) -> None:
        self._process.join(IN_VAIN_SECONDS)
        assert self._process.exitcode == -signal.SIGKILL

    def pauses(self) -> list[int]:
        """The lengths of all runs of epochs that took in nothing although changes waited."""
        epochs = [line.split() for line in (self._folder / "epochs").read_text().splitlines()]
        idle = itertools.groupby(epochs, lambda epoch: epoch[1] == "0" and epoch[2] == "1")
        return [len(list(run)) for is_pause, run in idle if is_pause]


class LiveViews:
    """Two tables under a steady load, and views over them; `require_running` is called while it waits for a pipeline."""

    def __init__(self, db: Database, folder: Path, seed: str, require_running: Callable[[], object]) -> None:
        self.db, self.texts, self.samples = db, {}, 0
        self.choose = random.Random(seed)
        self._folder, self._seed, self._require_running = folder, seed, require_running
        self._was_readable: set[str] = set()
        self._rows, self._done = first_rows(), 0
        db.execute("CREATE TABLE r (k INT PRIMARY KEY, x INT, y INT); CREATE TABLE s (x INT PRIMARY KEY, w INT)")
        for table, rows in self._rows.items():
            named = [dict(zip(COLUMNS[table], (key, *row), strict=True)) for key, row in rows.items()]
            self._first = db.table(table).put_many(named).positions[Stream("0")]
        self._writer = CONTEXT.Process(target=write_steadily, args=(db.url, seed, folder))

    def __enter__(self) -> LiveViews:
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / "stop").touch()
        self._writer.join()
        assert self._writer.exitcode == 0

    # statements

    def create(self, text: str | None = None) -> str:
        """A view, drawn unless given; the name may be that of one dropped before."""
        free = sorted({f"v{number}" for number in range(len(self.texts) + 1)} - self.texts.keys())
        name, text = self.choose.choice(free), text or drawn_text(self.choose)
        self.db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        self.texts[name] = text
        return name

    def drop(self, name: str) -> None:
        self.db.execute(f"DROP MATERIALIZED VIEW {name}")
        del self.texts[name]
        self._was_readable.discard(name)

    def optimize(self) -> int:
        """Returns how many views will be computed with others."""
        before = {view.id for view in self.db.catalog().kept}
        self.db.execute("OPTIMIZE VIEWS")
        return len({view.id for view in self.db.catalog().kept} - before)

    def come_and_go(self, creates: int, optimizes: int) -> int:
        """Create and drop so many views, and optimize so often, in a drawn order, beside views that stay.

        Watched for some epochs after each statement, or none, so that many begin while others are under way; returns how
        many views OPTIMIZE VIEWS put together.
        """
        below = self.create()
        self.db.execute(f"CREATE MATERIALIZED VIEW above AS SELECT COUNT(*) AS n FROM {below}")
        self.texts["above"] = f"SELECT COUNT(*) AS n FROM ({self.texts[below]})"
        stay = {below, "above", *(self.create() for _ in range(3))}
        waiting = [*itertools.repeat("create", creates), *itertools.repeat("drop", creates)]
        waiting += itertools.repeat("optimize", optimizes)
        self.choose.shuffle(waiting)
        shared = 0
        for number in itertools.count(1):
            if not waiting:
                break
            there = sorted(self.texts.keys() - stay)
            match waiting.pop():
                case "create":
                    self.create()
                case "optimize":
                    shared += self.optimize()
                case "drop" if there:
                    self.drop(self.choose.choice(there))
                case later:
                    waiting.insert(0, later)
            self.watch(epochs=self.choose.choice((0, 0, 1, 3)))
            if number % 10 == 0:
                self.calm_down()
        self.calm_down()
        return shared

    # looks

    def sample(self) -> None:
        """In one snapshot, all views that can be read show the newest committed epoch, and none was lost since the last."""
        newest = self.db.epoch
        with self.db.snapshot() as snapshot:
            assert snapshot.epoch >= newest
            readable = _readable(snapshot)
            found = {name: Counter(tuple(row.values()) for row in snapshot.view(name).scan()) for name in readable}
        self._follow_writes(snapshot.frontier.positions.get(Stream("0"), 0))
        assert readable >= self._was_readable, "a view that was read can no longer be"
        computed = self._compute(readable)
        wrong = {name: self.texts[name] for name in readable if found[name] != computed[name]}
        assert not wrong, f"in epoch {snapshot.epoch}"
        self._was_readable = readable
        self.samples += 1

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + IN_VAIN_SECONDS
        while not is_so():
            self._require_running()
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(POLL_SECONDS)

    def watch(self, epochs: int) -> None:
        """Sample now and after each of the next epochs, or fewer where several are committed at a time."""
        self.sample()
        last = self.db.epoch + epochs
        while (seen := self.db.epoch) < last:
            self.wait_until(lambda seen=seen: self.db.epoch > seen)
            self.sample()

    def calm_down(self) -> None:
        """Let the load pause and all be filled: every view is read, and the store keeps no table that none needs."""
        (self._folder / "pause").touch()
        self.wait_until(self._is_calm)
        self.sample()
        assert self._was_readable == self.texts.keys()
        record, catalog = self.db.store.read_epoch_record(), self.db.catalog()
        assert record.stopped == {} and record.aborted == ()
        kept = {table for entry in (*catalog.nodes, *catalog.tables) for table in entry.tables}
        assert {table for table, _, _ in dump(self.db.store)} <= kept
        assert {table for view in catalog.views for table in view.needs} == {node.table for node in catalog.nodes}
        assert {sharing.id for sharing in catalog.sharings} == {view.sharing for view in catalog.views} - {None}
        (self._folder / "pause").unlink()

    def _is_calm(self) -> bool:
        record, catalog = self.db.store.read_epoch_record(), self.db.catalog()
        is_filled = all(view.node.backfill in record.filled for view in catalog.kept)
        is_done = record.inflight is None and covers(record.positions, self.db.store.ends())
        return is_done and is_filled and not catalog.replacements and not catalog.dropped

    def _follow_writes(self, position: int) -> None:
        """Bring the rows of this process to those that the log has up to a position."""

        def told() -> list[int]:
            with suppress(FileNotFoundError):
                lines = (self._folder / "written").read_text().splitlines(keepends=True)
                return [int(line.split()[1]) for line in lines if line.endswith("\n")]
            return []

        self.wait_until(lambda: max(told(), default=self._first) >= position)
        for end in told()[self._done :]:
            if end > position:
                break
            for table, key, row in drawn_transaction(self._seed, self._done):
                if row is None:
                    self._rows[table].pop(key, None)
                else:
                    self._rows[table][key] = row
            self._done += 1

    def _compute(self, names: set[str]) -> dict[str, Counter[tuple]]:
        """What the views' texts mean over the rows of this process, by DuckDB."""
        with duckdb.connect() as connection:
            for table, rows in self._rows.items():
                columns = list(zip(*((key, *row) for key, row in rows.items()), strict=True)) or [()] * len(
                    COLUMNS[table]
                )
                arrays = [pa.array(column, pa.int32()) for column in columns]
                connection.register(table, pa.table(dict(zip(COLUMNS[table], arrays, strict=True))))
            return {name: Counter(connection.sql(self.texts[name]).fetchall()) for name in names}


def _readable(snapshot: Snapshot) -> set[str]:
    frontier = snapshot.frontier
    first = {view.name: frontier.filled.get(view.node.backfill) for view in snapshot.catalog.views}
    return {name for name, epoch in first.items() if epoch is not None and epoch <= snapshot.epoch}
