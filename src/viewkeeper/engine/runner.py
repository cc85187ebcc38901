"""Runners: an epoch on the driver, or as one Spark job.

In: the plan and the epoch in flight. Out: counts, once every receipt has arrived. Always: both run `operators.program`
over the stored ranges; they may be mixed between a run and its re-run, and the number of managers may change between
epochs. While Spark is starting, the driver does what it can do in about that time; over a store that no other process
reaches it does all. Large work of the store's own is a job too, if Spark is up. What a job fails of that is no fault of its
epoch, a session that is lost or workers that lack what tasks need, is raised as that, and the epoch stays in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from viewkeeper.coordinator.balance import Balance
from viewkeeper.coordinator.ring import owners_of_shards
from viewkeeper.engine.failures import is_late_worker, translate
from viewkeeper.engine.pace import Pace
from viewkeeper.engine.progress import job_watched
from viewkeeper.engine.starting import StartingSession
from viewkeeper.errors import EpochFailed
from viewkeeper.events import Working
from viewkeeper.model.counts import Counts
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.fills import Chunk
from viewkeeper.operators.exchange import run_here
from viewkeeper.operators.program import EpochProgram
from viewkeeper.operators.receipts import require_all, rows_of_all
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.spread import Opened, Piece
from viewkeeper.ports.store import Store
from viewkeeper.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRunner:
    """Small epochs here, large ones as a Spark job with a task for each view manager."""

    def __init__(
        self,
        store: Store,
        session: StartingSession,
        *,
        view_managers: int,
        settings: EngineSettings | None = None,
        tell: Callable[[Working], None] = lambda event: None,
    ) -> None:
        self._store = store
        self._tell = tell
        self._is_bound_here = not store.capabilities.many_processes
        self._session = session
        self.settings = settings or EngineSettings()
        self._work_here = 0
        self._pace = Pace()
        self._balance = Balance()
        self.view_managers = view_managers

    def scale(self, managers: int) -> None:
        self.view_managers = managers

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        work = _work_of(self._store, plan, epoch)
        if self._is_bound_here or self._is_small(work) or self._is_better_here(work):
            return self._run_here(plan, epoch, work)
        session = self._session.for_epochs()
        began = time.monotonic()
        try:
            counts = self._run_job(session, plan, epoch)
        except Exception as error:
            if is_late_worker(error) and work <= self.settings.meanwhile_work:
                return self._run_here(plan, epoch, work)
            told = translate(error, epoch.epoch, session)
            raise told from (None if told is error else error)
        self._pace.was_job(work, self.view_managers, time.monotonic() - began)
        return counts

    def _run_here(self, plan: PhysicalPlan, epoch: Inflight, work: int) -> Counts:
        began = time.monotonic()
        try:
            counts = run_here(self._store, plan, epoch, self.settings.work, self._tell)
        except Exception as error:
            told = translate(error, epoch.epoch)
            raise told from (None if told is error else error)
        self._pace.was_here(work, time.monotonic() - began)
        return counts

    def spread(
        self, work: Callable[[Opened, Piece], bytes], pieces: Sequence[Piece], *, rows: int = 0, log_bytes: int = 0
    ) -> list[bytes] | None:
        """The port `Spread`. It needs no Spark, so it starts none, and a job that failed is no failure."""
        is_large = rows > self.settings.spread_above_rows or log_bytes > self.settings.spread_above_log_bytes
        if self._is_bound_here or not is_large or len(pieces) < 2 or not self._session.is_up:
            return None
        from viewkeeper.engine.spreading import spread_job  # with PySpark

        session = self._session.for_epochs()
        try:
            return spread_job(session, self._store, work, pieces)
        except Exception as error:
            told = translate(error, 0, session)
            if isinstance(told, EpochFailed):
                return None
            raise told from (None if told is error else error)

    def _run_job(self, session: SparkSession, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        from viewkeeper.engine.exchange import SparkExchange  # with PySpark

        owners = owners_of_shards(self._store.partitions, self.view_managers)
        divided = self._balance.divided(owners)
        program = EpochProgram.of(self._store, plan, epoch, owners, self.settings.work, divided=divided)
        with job_watched(session, lambda done, tasks: self._tell(Working(epoch.epoch, done, tasks))):
            got = list(SparkExchange(session, self._store).run(program))
        counts = require_all(program.tasks, got)
        self._balance = self._balance.after(len(owners), rows_of_all(got))
        return counts

    def _is_small(self, work: int) -> bool:
        return work <= self.settings.small_work_max and self._pace.is_better_here(work, self.view_managers)

    def _is_better_here(self, work: int) -> bool:
        """Whether Spark is not ready yet, and would hardly be before the work is done without it.

        It is started when epochs have added up to more work than a start is worth: then more is to be expected.
        """
        self._work_here += work
        if self._work_here > self.settings.meanwhile_work:
            self._session.begin()
        return work <= self.settings.meanwhile_work and not self._session.is_ready


def _work_of(store: Store, plan: PhysicalPlan, epoch: Inflight) -> int:
    if plan.repairs:
        record = store.read_epoch_record()
        return sum(record.size(node.table).records + record.size(node.twin).records for node in plan.repairs)
    changes = epoch.stop.changes if plan.reads_log(epoch.chunks) else 0
    return changes * (len(plan.nodes) + len(plan.deltas)) + sum(c.rows * _edges(plan, c) for c in epoch.chunks)


def _edges(plan: PhysicalPlan, chunk: Chunk) -> int:
    return sum(node.backfill in chunk.tables for node, _ in plan.readers(chunk.source))
