"""The program of an epoch: its tasks, what each of them does, and how they run in this process.

In: the plan, the epoch in flight and a store. Out: messages for the next stage, receipts at the end. Always: the same
wherever the tasks run, with any number of managers; only the stored ranges are read (R9). Splits are read first; then the
plan's nodes are applied stage by stage, and a stage's output goes to the managers that own it. A task starts when all
tasks of the previous stage have ended, and gets all messages to its manager.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from viewkeeper.errors import InvariantBroken
from viewkeeper.events import Working
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.keybatches import hash_all
from viewkeeper.model.varbinary import VarBinary
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.apply import Applier
from viewkeeper.operators.duck import forget_relations
from viewkeeper.operators.inputs import DeltaCollector, Split, plan_splits, read_split
from viewkeeper.operators.messages import Channel, Input, Message
from viewkeeper.operators.operator import attribute_errors_to
from viewkeeper.operators.receipts import Failure, Receipt, Task, require_all
from viewkeeper.operators.registry import OPERATORS
from viewkeeper.plan.nodes import AppliedNode, DeltaNode, Node, RepairNode, TopNode
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.settings import WorkSettings

OpenStore = Callable[[], Store]


@dataclass(frozen=True, slots=True)
class EpochProgram:
    """The tasks of one epoch. It travels to executors by value."""

    plan: PhysicalPlan
    epoch: Inflight
    splits: tuple[Split, ...]
    owners: tuple[int, ...]  # the manager of each shard
    settings: WorkSettings
    divided: frozenset[int] = frozenset()  # shards whose keys are shared out among all managers

    @staticmethod
    def of(
        store: Store,
        plan: PhysicalPlan,
        epoch: Inflight,
        owners: Sequence[int],
        settings: WorkSettings,
        *,
        divided: frozenset[int] = frozenset(),
    ) -> EpochProgram:
        splits = plan_splits(store, plan, epoch, pieces=max(owners) + 1, partitions=store.partitions)
        return EpochProgram(plan, epoch, tuple(splits), tuple(owners), settings, divided)

    @property
    def managers(self) -> int:
        return max(self.owners) + 1

    @property
    def stages(self) -> tuple[tuple[AppliedNode, ...], ...]:
        """The nodes that are applied together, from stage 1 on; stage 0 reads."""
        return self.plan.stages or ((),)

    @property
    def tasks(self) -> list[Task]:
        """The tasks whose receipts are required (R18a)."""
        applied = (Task(stage, m) for stage in range(1, len(self.stages) + 1) for m in range(self.managers))
        return [*(Task(0, split.number) for split in self.splits), *applied]

    def read(self, open_store: OpenStore, split: Split) -> Iterator[Message]:
        """Read a split; yields the messages to each manager."""
        return self._guarded(self._read(open_store, split))

    def apply(self, open_store: OpenStore, stage: int, manager: int, messages: Iterable[Message]) -> Iterator[Message]:
        """One manager's share of a stage: turns the input of its nodes into the input of their readers."""
        return self._guarded(self._apply(open_store, stage, manager, messages))

    def _read(self, open_store: OpenStore, split: Split) -> Iterator[Message]:
        started = time.thread_time()
        inputs, counts = read_split(open_store(), self.plan, self.epoch, split, self.settings)
        counts = replace(counts, read_seconds=time.thread_time() - started)
        yield from self._addressed(inputs)
        del inputs
        failpoint("task.read")
        yield Message(split.number % self.managers, Receipt(Task(0, split.number), counts))

    def _apply(self, open_store: OpenStore, stage: int, manager: int, messages: Iterable[Message]) -> Iterator[Message]:
        inputs: list[Input] = []
        has_failed = False
        for message in messages:
            if isinstance(message.body, Input):
                inputs.append(message.body)
            else:
                has_failed |= isinstance(message.body, Failure)
                yield message
        if has_failed:
            return
        started = time.thread_time()
        nodes = self.stages[stage - 1]
        owned = tuple(owner == manager or shard in self.divided for shard, owner in enumerate(self.owners))
        part = StagePart(open_store(), self.plan, self.epoch, nodes, owned, self.settings)
        for given in part.apply(inputs):
            if given and stage == len(self.stages):
                raise InvariantBroken("the last stage gave something to one after it")
            yield from self._addressed(given)
        counts = replace(part.counts, apply_seconds=time.thread_time() - started)
        by_keys = {node.table for node in nodes} - _undivided(self.plan.nodes)
        rows = rows_by_shard((one for one in inputs if one.table in by_keys), len(self.owners))
        del inputs, part
        failpoint("task.applied")
        yield Message(manager, Receipt(Task(stage, manager), counts, rows))

    def _guarded(self, messages: Iterator[Message]) -> Iterator[Message]:
        """The messages; if an error ends them early, every manager is notified."""
        try:
            yield from messages
        except Exception as error:
            failure = Failure.of(error, self.epoch.epoch)
            yield from (Message(manager, failure) for manager in range(self.managers))

    def _addressed(self, inputs: Iterable[Input]) -> Iterator[Message]:
        whole = _undivided(self.plan.nodes)
        for table, channel, rows in inputs:
            divided = frozenset() if table in whole else self.divided
            for manager, mine in split_by_manager(rows, self.owners, divided):
                yield Message(manager, Input(table, channel, mine))


@dataclass(slots=True)
class StagePart:
    """One manager's share of a stage: inputs in, inputs of later stages out, and counts of what was done."""

    store: Store
    plan: PhysicalPlan
    epoch: Inflight
    nodes: Sequence[AppliedNode]
    owned: tuple[bool, ...]  # of all shards, those of the manager
    settings: WorkSettings
    counts: Counts = field(default_factory=Counts)

    def apply(self, inputs: Sequence[Input]) -> Iterator[list[Input]]:
        """Apply the stage's nodes; yields inputs of later stages, in pieces. Writes only once all are consumed."""
        mine = {node.table for node in self.nodes}
        yield [one for one in inputs if one.table not in mine]
        collector = DeltaCollector(self.plan, self.epoch, self.settings)
        applier = Applier(self.store, self.owned, self.epoch, self.settings)
        for node in self.nodes:
            given = sorted((one for one in inputs if one.table == node.table), key=lambda one: one.channel)
            channels = {kind: [one.rows for one in some] for kind, some in groupby(given, lambda one: one.channel)}
            if channels:
                applier.store.add_input(node.table, sum(len(one.rows) for one in given))
                stops = node.twin if isinstance(node, RepairNode) else node.table
                with nullcontext() if isinstance(node, DeltaNode) else attribute_errors_to(stops):
                    yield from self._apply_node(applier, node, channels, collector)
        yield collector.inputs()
        forget_relations()
        applier.write()
        self.counts = applier.store.counts
        failpoint("stage.applied")

    def _apply_node(
        self, applier: Applier, node: AppliedNode, channels: dict[Channel, list[pa.Table]], collector: DeltaCollector
    ) -> Iterator[list[Input]]:
        operator, count = OPERATORS[type(node)](self.settings), self.store.partitions
        whole = {channel: operator.combine(node, channel, tables, count) for channel, tables in channels.items()}
        for channel, events in whole.items():
            if channel.kind == "aside" and not isinstance(node, (DeltaNode, RepairNode)):
                applier.put_events(node.edges[channel.number].aside or 0, events)
        for given in operator.apply(applier, node, whole):
            collector.add_output(node, given)
            if collector.rows >= self.settings.rows_handed_on:
                yield collector.inputs()


def split_by_manager(
    table: pa.Table, owners: Sequence[int], divided: frozenset[int] = frozenset()
) -> Iterator[tuple[int, pa.Table]]:
    """A channel's input by the manager that owns each record's shard; `owners[shard]` is a manager.

    In a divided shard each key has a manager, by its group or join key if it has one: so all of a group meets.
    """
    if max(owners) == 0:
        if len(table):
            yield 0, table
        return
    shards = np.asarray(table["hash"]) % len(owners)
    managers = np.asarray(owners)[shards]
    if divided and (chosen := np.flatnonzero(np.isin(shards, list(divided)))).size:
        # the remainder is the shard itself where a key has one part
        managers[chosen] = hashes_of_units(table.take(pa.array(chosen))) // len(owners) % (max(owners) + 1)
    for manager in np.unique(managers):
        yield int(manager), table.filter(pa.array(managers == manager))


def hashes_of_units(table: pa.Table) -> np.ndarray:
    """For each row of a channel's input the hash of its group or join key (`size` bytes of the key), or of its key."""
    keys = VarBinary.from_arrow(table["key"])
    if "size" in table.column_names:
        keys = keys.cut(np.zeros(len(keys), np.int64), np.asarray(table["size"]).astype(np.int64))
    return hash_all(keys)


def rows_by_shard(inputs: Iterable[Input], shards: int) -> dict[int, int]:
    found = np.zeros(shards, np.int64)
    for one in inputs:
        found += np.bincount(np.asarray(one.rows["hash"]) % shards, minlength=shards)
    return {int(shard): int(found[shard]) for shard in np.flatnonzero(found)}


def _undivided(nodes: Iterable[Node]) -> set[int]:
    """The tables of nodes whose records are neighbours by their order, whatever their keys."""
    return {node.table for node in nodes if isinstance(node, TopNode)}


class InProcess:
    """All tasks in this process, one after the other; messages are passed on unchanged. `tell` hears how many are done."""

    def __init__(self, store: Store, tell: Callable[[int], None] = lambda done: None) -> None:
        self._store, self._tell = store, tell
        self._done = 0

    def run(self, program: EpochProgram) -> Iterator[Receipt | Failure]:
        sent = self.carry(m for split in self.in_turn(program.splits) for m in program.read(lambda: self._store, split))
        for stage in range(1, len(program.stages) + 1):
            sent = self.carry(
                message
                for manager in self.in_turn(range(program.managers))
                for message in program.apply(lambda: self._store, stage, manager, (m for m in sent if m.to == manager))
            )
        yield from (message.body for message in sent if isinstance(message.body, (Receipt, Failure)))

    def carry(self, messages: Iterable[Message]) -> list[Message]:
        return list(messages)

    def in_turn(self, tasks: Iterable) -> Iterable:
        """Tasks in the order in which they run."""
        for task in tasks:
            yield task
            self._done += 1
            self._tell(self._done)


def run_in_process(
    store: Store,
    plan: PhysicalPlan,
    epoch: Inflight,
    settings: WorkSettings | None = None,
    tell: Callable[[Working], None] = lambda event: None,
) -> Counts:
    """The whole epoch in this process, as one manager that owns every partition; `tell` is called after each task."""
    program = EpochProgram.of(store, plan, epoch, [0] * store.partitions, settings or WorkSettings())
    tasks = program.tasks
    exchange = InProcess(store, lambda done: tell(Working(epoch.epoch, done, len(tasks))))
    return require_all(tasks, exchange.run(program))
