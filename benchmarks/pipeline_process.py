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
from dataclasses import dataclass, field
from typing import IO

import viewkeeper as vk
from benchmarks.results import ROOT
from viewkeeper.events import Committed, Event

READY = "ready"
_PATIENCE_SECONDS = 120.0


@dataclass(slots=True)
class Process:
    """A pipeline's process: its pid, and after it ended what it told."""

    started: subprocess.Popen[str]
    told: dict = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.started.pid

    def wait(self) -> dict:
        """What it told at its end; an error when it failed."""
        output, _ = self.started.communicate()
        if self.started.returncode:
            raise RuntimeError(f"the pipeline's process ended with {self.started.returncode}")
        self.told = json.loads(output.splitlines()[-1])
        return self.told


def start(url: str, mode: str, *, view_managers: int, changes_per_epoch: int | None = None) -> Process:
    """Start the process; it has said `ready` when this returns."""
    command = [sys.executable, "-m", "benchmarks.pipeline_process", url, mode, "--view-managers", str(view_managers)]
    command += ["--changes-per-epoch", str(changes_per_epoch)] if changes_per_epoch else []
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    started = subprocess.Popen(command, text=True, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=nowhere)
    _await_ready(started.stdout)
    return Process(started)


@contextmanager
def serving(url: str, *, view_managers: int, changes_per_epoch: int | None = None) -> Iterator[Process]:
    """A pipeline that keeps running while the block does."""
    process = start(url, "serve", view_managers=view_managers, changes_per_epoch=changes_per_epoch)
    try:
        yield process
        process.wait()
    finally:
        if process.started.poll() is None:
            process.started.kill()
            process.started.wait()


def _await_ready(output: IO[str] | None) -> None:
    for line in output or ():
        if line.strip() == READY:
            return
    raise RuntimeError("the pipeline's process ended before it was ready")


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
