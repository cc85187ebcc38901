"""The standby laboratory: pipelines in processes of their own that take over from each other, stopped and killed at will.

In: a store. Out: workers, each of which stands by, runs epochs here once it owns the store, and stands by again when it was
fenced off. Always: what a worker does is what `client.pipeline` does, with quicker beats and without Spark.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import viewkeeper as vk
from tests.support.running import HereRunner
from viewkeeper import failpoints
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.coordinator.standby import Heartbeats, Patience, own_in_turn
from viewkeeper.errors import Fenced, StoreBusy
from viewkeeper.events import Event, Waiting
from viewkeeper.settings import EpochLimits

CONTEXT = multiprocessing.get_context("spawn")
HEARTBEAT_SECONDS, PATIENCE_SECONDS = 0.02, 0.3
WAIT_SECONDS = 120  # a bound for a broken run, not a measure


def work(url: str, told: object, points: Path | None, patience_seconds: float) -> None:
    """What a worker does, until it is killed."""
    failpoints.hook(None if points is None else failpoints.killing(points))
    store = vk.connect(url).store

    def tell(event: Event) -> None:
        if isinstance(event, Waiting):
            told.send("busy")

    def own(claim: object) -> Coordinator:
        return Coordinator(store, HereRunner(store), limits=EpochLimits(changes=4), claim=claim)

    told.send("ready")
    while True:
        claim, coordinator = own_in_turn(store, own, Patience(patience_seconds), tell)
        heartbeats = Heartbeats(claim, seconds=HEARTBEAT_SECONDS)
        told.send(store.read_epoch_record().generation)
        try:
            while True:
                claim.beat()
                try:
                    coordinator.catch_up()
                    collect_garbage(store)
                except StoreBusy:
                    told.send("busy")
                threading.Event().wait(store.capabilities.poll_seconds)
        except Fenced:
            told.send("fenced")
        finally:
            heartbeats.close()
            claim.release()


class Worker:
    """A process, and what it said."""

    def __init__(self, url: str, points: Path | None = None, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._pipe, told = CONTEXT.Pipe(duplex=False)
        self._process = CONTEXT.Process(target=work, args=(url, told, points, patience_seconds), daemon=True)
        self._process.start()
        told.close()
        self._words: list[str | int] = []

    def words(self) -> list[str | int]:
        """What it said since `forget`."""
        while self._pipe.poll():
            try:
                self._words.append(self._pipe.recv())
            except EOFError:  # it is dead
                break
        return self._words

    def owns(self, generation: int) -> bool:
        return self.words()[-1:] != ["fenced"] and generation in self._words

    def stop(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    @property
    def is_dead(self) -> bool:
        return not self._process.is_alive()


def wait_until(condition: Callable[[], object]) -> float:
    """Return once the condition holds; the seconds that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + WAIT_SECONDS, "waited for too long"
        threading.Event().wait(0.005)
    return time.monotonic() - began


@contextmanager
def killed_at_last(*workers: Worker):
    """Within the block they work; after it none of them is left."""
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
