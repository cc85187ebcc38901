"""Running epochs without a JVM: the work of `engine`, in this process.

In: a store. Out: runners for the coordinator. Always: the program that Spark runs, over another exchange.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.backfill import plan_chunks
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.view_managers import owners_of_shards
from viewkeeper.model import epochs
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.inputs import plan_splits, read_split
from viewkeeper.operators.messages import Input, Message, encode, from_batch, in_pieces, to_batch
from viewkeeper.operators.program import EpochProgram, InProcess, StagePart, run_in_process
from viewkeeper.operators.receipts import Receipt, require_all
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan
from viewkeeper.settings import EpochLimits, WorkSettings

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.stores.local.embedded_store import EmbeddedStore

Run = Callable[[PhysicalPlan, Inflight], object]


class HereRunner:
    """A small epoch: on the driver, as one manager that owns every partition."""

    def __init__(self, store: EmbeddedStore, settings: WorkSettings | None = None) -> None:
        self._store = store
        self._settings = settings

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        return run_in_process(self._store, plan, epoch, self._settings)


class ManagersRunner:
    """A large epoch: several managers, whose messages arrive in the order that `seed` shuffles them to, or `arrange`."""

    def __init__(
        self,
        store: EmbeddedStore,
        managers: int,
        seed: float = 0,
        arrange: Callable[[list], list] | None = None,
        settings: WorkSettings | None = None,
    ) -> None:
        self._store = store
        self._settings = settings or WorkSettings()
        self._exchange = ShuffledExchange(store, seed, arrange)
        self.managers = managers
        self.divided: frozenset[int] = frozenset()
        self.receipts: list[Receipt] = []  # of the last epoch

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        owners = owners_of_shards(self._store.partitions, self.managers)
        program = EpochProgram.of(self._store, plan, epoch, owners, self._settings, divided=self.divided)
        got = list(self._exchange.run(program))
        self.receipts = [one for one in got if isinstance(one, Receipt)]
        return require_all(program.tasks, got)


class ShuffledExchange(InProcess):
    """Messages cross a border of bytes, in small pieces, as they would in a shuffle; tasks run in any order."""

    def __init__(self, store: EmbeddedStore, seed: float, arrange: Callable[[list], list] | None) -> None:
        super().__init__(store)
        self._random = random.Random(seed)
        self._arrange = arrange

    def carry(self, messages: Iterable[Message]) -> list[Message]:
        rows = [encode(piece) for message in messages for piece in in_pieces(message, bytes_max=1_000)]
        return self.in_turn(from_batch(to_batch(rows)) if rows else ())

    def in_turn(self, tasks: Iterable) -> list:
        shuffled = list(tasks)
        if self._arrange:
            return self._arrange(shuffled)
        self._random.shuffle(shuffled)
        return shuffled


def inputs_of(store: EmbeddedStore, plan: PhysicalPlan, epoch: Inflight, *, pieces: int = 1) -> list[list[Input]]:
    """What each split of an epoch's input gives to the nodes."""
    return [
        read_split(store, plan, epoch, split, WorkSettings())[0]
        for split in plan_splits(store, plan, epoch, pieces=pieces)
    ]


def apply_inputs(
    store: EmbeddedStore, plan: PhysicalPlan, epoch: Inflight, inputs: Sequence[Input], owned: frozenset[int]
) -> int:
    """Apply the inputs of the only stage to the partitions in `owned`; returns how many records were written."""
    (nodes,) = plan.stages
    shards = tuple(partition in owned for partition in range(store.partitions))
    part = StagePart(store, plan, epoch, nodes, shards, WorkSettings())
    assert not any(list(part.apply(inputs)))
    return part.counts.records_written


class Interrupted(BaseException):
    """Thrown by a runner that was told to stop: the process 'died' there."""


class RunThenDie:
    """Does the epoch's work `times` times by way of another runner, then dies before any receipt is told."""

    def __init__(self, runner: HereRunner | ManagersRunner, times: int = 1) -> None:
        self._runner = runner
        self._times = times

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> None:
        for _ in range(self._times):
            self._runner.run(plan, epoch)
        raise Interrupted


def keep_up(database: Database, *, changes_max: int = 1_000_000, settings: WorkSettings | None = None) -> Coordinator:
    """Bring all views up to what is written, by a coordinator that is handed back."""
    coordinator = Coordinator(
        database.store, HereRunner(database.store, settings), limits=EpochLimits(changes=changes_max)
    )
    coordinator.catch_up()
    return coordinator


def begin_epoch(store: EmbeddedStore, *, owner: str = "test", changes_max: int = 1_000_000) -> Inflight:
    """Take over, begin the next epoch and raise the fences, as a coordinator does before it runs it."""
    record = epochs.take_over(store.read_epoch_record(), owner)
    assert store.swap_epoch_record(record.version - 1, record)
    plan = physical_plan(Catalog.from_json(store.read_catalog()))
    stop = store.cut(record.positions, changes_max=changes_max, bytes_max=1 << 40)
    store.keep_json("plan", plan.digest, plan.to_json())
    begun = epochs.begin(record, owner, stop, plan.digest, plan_chunks(store, plan, record, EpochLimits()))
    assert store.swap_epoch_record(record.version, begun)
    store.admit(begun.inflight)
    return begun.inflight


def commit_epoch(store: EmbeddedStore, epoch: Inflight, *, owner: str = "test") -> None:
    """Commit an epoch that `begin_epoch` began."""
    record = store.read_epoch_record()
    nodes = Catalog.from_json(store.read_catalog()).nodes
    tables = frozenset(number for node in nodes for number in (node.table, node.backfill))
    done = epochs.commit(record, owner, epoch.epoch, store.checksums(epoch.stop.positions), tables)
    assert store.swap_epoch_record(record.version, done)


def plan_of(store: EmbeddedStore, epoch: Inflight) -> PhysicalPlan:
    return PhysicalPlan.from_json(store.read_json("plan", epoch.plan))
