"""The pipelines of a soak: one that holds the store, and one that stands by; killed and stopped at will.

In: a store's URL. Out: workers, each `Database.pipeline(standby=True)` in a process of its own, without Spark. Always: an
order (kill, or stop) is carried out by the worker itself at a named failpoint, so it is certain where it was; whoever is
fenced off stands by again; a store that does not answer is waited for, as `viewkeeper run` does, and anything else ends it.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import viewkeeper as vk
from tests.support.hbase_soak.processes import Forked
from tests.support.hbase_soak.summary import Wrong
from viewkeeper import failpoints
from viewkeeper.client.database import Database
from viewkeeper.errors import Fenced, StoreBusy, StoreUnavailable
from viewkeeper.model.epochs import EpochRecord

# Where an epoch is in flight: begun, and not committed.
IN_FLIGHT = (
    *("begin.swapped", "run.synced", "run.fenced", "split.start", "split.read", "task.read", "task.applied"),
    *("stage.applied", "apply.start", "apply.read", "apply.computed", "apply.written", "run.receipts", "commit.synced"),
)
BETWEEN = ("begin.cut", "commit.swapped", "commit.done", "gc.start", "gc.truncated")
PATIENCE_SECONDS = 4.0
WAIT_SECONDS = 600.0  # bounds for a broken run, not measures
_LOOK_SECONDS = 0.3
_PASSES = StoreBusy, StoreUnavailable, OSError


class Orders:
    """A hook that carries out the order in a folder: `POINT SKIPPED SIGNAL`."""

    def __init__(self, folder: Path) -> None:
        self._order, self._passed = folder / "order", 0

    def __call__(self, name: str) -> None:
        try:
            point, skipped, number = self._order.read_text().split()
        except (FileNotFoundError, ValueError):  # none, or half written
            return
        if name == point:
            self._passed += 1
            if self._passed > int(skipped):
                self._passed = 0
                with suppress(FileNotFoundError):  # another thread was faster
                    self._order.unlink()
                    os.kill(os.getpid(), int(number))


def work(url: str, folder: Path, changes_per_epoch: int, pipe: Connection) -> None:
    """What a worker does, until it is killed; it says "fenced", or why it ended."""
    failpoints.hook(Orders(folder))
    try:
        _insist(lambda: _own(url, changes_per_epoch, pipe), pipe)
    except (EOFError, BrokenPipeError):
        raise
    except BaseException:
        pipe.send(traceback.format_exc())


def _own(url: str, changes_per_epoch: int, pipe: Connection) -> None:
    with vk.connect(url) as db:
        while True:
            with db.pipeline(
                standby=True,
                patience_seconds=PATIENCE_SECONDS,
                changes_per_epoch=changes_per_epoch,
                engine="driver",
            ) as pipeline:
                try:
                    while True:
                        _insist(pipeline.run_available, pipe)
                        if pipe.poll(_LOOK_SECONDS):
                            pipe.recv()  # the end of the soak
                except Fenced:
                    pipe.send("fenced")


def _insist(step: Callable[[], object], pipe: Connection) -> None:
    while True:
        try:
            step()
            return
        except (EOFError, BrokenPipeError):
            raise
        except _PASSES:
            if pipe.poll(_LOOK_SECONDS):
                pipe.recv()


class Worker:
    """A worker, and what it said."""

    def __init__(self, url: str, changes_per_epoch: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="viewkeeper-soak-"))
        self.forked = Forked(work, url, self.folder, changes_per_epoch)
        self.words: list[str] = []
        self.is_to_die = False

    def hear(self) -> None:
        """Raise Wrong if it ended by itself."""
        with suppress(EOFError, ConnectionResetError):
            while self.forked.pipe.poll():
                self.words.append(self.forked.pipe.recv())
        told = [word for word in self.words if word != "fenced"]
        if told or self.forked.is_dead:
            raise Wrong(f"a pipeline ended by itself:\n{told[0] if told else 'it was killed by another'}")

    def order(self, point: str, skipped: int, number: signal.Signals) -> None:
        part = self.folder / "part"
        part.write_text(f"{point} {skipped} {int(number)}")
        part.rename(self.folder / "order")

    def withdraw(self) -> None:
        (self.folder / "order").unlink(missing_ok=True)

    def end(self) -> None:
        self.forked.end()
        self.withdraw()
        self.folder.rmdir()


class Pipelines:
    """Two workers over one store; `db`: the soak's own connection, for looks at the epoch record."""

    def __init__(self, db: Database, changes_per_epoch: Callable[[], int]) -> None:
        self._db, self._changes = db, changes_per_epoch
        self._workers: list[Worker] = []
        self._fill_up()

    def hear(self) -> None:
        for worker in list(self._workers):
            if worker.is_to_die and worker.forked.is_dead:
                self._dead(worker)
            else:
                worker.hear()

    def record(self) -> EpochRecord:
        return self._db.store.read_epoch_record()

    def holder(self) -> Worker:
        """The worker that holds the store, once one does."""
        found: list[Worker] = []

        def is_held() -> bool:
            self.hear()
            holder = self._db.store.holder()
            found[:] = [worker for worker in self._workers if holder and worker.forked.pid == holder.pid]
            return bool(found)

        self._require(is_held, "no pipeline holds the store")
        return found[0]

    def kill(self, point: str, skipped: int) -> int | None:
        """Kill the holder at that point; the epoch that was in flight then, or 0; None if it did not come there."""
        worker = self.holder()
        worker.order(point, skipped, signal.SIGKILL)
        died = self._carried_out(worker, lambda: worker.forked.wait(0.05))
        return self._dead(worker) if died else None

    def order_kill(self, point: str) -> None:
        """Have the holder killed when it comes to that point next; whoever looks after it then finds it dead."""
        worker = self.holder()
        worker.is_to_die = True
        worker.order(point, 0, signal.SIGKILL)

    def kill_now(self) -> int:
        """Kill the holder wherever it is; the epoch that was in flight then, or 0."""
        worker = self.holder()
        worker.forked.send(signal.SIGKILL)
        worker.forked.wait(30)
        return self._dead(worker)

    def stop(self, point: str, skipped: int, epochs: int) -> int | None:
        """Stop the holder at that point until another has committed so many epochs, and let it go on.

        Returns the epoch that was in flight, or 0; None if it did not come there, or was not stopped in time.
        """
        worker, generation = self.holder(), self.record().generation
        worker.words.clear()  # of an earlier time
        worker.order(point, skipped, signal.SIGSTOP)
        if not self._carried_out(worker, lambda: worker.forked.is_stopped):
            return None
        try:
            found = self.record()
            self._require(lambda: self.record().generation > generation, "nobody took over from a stopped pipeline")
            begun = self.record().committed
            self._require(lambda: self.record().committed >= begun + epochs, "who took over does not go on")
        finally:
            worker.forked.send(signal.SIGCONT)
        self._require(lambda: self._is_fenced(worker), "a pipeline that was stopped is not fenced off")
        return found.inflight.epoch if found.inflight else 0

    def end(self) -> None:
        for worker in self._workers:
            worker.end()

    def _is_fenced(self, worker: Worker) -> bool:
        worker.hear()
        if "fenced" in worker.words:
            worker.words.clear()
            return True
        return False

    def _carried_out(self, worker: Worker, is_done: Callable[[], bool]) -> bool:
        """Whether the worker did as it was ordered; not if another holds the store meanwhile: then it comes to no epoch."""
        began = looked = time.monotonic()
        while not is_done():
            now = time.monotonic()
            if now > looked + 2:
                looked = now
                if now > began + WAIT_SECONDS or not self._holds(worker):
                    worker.withdraw()
                    return is_done()
            threading.Event().wait(0.005)
        return True

    def _holds(self, worker: Worker) -> bool:
        with suppress(StoreUnavailable):
            holder = self._db.store.holder()
            return holder is not None and holder.pid == worker.forked.pid
        return True

    def _dead(self, worker: Worker) -> int:
        inflight = self.record().inflight
        self._workers.remove(worker)
        worker.end()
        self._fill_up()
        return inflight.epoch if inflight else 0

    def _fill_up(self) -> None:
        while len(self._workers) < 2:
            self._workers.append(Worker(self._db.url, self._changes()))

    def _require(self, condition: Callable[[], bool], told: str) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while True:
            with suppress(StoreUnavailable):
                if condition():
                    return
            if time.monotonic() > until:
                raise Wrong(f"{told}, after {WAIT_SECONDS:.0f} s")
            threading.Event().wait(0.05)
