"""The pipeline in a process of its own: `python -m benchmarks.pipeline_process URL run|serve [options]`.

In: a store's URL; for `serve` also the end of the standard input, which stops it. Out: `ready`, then one line of JSON with
what was committed since. Always: it is the product's pipeline with its own Spark session; `serve` is ready when it has
committed an epoch, so there must be something to do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import viewkeeper as vk
from benchmarks import beside
from benchmarks.beside import READY, Process
from viewkeeper.events import Committed, Event

_PATIENCE_SECONDS = 120.0


def start(url: str, mode: str, *, view_managers: int, changes_per_epoch: int | None = None) -> Process:
    """Start the process; it has said `ready` when this returns."""
    return beside.start("pipeline_process", *_arguments(url, mode, view_managers, changes_per_epoch))


@contextmanager
def serving(url: str, *, view_managers: int, changes_per_epoch: int | None = None) -> Iterator[Process]:
    """A pipeline that keeps running while the block does."""
    arguments = _arguments(url, "serve", view_managers, changes_per_epoch)
    with beside.beside("pipeline_process", *arguments, stderr=subprocess.DEVNULL) as process:
        yield process


def _arguments(url: str, mode: str, view_managers: int, changes_per_epoch: int | None) -> list[object]:
    size = ["--changes-per-epoch", changes_per_epoch] if changes_per_epoch else []
    return [url, mode, "--view-managers", view_managers, *size]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("mode", choices=("run", "serve"))
    parser.add_argument("--view-managers", type=int, default=2)
    parser.add_argument("--changes-per-epoch", type=int)
    given = parser.parse_args(arguments)
    committed: list[Committed] = []
    at_work = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Committed):
            committed.append(event)
            at_work.set()

    with vk.connect(given.url) as db:
        size = given.changes_per_epoch
        with db.pipeline(view_managers=given.view_managers, changes_per_epoch=size, events=listen) as pipeline:
            if given.mode == "run":
                print(READY, flush=True)
                pipeline.run_available()
            else:
                pipeline.start()
                if not at_work.wait(_PATIENCE_SECONDS):
                    pipeline.raise_failure()
                    raise RuntimeError(f"no epoch was committed in {_PATIENCE_SECONDS} s")
                committed.clear()
                print(READY, flush=True)
                sys.stdin.read()
                pipeline.raise_failure()
    print(
        json.dumps(
            {
                "epochs": len(committed),
                "changes": sum(epoch.changes for epoch in committed),
                "seconds": round(sum(epoch.seconds for epoch in committed), 3),
            }
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
