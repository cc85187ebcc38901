"""Runners: an epoch on the driver, or as one Spark job.

In: the plan and the epoch in flight. Out: nothing, once every receipt is in hand. Always: both run `views.program` over
the stored ranges; they may be mixed between a run and its re-run, and the number of managers may change between epochs.
While Spark is starting, the driver does what it can do in about that time; over a store that no other process reaches it
does all.
"""

from __future__ import annotations

from functools import partial

from viewkeeper.engine.failures import translate
from viewkeeper.engine.starting import StartingSession
from viewkeeper.flow.coordinator import require_receipts
from viewkeeper.flow.ring import owners_of_places
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.fills import Chunk
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.views.program import levels_of, run_here
from viewkeeper.views.units import plan_units

# Below this many changes, times the plan's nodes, a job's own overhead is larger than the work. One process does about a
# million of them in a second, and a job costs about half a second before it does any.
SMALL_EPOCH_WORK = 100_000
# One process has done this much, of one epoch or of many, in about the time and at the price of a start of Spark: what is
# less is not worth it, and beside a JVM that starts it would only take longer.
MEANWHILE_WORK = 10_000_000


class SparkRunner:
    """Small epochs here, large ones as a Spark job with a task for each view manager."""

    def __init__(
        self,
        store: Store,
        session: StartingSession,
        *,
        view_managers: int,
        small_work: int = SMALL_EPOCH_WORK,
        meanwhile_work: int = MEANWHILE_WORK,
    ) -> None:
        self._store = store
        self._is_bound_here = not store.capabilities.many_processes
        self._session = session
        self._small_work, self._meanwhile_work = small_work, meanwhile_work
        self._work_here = 0
        self.view_managers = view_managers

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> None:
        changes = epoch.stop.changes if plan.reads_log(epoch.chunks) else 0
        work = changes * (len(plan.nodes) + len(plan.deltas)) + sum(c.rows * _feeds(plan, c) for c in epoch.chunks)
        try:
            if self._is_bound_here or work <= self._small_work or self._is_better_here(work):
                run_here(self._store, plan, epoch)
            else:
                self._run_job(plan, epoch)
        except Exception as error:
            told = translate(error, epoch.epoch)
            raise told from (None if told is error else error)

    def _is_better_here(self, work: int) -> bool:
        """Whether Spark is not there yet, and would hardly be before the work is done without it.

        It is started when epochs have come to more work than a start is worth: more is to come, then.
        """
        self._work_here += work
        if self._work_here > self._meanwhile_work:
            self._session.begin()
        return work <= self._meanwhile_work and not self._session.is_ready

    def _run_job(self, plan: PhysicalPlan, epoch: Inflight) -> None:
        from viewkeeper.engine.tasks import BLOCKS_SCHEMA, RECEIPTS_SCHEMA, EpochTask  # with PySpark

        managers = self.view_managers
        owners = tuple(owners_of_places(self._store.places, managers))
        units = tuple(plan_units(self._store, plan, epoch, pieces=managers))
        task = EpochTask(self._store.url, self._store.incarnation, plan, epoch, units, owners)
        numbers = self._session.for_epochs().range(0, len(units), 1, max(1, min(len(units), 2 * managers)))
        blocks = numbers.mapInArrow(task.read, BLOCKS_SCHEMA).repartitionById(managers, "manager")
        for level in levels_of(plan)[:-1]:
            blocks = blocks.mapInArrow(partial(task.settle, level), BLOCKS_SCHEMA).repartitionById(managers, "manager")
        receipts = blocks.mapInArrow(task.apply, RECEIPTS_SCHEMA)
        got = [(row["manager"], row["units"]) for row in receipts.collect()]
        require_receipts(task.acknowledgements(), range(managers), got)


def _feeds(plan: PhysicalPlan, chunk: Chunk) -> int:
    return sum(plan.nodes[number].backfill in chunk.tables for number, _ in plan.readers(chunk.source))
