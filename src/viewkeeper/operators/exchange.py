"""Exchange: carries messages between the tasks of an epoch.

In: an epoch's program. Out: the receipts of its tasks. Always: a message sent to a manager reaches that manager's task
of the next stage, whole; a task starts when all tasks of the previous stage have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from viewkeeper.events import Working
from viewkeeper.model.counts import Counts
from viewkeeper.model.epochs import Inflight
from viewkeeper.operators.messages import Message
from viewkeeper.operators.program import EpochProgram
from viewkeeper.operators.receipts import Failure, Receipt, require_all
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.settings import WorkSettings


class InProcess:
    """All tasks in this process, one after the other; messages are passed on unchanged."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self, program: EpochProgram) -> Iterator[Receipt | Failure]:
        """Run all tasks; yields their results."""
        sent = self.carry(m for split in self.in_turn(program.splits) for m in program.read(lambda: self._store, split))
        for stage in range(1, len(program.stages) + 1):
            sent = self.carry(
                message
                for manager in self.in_turn(range(program.managers))
                for message in program.apply(lambda: self._store, stage, manager, (m for m in sent if m.to == manager))
            )
        yield from (message.body for message in sent if isinstance(message.body, (Receipt, Failure)))

    def carry(self, messages: Iterable[Message]) -> list[Message]:
        """Pass messages on."""
        return list(messages)

    def in_turn(self, tasks: Iterable) -> Iterable:
        """Tasks in the order in which they run."""
        return tasks


class _Counted(InProcess):
    """The same, with a word after each task."""

    def __init__(self, store: Store, tell: Callable[[int], None]) -> None:
        super().__init__(store)
        self._tell = tell
        self._done = 0

    def in_turn(self, tasks: Iterable) -> Iterable:
        for task in tasks:
            yield task
            self._done += 1
            self._tell(self._done)


def run_here(
    store: Store,
    plan: PhysicalPlan,
    epoch: Inflight,
    settings: WorkSettings | None = None,
    tell: Callable[[Working], None] = lambda event: None,
) -> Counts:
    """The whole epoch in this process, as one manager that owns every partition; `tell` hears of each task that is done."""
    program = EpochProgram.of(store, plan, epoch, [0] * store.partitions, settings or WorkSettings())
    tasks = program.tasks
    exchange = _Counted(store, lambda done: tell(Working(epoch.epoch, done, len(tasks))))
    return require_all(tasks, exchange.run(program))
