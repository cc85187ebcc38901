"""Live runs: a pipeline that is watched while a load goes on.

In: a store's URL, and who does the work. Out: when each epoch was committed, and with how many changes; figures by the
second. Always: moments are those of the system's monotonic clock, which all processes share; a run ends with all that was
written in the views.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

import viewkeeper as vk
from benchmarks.live_load import LiveLoad
from benchmarks.options import Options
from viewkeeper.engine.spark_session import DAEMON
from viewkeeper.events import Committed, Event
from viewkeeper.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.pipeline import Pipeline

CHANGES_PER_EPOCH = 50_000
EPOCHS_AHEAD = 2
WARM_UP_EPOCHS = 3
_STEP_ROWS = 2_000
_PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.01
_EVENLY_SECONDS = 2.0


@dataclass(slots=True)
class Commits:
    """When epochs were committed, and how many changes each had."""

    moments: list[float] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)

    def listen(self, event: Event) -> None:
        if isinstance(event, Committed):
            self.moments.append(time.monotonic())
            self.changes.append(event.changes)

    def wait_for(self, epochs: int) -> None:
        """Return when so many more are committed: the first ones of a run warm it up."""
        goal, patience = len(self.moments) + epochs, time.monotonic() + _PATIENCE_SECONDS
        while len(self.moments) < goal:
            if time.monotonic() > patience:
                raise RuntimeError(f"fewer than {epochs} epochs in {_PATIENCE_SECONDS} s")
            time.sleep(_POLL_SECONDS)


def load_of(options: Options) -> LiveLoad:
    return LiveLoad(options.live_rows, min(_STEP_ROWS, options.live_rows // 10), options.seed)


def size_of(options: Options) -> int:
    return options.changes_per_epoch or min(CHANGES_PER_EPOCH, options.live_rows)


def reader_arguments(url: str, options: Options, kind: str) -> tuple[object, ...]:
    load = load_of(options)
    return "live_reader", url, kind, load.rows, load.step_rows, load.seed


def writer_arguments(url: str, options: Options, *, rate: float = 0.0) -> tuple[object, ...]:
    load = load_of(options)
    return "live_writer", url, load.rows, load.step_rows, load.seed, EPOCHS_AHEAD * size_of(options), rate


@contextmanager
def running(
    url: str, options: Options, *, view_managers: int, spark: SparkSession | None = None
) -> Iterator[tuple[Pipeline, Commits]]:
    """A pipeline that runs while the block does, and has caught up after it.

    With a session given every epoch is a Spark job, so that it is the managers who work.
    """
    commits, size = Commits(), size_of(options)
    with vk.connect(url) as db:
        with db.pipeline(
            spark=spark,
            view_managers=view_managers,
            changes_per_epoch=size,
            events=commits.listen,
            settings=None if spark is None else EngineSettings(small_work_max=0, meanwhile_work=0),
        ) as pipeline:
            is_over = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                work = pool.submit(_run_until, pipeline, is_over)
                try:
                    yield pipeline, commits
                finally:
                    is_over.set()
                work.result()
            pipeline.run_available()


def _run_until(pipeline: Pipeline, is_over: threading.Event) -> None:
    while not is_over.is_set():
        if not pipeline.run_available():
            is_over.wait(_POLL_SECONDS)


def session_with(slots: int) -> SparkSession:
    """A Spark with so many tasks at once, whatever the machine has: each manager has a worker of its own."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(f"local[{slots},8]")
        .appName("viewkeeper benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.python.daemon.module", DAEMON)
        .config("spark.python.factory.idleWorkerMaxPoolSize", str(slots))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def by_second(moments: Sequence[float], amounts: Sequence[int], began: float, seconds: float) -> list[int]:
    """How much was done in each whole second from `began` on.

    What is told at once was done evenly since the time before, but in no more than two seconds: a longer time is a pause.
    """
    borders, told, ends = began + np.arange(int(seconds) + 1), np.asarray(moments), np.cumsum(amounts)
    starts = np.maximum(told - _EVENLY_SECONDS, np.concatenate([told[:1], told[:-1]]))
    before = np.concatenate([ends[:1], ends[:-1]])
    done = np.interp(borders, np.stack([starts, told], 1).ravel(), np.stack([before, ends], 1).ravel())
    return np.diff(done).round().astype(int).tolist()


def longest_pause(moments: Sequence[float], began: float, ended: float) -> float:
    """The longest time without an epoch committed."""
    inside = [began, *(moment for moment in moments if began < moment < ended), ended]
    return round(float(np.diff(inside).max()), 2)
