"""A store that is gone for a while: every call, or those of some names, ends as if nobody answered.

In: a store. Out: one that behaves the same until it is told to go, and again once it is told to come back. As a program:
real seconds without a store, and what became of the pipeline, of writers and of a view meanwhile
(`python -m tests.support.gone_store --seconds 60`).
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Collection

import viewkeeper as vk
from viewkeeper.client.database import Database
from viewkeeper.stores.open import open_store

QUERY = "SELECT x, COUNT(*) AS n, SUM(y) AS s FROM t GROUP BY x"
VIEWS = ("admit", "write_versions", "sync")  # what only an epoch calls


class GoneStore:
    """A store behind a line that may be cut; `calls` counts those that were not answered."""

    def __init__(self, store: object) -> None:
        self._store = store
        self._cut: Collection[str] | None = ()
        self.calls = 0

    def go(self, *names: str) -> None:
        """From here on these calls are not answered; without names, none is."""
        self._cut = names or None

    def come_back(self) -> None:
        self._cut = ()

    def __getattr__(self, name: str) -> object:
        value = getattr(self._store, name)
        if not callable(value) or name in ("close", "now"):
            return value

        def call(*arguments: object, **options: object) -> object:
            if self._cut is None or name in self._cut:
                self.calls += 1
                raise vk.StoreUnavailable("the store does not answer", "it is tried again")
            return value(*arguments, **options)

        return call


def open_gone(url: str = "memory:") -> tuple[Database, GoneStore]:
    """A database with a table `t` and a view `v` over a store that can go."""
    line = GoneStore(open_store(url))
    db = Database(line, read_only=False)
    db.execute(f"CREATE TABLE t (k INT PRIMARY KEY, x INT, y BIGINT); CREATE MATERIALIZED VIEW v AS {QUERY}")
    return db, line


def main(seconds: float) -> None:
    db, line = open_gone()
    written, refused, stopping = 0, 0, threading.Event()

    def write() -> None:
        nonlocal written, refused
        while not stopping.wait(0.02):
            try:
                db.table("t").put(written % 50, {"x": written % 7, "y": written})
                written += 1
            except vk.StoreUnavailable:
                refused += 1

    with db.pipeline() as pipeline:
        pipeline.start()
        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(2)
        line.go()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.5)
            pipeline.raise_failure()
        line.come_back()
        back, goal = time.monotonic(), db.store.ends()
        while db.status().lag_changes and not _covers(db.store.read_epoch_record().positions, goal):
            time.sleep(0.005)
        resumed = time.monotonic() - back
        time.sleep(1)
        stopping.set()
        writer.join()
        pipeline.wait_for(db.table("t").put(0, {"x": 0, "y": 0}), timeout=60)
    same = sorted(map(tuple, db.execute("SELECT * FROM v").rows)) == sorted(map(tuple, db.execute(QUERY).rows))
    print(
        f"without a store for {seconds:.0f} s: {line.calls} calls unanswered, {refused} writes refused, {written} written;"
        f" caught up {resumed:.2f} s after its return; view {'equal to' if same else 'DIFFERENT FROM'} its recomputation"
    )


def _covers(positions: dict[str, int], goal: dict[str, int]) -> bool:
    return all(positions.get(stream, 0) >= end for stream, end in goal.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    main(parser.parse_args().seconds)
