"""Beside: a process that works until its standard input ends, and then tells what it did.

In: a module of this package and its arguments; for the process itself, its standard input. Out: what it told, one line of
JSON. Always: it has said `ready` before anyone goes on, and it is gone afterwards.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.results import ROOT

READY = "ready"


@dataclass(slots=True)
class Process:
    """A process: its pid, and after it ended what it told."""

    started: subprocess.Popen[str]
    told: dict = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.started.pid

    def wait(self) -> dict:
        """What it told at its end; an error when it failed."""
        output, _ = self.started.communicate()
        if self.started.returncode:
            raise RuntimeError(f"{self.started.args} ended with {self.started.returncode}")
        self.told = json.loads(output.splitlines()[-1])
        return self.told


def start(module: str, *arguments: object, stderr: int | None = subprocess.DEVNULL) -> Process:
    """Start `benchmarks.module`; it has said `ready` when this returns."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    pipe = subprocess.PIPE
    process = Process(subprocess.Popen(command, text=True, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=stderr))
    for line in process.started.stdout or ():
        if line.strip() == READY:
            return process
    raise RuntimeError(f"{module} ended before it was ready")


@contextmanager
def beside(module: str, *arguments: object, stderr: int | None = None) -> Iterator[Process]:
    """Run `benchmarks.module` while the block does; `told` is known after it."""
    process = start(module, *arguments, stderr=stderr)
    try:
        yield process
        process.wait()
    finally:
        if process.started.poll() is None:
            process.started.kill()
            process.started.wait()


def until_told() -> threading.Event:
    """In the process itself: say that it is ready; the event is set when it is to end."""
    is_over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait, daemon=True).start()
    print(READY, flush=True)
    return is_over


def tell(figures: Mapping) -> None:
    """In the process itself: what it did."""
    print(json.dumps(figures), flush=True)
