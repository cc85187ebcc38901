"""Progress: how many of a job's tasks are done, while it runs.

In: a session, and who wants to know. Out: counts, about once a second, from a thread. Always: a job that is done sooner is
not looked at, and whatever goes wrong with looking is no failure of the job.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 1.0


@contextmanager
def job_watched(
    session: SparkSession, tell: Callable[[int, int], None], *, look_seconds: float = _LOOK_SECONDS
) -> Iterator[None]:
    """Tell `tell` of jobs that this thread runs within the block: so many tasks are done, of so many."""
    context, tag, ended = session.sparkContext, f"viewkeeper-{uuid.uuid4().hex}", threading.Event()

    def look() -> None:
        while not ended.wait(look_seconds):
            with suppress(Exception):
                tell(*_tasks(context, tag))

    context.addJobTag(tag)
    watcher = threading.Thread(target=look, name="viewkeeper-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        with suppress(Exception):  # the session may be gone, which the job tells
            context.removeJobTag(tag)


def _tasks(context: SparkContext, tag: str) -> tuple[int, int]:
    jobs = context._jsc.sc().statusTracker().getJobIdsForTag(tag)
    tracker = context.statusTracker()
    found = [tracker.getJobInfo(job) for job in jobs]
    stages = [tracker.getStageInfo(stage) for info in found if info is not None for stage in info.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
