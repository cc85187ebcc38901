"""Pipelines: coordinators that take over, run epochs and tidy up, while faults befall them.

In: the world and its faults. Out: committed epochs, or `Wrong`. Always: a pipeline that nobody took over from and that
nothing befell must not fail; tasks and runs of epochs are remembered, and some start again when nobody needs them any more.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.support.running import ShuffledExchange
from tests.support.simulation.faults import Crash, Faults
from tests.support.simulation.world import World, Wrong
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.coordinator.view_managers import owners_of_shards
from viewkeeper.errors import EpochTooLarge, StoreUnavailable, ViewKeeperError
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.messages import Message
from viewkeeper.operators.program import EpochProgram, InProcess, run_in_process
from viewkeeper.operators.receipts import require_all
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.settings import EpochLimits, GcSettings, WorkSettings

STEPS_MAX = 60  # of pipelines that a store which does not answer may end, one after the other
REMEMBERED_MAX = 40
TRIES_MAX = 5  # of a pipeline at one step
OpenStore = Callable[[], Store]
SMALL = WorkSettings(decoded_rows=2, side_rows=2, pairs=3, rows_handed_on=2)


@dataclass(frozen=True, slots=True)
class LateTask:
    """A task with all of its input in hand."""

    program: EpochProgram
    stage: int
    manager: int
    messages: tuple[Message, ...]


class Pipelines:
    """All that run epochs in one world."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world, self._faults = world, faults
        self._current: Coordinator | None = None  # the one that does something now
        self._again = random.Random(f"{world.seed} same coordinator")
        self.runs: list[tuple[PhysicalPlan, Inflight]] = []
        self.tasks: list[LateTask] = []

    # with faults

    def faulty(self, work: Callable[[], None], effect: str, *, sharp: bool = False, at: Sequence[str] = ()) -> None:
        """Do what a pipeline does, which may end, be stopped, or be told that another one took over."""
        outer, self._current = self._current, None
        if effect:
            self._faults.arm(effect, sharp=sharp, at=at)
        try:
            work()
        except Crash:
            pass
        except StoreUnavailable as error:
            if self._world.answers_always:
                raise Wrong(f"a store that always answers did not: {error!r}") from error
            self._world.note("pipelines without an answer")
        except ViewKeeperError as error:
            if self._current is None or self._current._state.owner == self._world.record().owner:
                raise Wrong(f"a pipeline that nobody took over from ended with {error!r}") from error
            self._world.note("zombies told", type(error).__name__)
        finally:
            self._faults.disarm()
            self._current = outer

    def epochs(self, count: int) -> None:
        """Epochs by a pipeline that takes over, as far as it comes."""
        draw = self._world.random
        limits = EpochLimits(changes=draw.choice((1, 3, 100)), rows=draw.choice((2, 6, 1_000)))
        fails = draw.random() < 0.06
        with self._world.process() as store:
            coordinator = self._taking_over(store, limits, fails=fails)
            for _ in range(count):
                self._step_on(coordinator)

    def _step_on(self, coordinator: Coordinator) -> None:
        """A step; some pipelines try again where the store does not answer, and what they asked for may be done by then."""
        for tries in itertools.count():
            try:
                coordinator.step()
                return
            except StoreUnavailable:
                if self._world.hbase is None or tries == TRIES_MAX or self._again.random() < 0.4:
                    raise
                self._world.note("pipelines that try again")
                self._world.hbase.pass_time(self._again.choice((0.1, 0.1, 2.0, self._again.uniform(0, 20))))

    def _taking_over(self, store: Store, limits: EpochLimits, *, fails: bool = False) -> Coordinator:
        """A coordinator that is known before it takes over."""
        coordinator = self._current = Coordinator.__new__(Coordinator)
        self._world.note("take-overs")
        clock = self._world.clock
        coordinator.__init__(store, Runner(self, store, fails=fails), limits=limits, clock=lambda: clock() / 1e9)
        return coordinator

    def tidy(self) -> None:
        """Remove what nobody needs; with the log at times."""
        self._world.note("tidied")
        kept = self._world.random.choice((0, 300, 300, 300))
        clock = self._world.clock
        with self._world.process() as store:
            collect_garbage(store, GcSettings(kept, seconds_max=math.inf), clock=lambda: clock() / 1e9)

    def start_late(self) -> None:
        """A run or a task starts that was forgotten, of an epoch below which nothing is left, if there is one."""
        floor, draw = self._world.record().floor, self._world.random
        if self.tasks and draw.random() < 0.5:
            old = [task for task in self.tasks if floor - 1 <= task.program.epoch.epoch <= floor]
            task = draw.choice(old or self.tasks)
            self._world.note("late tasks", task.program.epoch.epoch, task.stage, task.manager)
            self._wake(task)
        elif self.runs:
            below = [(plan, epoch) for plan, epoch in self.runs if floor - 1 <= epoch.epoch <= floor]
            plan, epoch = draw.choice(below or self.runs)
            self._world.note("late runs", epoch.epoch)
            with contextlib.suppress(ViewKeeperError), self._world.process() as store:
                run_in_process(store, plan, epoch)

    def _wake(self, task: LateTask) -> None:
        with self._world.process() as store:
            list(task.program.apply(lambda: store, task.stage, task.manager, iter(task.messages)))

    def wake_newest(self) -> None:
        """Tasks of the newest epoch start again, though it is committed."""
        newest = self._world.record().last
        for task in [task for task in self.tasks if task.program.epoch.epoch == newest]:
            self._world.note("late tasks", newest, task.stage, task.manager)
            with contextlib.suppress(ViewKeeperError):
                self._wake(task)

    # without

    def go_on(self, write: Callable[[], None], epochs: int) -> None:
        """That many epochs by pipelines that nothing befalls, then what nobody needs any more goes."""
        for _ in range(epochs):
            write()
            self.retry(self._step)
        self.retry(self.tidy)

    def _step(self) -> None:
        with self._world.process() as store:
            self._taking_over(store, EpochLimits()).step()

    def finish(self) -> int:
        """Commit everything that is written, and fill every view; how many steps that took."""
        done = 0

        def step_on() -> None:
            nonlocal done
            with self._world.process() as store:
                coordinator, goal = self._taking_over(store, EpochLimits()), self._world.store.ends()
                while not coordinator.has_reached(goal):
                    if (done := done + 1) > STEPS_MAX:
                        raise Wrong(f"not everything was committed after {STEPS_MAX} steps: {self._world.record()}")
                    coordinator.step()

        self.retry(step_on)
        return done

    def retry(self, work: Callable[[], object]) -> None:
        """Until the store answers."""
        outer = self._current
        for _ in range(STEPS_MAX):
            try:
                work()
                return
            except StoreUnavailable:
                self._world.note("pipelines without an answer")
            except ViewKeeperError as error:
                raise Wrong(f"a pipeline that nothing befell ended with {error!r}") from error
            finally:
                self._current = outer
        raise Wrong("the store never answered")

    def running(self) -> contextlib.AbstractContextManager[World]:
        """While a run is under way, tasks may get lost."""

        @contextlib.contextmanager
        def entered() -> Iterator[World]:
            self._faults.running += 1
            try:
                yield self._world
            finally:
                self._faults.running -= 1

        return entered()


class Runner:
    """Runs epochs by managers whose number changes, in any order, with twins of tasks; may find an epoch too large."""

    def __init__(self, pipelines: Pipelines, store: Store, *, fails: bool = False) -> None:
        self._pipelines, self._store, self._fails = pipelines, store, fails

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        with self._pipelines.running() as world:
            runs = self._pipelines.runs
            world.note("re-runs" if any(known.epoch == epoch.epoch for _, known in runs) else "runs", epoch.epoch)
            runs.append((plan, epoch))
            del runs[:-REMEMBERED_MAX]
            done = self._run(world, plan, epoch)
            if self._fails and plan.nodes:
                self._fails = False
                world.note("void epochs", epoch.epoch)
                raise EpochTooLarge(plan.nodes[0].table, "drawn")
            return done

    def _run(self, world: World, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        store, managers = self._store, world.random.choice((0, 0, 1, 3, 11))
        settings = SMALL if world.chance(0.3) else WorkSettings()
        owners = owners_of_shards(store.partitions, managers) if managers else [0] * store.partitions
        divided = frozenset(shard for shard in range(len(owners)) if managers and epoch.epoch >> shard % 8 & 1)
        program = EpochProgram.of(store, plan, epoch, owners, settings, divided=divided)
        if divided:
            world.note("runs with divided shards")
        exchange = ShuffledExchange(store, world.random.random(), None) if managers else InProcess(store)
        world.note(f"runs by {managers} managers")
        with Workers(world, managers) as workers:
            return require_all(program.tasks, exchange.run(Twinned(world, program, self._pipelines.tasks, workers)))


class Workers(contextlib.ExitStack):
    """The processes that run the tasks of an epoch, over a store that can tell: up to two beside the pipeline's own."""

    def __init__(self, world: World, managers: int) -> None:
        super().__init__()
        self._world, self._managers = world, managers
        self._stores: list[Store] = []

    def __enter__(self) -> Workers:
        if self._world.hbase is not None and self._managers:
            number = self._world.random.choice((0, 1, 2))
            self._stores = [self.enter_context(self._world.process()) for _ in range(number)]
        return self

    def of(self, manager: int, other: OpenStore) -> OpenStore:
        """How the tasks of a manager open the store; the pipeline's own process runs some."""
        own = manager % (len(self._stores) + 1)
        return (lambda: self._stores[own - 1]) if own else other


class Twinned:
    """A program, of which some tasks run twice: the twin is lost at some point, or done before the other one begins."""

    def __init__(self, world: World, program: EpochProgram, tasks: list[LateTask], workers: Workers) -> None:
        self._world, self._program, self._tasks, self._workers = world, program, tasks, workers

    def __getattr__(self, name: str) -> object:
        return getattr(self._program, name)

    def apply(self, open_store: OpenStore, stage: int, manager: int, messages: Iterable[Message]) -> Iterator[Message]:
        given = tuple(messages)
        self._tasks.append(LateTask(self._program, stage, manager, given))
        del self._tasks[:-REMEMBERED_MAX]
        if self._world.chance(0.1):
            self._world.note("twins of tasks", stage, manager)
            twin = self._program.apply(self._workers.of(manager + 1, open_store), stage, manager, iter(given))
            for _ in itertools.islice(twin, self._world.random.choice((0, 1, 2, 1_000))):
                pass
            twin.close()
        return self._program.apply(self._workers.of(manager, open_store), stage, manager, iter(given))
