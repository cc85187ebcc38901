"""Running epochs without a JVM: the work of `engine`, in this process.

In: a store. Out: runners for the coordinator. Always: the same functions of `views.program` in the same order as in
`engine.runner` and `engine.tasks`; blocks cross a border of bytes, as they would in a shuffle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from viewkeeper.engine.blocks import from_block, in_pieces, to_block
from viewkeeper.flow.coordinator import Coordinator, require_receipts
from viewkeeper.flow.filling import plan_chunks
from viewkeeper.flow.ring import owners_of_places
from viewkeeper.model import epochs
from viewkeeper.model.epochs import Inflight
from viewkeeper.plan.catalog import Catalog
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.plan.planner import physical_plan
from viewkeeper.views.inputs import read_unit
from viewkeeper.views.program import Level, apply_inputs, levels_of, run_here, split_by_manager
from viewkeeper.views.units import plan_units

if TYPE_CHECKING:
    from viewkeeper.client.database import Database
    from viewkeeper.stores.embedded.store import EmbeddedStore

Run = Callable[[PhysicalPlan, Inflight], object]


class HereRunner:
    """A small epoch: on the driver, as one manager that owns every place."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> None:
        run_here(self._store, plan, epoch)


class ManagersRunner:
    """A large epoch: several managers, whose blocks arrive in the order that `seed` shuffles them to, or `arrange`."""

    def __init__(
        self, store: EmbeddedStore, managers: int, seed: float = 0, arrange: Callable[[list], list] | None = None
    ) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._arrange = arrange
        self.managers = managers

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> None:
        owners = owners_of_places(self._store.places, self.managers)
        units = plan_units(self._store, plan, epoch, pieces=self.managers)
        blocks, reached = [], []
        for unit in self._shuffled(units):
            blocks += self._blocks(read_unit(self._store, plan, epoch, unit), owners)
            reached.append((unit.number % self.managers, unit.number))
        for level in levels_of(plan)[:-1]:
            handed_on = []
            for _, mine, owned in self._by_manager(blocks, owners):
                for piece in Level(self._store, plan, epoch, level, owned).settle(mine):
                    handed_on += self._blocks(piece, owners)
            blocks = handed_on
        got = []
        for manager, mine, owned in self._by_manager(blocks, owners):
            apply_inputs(self._store, plan, epoch, mine, owned)
            got.append((manager, [unit for owner, unit in reached if owner == manager]))
        require_receipts([unit.number for unit in units], range(self.managers), got)

    def _blocks(self, inputs: list, owners: list[int]) -> list:
        return [
            (owner, node, part, to_block(piece))
            for node, part, table in inputs
            for owner, whole in split_by_manager(table, owners)
            for piece in in_pieces(whole, bytes_max=1_000)  # many, where there is more than a little
        ]

    def _by_manager(self, blocks: list, owners: list[int]) -> Iterator[tuple[int, list, frozenset[int]]]:
        for manager in self._shuffled(range(self.managers)):
            mine = [(node, part, from_block(b)) for owner, node, part, b in self._shuffled(blocks) if owner == manager]
            yield manager, mine, frozenset(place for place, owner in enumerate(owners) if owner == manager)

    def _shuffled(self, items: object) -> list:
        shuffled = list(items)
        if self._arrange:
            return self._arrange(shuffled)
        self._random.shuffle(shuffled)
        return shuffled


class Interrupted(Exception):
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


def keep_up(database: Database, *, changes_max: int = 1_000_000) -> Coordinator:
    """Bring all views up to what is written, by a coordinator that is handed back."""
    coordinator = Coordinator(database.store, HereRunner(database.store), changes_max=changes_max)
    coordinator.catch_up()
    return coordinator


def begin_epoch(store: EmbeddedStore, *, owner: str = "test", changes_max: int = 1_000_000) -> Inflight:
    """Take over, begin the next epoch and raise the fences, as a coordinator does before it runs it."""
    record = epochs.take_over(store.read_epoch_record(), owner)
    assert store.swap_epoch_record(record.version - 1, record)
    plan = physical_plan(Catalog.from_json(store.read_catalog()))
    stop = store.cut(record.positions, changes_max=changes_max, bytes_max=1 << 40)
    store.keep_plan(plan.digest, plan.to_json())
    begun = epochs.begin(record, owner, stop, plan.digest, plan_chunks(store, plan, record))
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
    return PhysicalPlan.from_json(store.read_plan(epoch.plan))
