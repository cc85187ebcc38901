"""The runner: an epoch on the driver, or as one Spark job.

In: the plan and the epoch in flight, and where epochs are to run. Out: counts, once every receipt has arrived; where the
last epoch ran, and why; while a job runs, how many of its tasks are done. Always: both ways run `operators.program` over
the stored ranges; they may be mixed between a run and its re-run. With the engine `auto` the way that takes less time is
taken, as measured; while Spark is starting, the driver does what it can do in about that time. A session that is lost, or
workers that lack what tasks need, are no fault of the epoch, which stays in flight.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from viewkeeper.coordinator.view_managers import Balance, owners_of_shards
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.spark_errors import is_late_worker, translate_error
from viewkeeper.errors import EpochFailed
from viewkeeper.events import Where, Working
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.wording import counted
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.program import EpochProgram, run_in_process
from viewkeeper.operators.receipts import require_all, rows_of_all
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Opened, Piece, Store
from viewkeeper.settings import Engine, EngineSettings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_ENOUGH = 10_000  # an epoch of less work takes mostly what any epoch takes
_MEASURED = 8  # the newest that count
_JOB_SECONDS_MAX = 0.5  # the first jobs of a session take longer, which says nothing of the next


class RuntimeChoice:
    """Which of driver and job takes less time, by what the newest epochs took."""

    def __init__(self) -> None:
        self._units: deque[float] = deque([1e-6], _MEASURED)  # seconds for one unit of work
        self._jobs: deque[float] = deque([0.05], _MEASURED)  # seconds that a job takes besides its work

    def ran_on_driver(self, work: int, seconds: float) -> None:
        if work >= _ENOUGH:
            self._units.append(seconds / work)

    def ran_as_job(self, work: int, managers: int, seconds: float) -> None:
        own = seconds - work * self._unit / managers
        self._jobs.append(min(max(own, 0.0), _JOB_SECONDS_MAX))

    def is_faster_on_driver(self, work: int, managers: int) -> bool:
        """Whether the driver alone would be done with the work before a job is."""
        alone = work * self._unit
        return alone <= min(self._jobs) + alone / managers

    @property
    def _unit(self) -> float:
        return sorted(self._units)[len(self._units) // 2]


_LOOK_SECONDS = 1.0
_DESCRIPTION = "spark.job.description"


@contextmanager
def job_watched(
    session: SparkSession, name: str, tell: Callable[[int, int], None], *, look_seconds: float = _LOOK_SECONDS
) -> Iterator[None]:
    """Jobs that this thread runs within the block have that name, and `tell` gets how many tasks are done, of how many."""
    context, tag, ended = session.sparkContext, f"viewkeeper-{uuid.uuid4().hex}", threading.Event()
    before = context.getLocalProperty(_DESCRIPTION)

    def look() -> None:
        while not ended.wait(look_seconds):
            with suppress(Exception):
                tell(*_tasks(context, tag))

    context.addJobTag(tag)
    context.setLocalProperty(_DESCRIPTION, name)
    watcher = threading.Thread(target=look, name="viewkeeper-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        with suppress(Exception):  # the session may be gone, which the job tells
            context.removeJobTag(tag)
            context.setLocalProperty(_DESCRIPTION, before)


def _tasks(context: SparkContext, tag: str) -> tuple[int, int]:
    jobs = context._jsc.sc().statusTracker().getJobIdsForTag(tag)
    tracker = context.statusTracker()
    found = [tracker.getJobInfo(job) for job in jobs]
    stages = [tracker.getStageInfo(stage) for info in found if info is not None for stage in info.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


class SparkRunner:
    """Small epochs here, large ones as a Spark job with a task for each view manager, unless the engine is chosen."""

    def __init__(
        self,
        store: Store,
        session: LazySession,
        *,
        view_managers: int,
        engine: Engine = Engine.AUTO,
        settings: EngineSettings | None = None,
        tell: Callable[[Working], None] = lambda event: None,
    ) -> None:
        self._store = store
        self._tell = tell
        self._engine = engine
        self._is_bound_here = engine is Engine.DRIVER or not store.capabilities.many_processes
        self._session = session
        self._settings = settings or EngineSettings()
        self._work_in_process = 0
        self._pace = RuntimeChoice()
        self._balance = Balance()
        self.view_managers = view_managers
        self.where = Where()  # the last epoch ran

    def scale(self, managers: int) -> None:
        self.view_managers = managers

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        work = _work_of(self._store, plan, epoch)
        self.where = self._choose(work)
        if self.where.engine == Engine.DRIVER:
            return self._run_in_process(plan, epoch, work)
        session = self._session.for_epochs()
        began = time.monotonic()
        try:
            counts = self._run_job(session, plan, epoch)
        except Exception as error:
            if self._engine is Engine.AUTO and is_late_worker(error) and work <= self._settings.meanwhile_work:
                self.where = Where(reason="Spark's workers were late")
                return self._run_in_process(plan, epoch, work)
            told = translate_error(error, epoch.epoch, session)
            raise told from (None if told is error else error)
        self._pace.ran_as_job(work, self.view_managers, time.monotonic() - began)
        return counts

    def _run_in_process(self, plan: PhysicalPlan, epoch: Inflight, work: int) -> Counts:
        began = time.monotonic()
        try:
            counts = run_in_process(self._store, plan, epoch, self._settings.work, self._tell)
        except Exception as error:
            told = translate_error(error, epoch.epoch)
            raise told from (None if told is error else error)
        self._pace.ran_on_driver(work, time.monotonic() - began)
        return counts

    def spread(
        self, work: Callable[[Opened, Piece], bytes], pieces: Sequence[Piece], *, rows: int = 0, log_bytes: int = 0
    ) -> list[bytes] | None:
        """The port `Executor`. It needs no Spark, so it starts none, and a job that failed is no failure."""
        is_large = rows > self._settings.spread_above_rows or log_bytes > self._settings.spread_above_log_bytes
        if self._is_bound_here or not is_large or len(pieces) < 2 or not self._session.is_up:
            return None
        from viewkeeper.engine.jobs import run_pieces  # with PySpark

        session = self._session.for_epochs()
        try:
            return run_pieces(session, self._store, work, pieces)
        except Exception as error:
            told = translate_error(error, 0, session)
            if isinstance(told, EpochFailed):
                return None
            raise told from (None if told is error else error)

    def _run_job(self, session: SparkSession, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        from viewkeeper.engine.jobs import SparkExchange  # with PySpark

        owners = owners_of_shards(self._store.partitions, self.view_managers)
        divided = self._balance.divided(owners)
        program = EpochProgram.of(self._store, plan, epoch, owners, self._settings.work, divided=divided)
        with job_watched(session, _name_of(epoch), lambda done, tasks: self._tell(Working(epoch.epoch, done, tasks))):
            got = list(SparkExchange(session, self._store).run(program))
        counts = require_all(program.tasks, got)
        self._balance = self._balance.after(len(owners), rows_of_all(got))
        return counts

    def _choose(self, work: int) -> Where:
        """Where so much work is done.

        Where Spark is not ready yet, and would hardly be before the work is done without it, the driver does it. Spark is
        started when epochs have added up to more work than a start is worth: then more is to be expected.
        """
        if self._is_bound_here:
            is_asked = self._engine is Engine.DRIVER
            return Where(reason="asked for" if is_asked else "no other process reaches the store")
        if self._engine is Engine.SPARK:
            return Where("spark", "asked for")
        if work <= self._settings.small_work_max and self._pace.is_faster_on_driver(work, self.view_managers):
            return Where(reason="small")
        self._work_in_process += work
        if is_worth_it := self._work_in_process > self._settings.meanwhile_work:
            self._session.begin()
        if work <= self._settings.meanwhile_work and not self._session.is_ready:
            return Where(reason="Spark is starting" if is_worth_it else "not worth a start of Spark")
        return Where("spark", "large")


def _name_of(epoch: Inflight) -> str:
    """What Spark's UI shows as the description of its jobs."""
    rows = sum(chunk.rows for chunk in epoch.chunks)
    return f"epoch {epoch.epoch}: {counted(epoch.stop.changes, 'change')}" + (
        f", {counted(rows, 'row')} to fill views" if rows else ""
    )


def _work_of(store: Store, plan: PhysicalPlan, epoch: Inflight) -> int:
    if plan.repairs:
        record = store.read_epoch_record()
        return sum(record.size(node.table).records + record.size(node.twin).records for node in plan.repairs)
    changes = epoch.stop.changes if plan.reads_log(epoch.chunks) else 0
    fills = sum(c.rows for c in epoch.chunks for node, _ in plan.readers(c.source) if node.backfill in c.tables)
    return changes * (len(plan.nodes) + len(plan.deltas)) + fills
