"""Hostile schedules: epochs over a store of cells whose requests are lost, late and repeated, with crashes and zombies.

In: a seed. Out: counts of what happened, or `Wrong` with the line that replays it. Always: everything is drawn from the seed,
and one thread does it all: a zombie is a pipeline that is stopped at one of its requests while others go on, and that goes
on itself once they have come far. What views must hold is asked of DuckDB, over a model of the base that the product does
not share.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import viewkeeper as vk
from tests.support.hostile_base import Base
from tests.support.hostile_views import COLUMNS, KINDS, TABLES, Kind, with_their_sources
from tests.support.oracle import bag_of
from tests.support.running import HereRunner, Interrupted, ManagersRunner
from viewkeeper.client.views import record_of
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import EpochTooLarge, InputError, NameInUse, StoreUnavailable, ViewKeeperError
from viewkeeper.model.counts import Counts
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import Positions
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.settings import EpochLimits, GcSettings
from viewkeeper.stores.memory.cells import CellPlace
from viewkeeper.stores.memory.network import LATE_TICKS, PUT_TICKS
from viewkeeper.stores.versions import version_at, versions_of

SUITE = "tests/sim/test_hostile_cells.py"
ROUNDS = 3
KEYS, GROUPS = "abcdefgh", ("p", "q", None)
STEPS_MAX = 60  # of pipelines that a store which does not answer may end, one after the other
FAR_EPOCHS = 3, 4  # after so many nobody needs what the first of them found
DEPTH_MAX = 2  # zombies within each other


class Wrong(BaseException):
    """A view, or the end of a pipeline, that must not be; no task takes it for a failure of its own."""


class Schedule:
    """One history of one store."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._sharp = seed % 2 == 1  # nothing but zombies, over views that are made from what they read
        options = f"nodes={self._random.choice((1, 2))}&before_images={self._random.choice(('on', 'off'))}"
        self._db = vk.connect(f"memory:?cells=on&seed={seed}&{options}")
        self._store = self._db.store
        self._base = Base()
        self._views: dict[str, Kind] = {}
        self._positions: dict[int, Positions] = {}  # of committed epochs
        self._done: list[tuple[PhysicalPlan, Inflight]] = []  # what runners were given
        self._coordinator: Coordinator | None = None  # the one that does something now
        self._depth = 0
        self._watch()

    def _draw_kinds(self) -> list[str]:
        if self._sharp:
            return [self._random.choice([name for name, kind in KINDS.items() if kind.aggregations])]
        names = list(KINDS)
        return [names[self.seed // 2 % len(names)], *self._random.sample(names, self._random.choice((0, 0, 1)))]

    def run(self) -> Counter[str]:
        """The whole of it; raises Wrong."""
        try:
            self._run()
        except Wrong as error:
            raise Wrong(f"{error}; again: VIEWKEEPER_SCHEDULE={self.seed} pytest -k recomputation {SUITE}") from error
        finally:
            self._db.close()
        self.counts.update(self._store_counts)
        self.counts["schedules"] += 1
        return self.counts

    def _run(self) -> None:
        for ddl in TABLES.values():
            self._execute(ddl)
        self._write(10)
        for kind in with_their_sources(self._draw_kinds()):
            self._create(kind)
        self._go_on(2)
        for _ in range(ROUNDS):
            self._act()
        self._retry(lambda: Coordinator(self._store, HereRunner(self._store)).catch_up())
        self._check()
        for _ in range(PUT_TICKS + LATE_TICKS):  # whatever is under way lands
            self._store._contents.network.tick()
        self._check()
        self.counts["groupings shared"] += len({view.sharing for view in self._db.catalog().views} - {None})

    def _act(self) -> None:
        """What may happen between two epochs, and an epoch or two."""
        self._write(self._random.randint(1, 3))
        if self._random.random() < 0.15 and not self._sharp:
            self._replace_view()
        if self._random.random() < 0.2 and not self._sharp:
            self._execute("OPTIMIZE VIEWS")
        self._faulty(lambda: self._epochs(self._random.choice((1, 2))))
        if self._random.random() < 0.7:
            self._faulty(self._tidy)
        if self._random.random() < 0.3:
            self._run_copy()
        if self._random.random() < 0.5 or self._sharp:
            self._check()

    # what users do

    def _write(self, changes: int) -> None:
        for _ in range(changes):
            table, key = self._random.choice(("l", "l", "r")), self._random.choice(KEYS)
            goes = self._base.has(table, key) and self._random.random() < (0.9 if self._sharp else 0.5)
            row = None if goes else (self._random.choice(GROUPS), self._random.randint(0, 4))
            if row is None:
                self._db.table(table).delete(key)
            else:
                self._db.table(table).put(key, dict(zip(COLUMNS[table][1:], row, strict=True)))
            self._base.write(table, key, row, self._store.ends())

    def _create(self, kind: Kind) -> None:
        self._execute(kind.create)
        self._views[kind.name] = kind
        self.counts[f"view {kind.name}"] += 1

    def _replace_view(self) -> None:
        """Make a view that no other one reads anew beside itself, or drop it and make it again, or another one."""
        read = {source for kind in self._views.values() for source in kind.reads}
        kind = self._random.choice([kind for name, kind in self._views.items() if name not in read])
        if self._random.random() < 0.3 and not kind.index:
            self._execute(kind.create.replace("CREATE", "CREATE OR REPLACE", 1))
            self.counts["views replaced"] += 1
            return
        del self._views[kind.name]
        self._execute(kind.drop)
        self.counts["drops"] += 1
        other = self._random.choice((kind.name, self._random.choice(sorted(KINDS))))
        for new in with_their_sources([other]):
            if new.name in self._views:
                continue
            try:
                self._create(new)
            except NameInUse:  # what it reads is being replaced
                return

    def _execute(self, sql: str) -> None:
        """A statement, again where no answer came."""
        for _ in range(STEPS_MAX):
            try:
                self._db.execute(sql)
                return
            except StoreUnavailable:
                self.counts["statements without an answer"] += 1
            except InputError:  # it was done, or was done late
                if not self.counts["statements without an answer"]:
                    raise
                return
        raise Wrong(f"{sql} was never answered")

    # what pipelines do

    def _epochs(self, count: int) -> None:
        """Epochs by a pipeline that takes over, as far as it comes."""
        managers = self._random.choice((0, 0, 1, 3))
        runner = (
            HereRunner(self._store) if managers == 0 else ManagersRunner(self._store, managers, self._random.random())
        )
        self.counts[f"pipelines of {managers} managers"] += 1
        coordinator = self._coordinator = Coordinator.__new__(Coordinator)  # known before it takes over
        fails, size = self._random.random() < 0.06, self._random.choice((1, 3, 100))
        coordinator.__init__(self._store, Runner(self, runner, fails=fails), limits=EpochLimits(changes=size))
        for _ in range(count):
            coordinator.step()

    def _tidy(self) -> None:
        self.counts["purges"] += 1
        collect_garbage(self._store, GcSettings(self._random.choice((0, 300, 300, 300)), seconds_max=math.inf))

    def _faulty(self, work: Callable[[], None]) -> None:
        """Do what a pipeline does, which may end, be stopped, or be told that another one took over."""
        self._coordinator = None
        self._trouble = (
            "zombie" if self._sharp else self._random.choice(("", "crash", "crash", "zombie", "zombie", "copy"))
        )
        by_read = self._random.random() < (0.8 if self._sharp else 0.4)
        self._at = {"read": self._random.choice((1, 1, 2))} if by_read else {"tick": self._random.randint(1, 40)}
        try:
            work()
        except (StoreUnavailable, Interrupted) as error:
            self.counts[f"ended by {type(error).__name__}"] += 1
        except ViewKeeperError as error:
            record = self._store._contents.meta.read_epoch_record()
            if self._coordinator is None or self._coordinator._state.owner == record.owner:
                raise Wrong(f"a pipeline that nobody took over from ended with {error!r}") from error
            self.counts["zombies told"] += 1
        finally:
            self._trouble = ""

    # what befalls them

    def _watch(self) -> None:
        """Count requests, so that one of them can be chosen; and remember where committed epochs end."""
        contents, self._trouble, self._at = self._store._contents, "", dict[str, int]()
        network, meta = contents.network, contents.meta
        self._store_counts = network.counts
        tick, read, swap = network.tick, self._store.read_versions, meta.swap_epoch_record

        def counted_tick() -> None:
            tick()
            self._count("tick")

        def counted_read(*args: object) -> object:
            self._count("read")
            return read(*args)

        def seen_swap(expected_version: int, record: EpochRecord) -> bool:
            swapped = swap(expected_version, record)
            if swapped:
                self._positions[record.committed] = record.positions
            return swapped

        network.tick, self._store.read_versions, meta.swap_epoch_record = counted_tick, counted_read, seen_swap
        for place in contents.cells:
            place.delete = partial(self._delete, place, place.delete)

    def _delete(self, place: CellPlace, delete: Callable[..., None], table: int, key: bytes, below: int) -> None:
        """Count what a purge removes."""
        before = place.pairs(table).get(key) or b""
        delete(table, key, below)
        after = place.pairs(table).get(key) or b""
        self.counts["versions purged"] += sum(1 for _ in versions_of(before)) - sum(1 for _ in versions_of(after))
        self.counts["records purged"] += bool(before) and not after

    def _count(self, what: str) -> None:
        if self._trouble and what in self._at:
            self._at[what] -= 1
            if not self._at[what]:
                self._befall()

    def _befall(self) -> None:
        what, self._trouble = self._trouble, ""
        self.counts[what] += 1
        if what == "crash":
            raise Interrupted
        if what == "copy":  # of a task that was done long ago
            self._run_copy()
        elif self._depth < DEPTH_MAX:
            self._depth += 1
            coordinator = self._coordinator
            try:
                far = self._sharp or self._random.random() < 0.7
                self._go_on(self._random.choice(FAR_EPOCHS)) if far else self._act()
            finally:
                self._depth -= 1
                self._coordinator = coordinator

    def _go_on(self, epochs: int) -> None:
        """That many epochs by pipelines that nothing befalls, then what nobody needs any more goes."""
        for _ in range(epochs):
            self._write(1)
            self._retry(lambda: Coordinator(self._store, Runner(self, HereRunner(self._store))).step())
        self._retry(self._tidy)

    def _retry(self, work: Callable[[], object]) -> None:
        """Until the store answers."""
        for _ in range(STEPS_MAX):
            try:
                work()
                return
            except StoreUnavailable:
                self.counts["pipelines without an answer"] += 1
            except ViewKeeperError as error:
                raise Wrong(f"a pipeline that nothing befell ended with {error!r}") from error
        raise Wrong("the store never answered")

    def _run_copy(self) -> None:
        """A task starts that was forgotten, of an epoch below which nothing is left, if there is one."""
        floor = self._store._contents.meta.read_epoch_record().floor
        below = [(plan, epoch) for plan, epoch in self._done if floor - 1 <= epoch.epoch <= floor]
        if self._done:
            plan, epoch = self._random.choice(below or self._done)
            with contextlib.suppress(ViewKeeperError):
                HereRunner(self._store).run(plan, epoch)
                self.counts["copies that were not stopped"] += 1

    # what must be

    def _check(self) -> None:
        """Views as of the committed epoch, and as of the one before for as long as that is readable."""
        record = self._store._contents.meta.read_epoch_record()
        for epoch in {epoch for epoch in record.recent if epoch >= record.floor and epoch in self._positions}:
            for view in self._db.catalog().views:
                node = view.node
                if record.filled.get(node.backfill, epoch + 1) <= epoch and node.table not in record.stopped:
                    self._compare(view, epoch, record)

    def _compare(self, view: object, epoch: int, record: EpochRecord) -> None:
        pairs = [
            (key, version_at(chain, epoch, record.aborted))
            for partition in self._store._contents.partitions
            for key, chain in partition.pairs(view.node.table).walk(b"", None)
        ]
        records = (record_of(view, key, row) for key, row in pairs if row is not None)
        found = bag_of(record.values() for record in records if record is not None)
        expected = self._base.bag(view.name, self._positions[epoch])
        self.counts["states compared"] += 1
        if found != expected:
            raise Wrong(
                f"{view.name} as of epoch {epoch} (committed {record.committed}) has {dict(found - expected)} too much and "
                f"lacks {dict(expected - found)}"
            )


class Runner:
    """Remembers what it was asked to do, so that copies can be made, and may find an epoch too large."""

    def __init__(self, schedule: Schedule, runner: HereRunner | ManagersRunner, *, fails: bool = False) -> None:
        self._schedule, self._runner, self._fails = schedule, runner, fails

    def run(self, plan: PhysicalPlan, epoch: Inflight) -> Counts:
        self._schedule._done.append((plan, epoch))
        done = self._runner.run(plan, epoch)
        if self._fails and plan.nodes:
            self._fails = False
            self._schedule.counts["void epochs"] += 1
            raise EpochTooLarge(plan.nodes[0].table, "drawn")
        return done
