"""After every committed epoch each view equals its recomputation from the base rows of that epoch.

Many histories run in one table at once, each over rows of its own, because an epoch costs the same with one history as
with thirty. The views of all kinds hang on the same table. What the histories contained is counted, and a kind of event
that never happened is a failure: a generator that stopped making it would otherwise pass unseen.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import viewkeeper as vk
from tests.support.histories import (
    COMPOSITE,
    EVENTS,
    TEXT,
    Change,
    HistoryMaker,
    Model,
    Shape,
    apply,
    chunks,
    state_after,
)
from tests.support.oracle import CASES, KINDS, Oracle, bag_of
from tests.support.running import HereRunner, ManagersRunner
from tests.support.sizes import require_right_sizes
from tests.support.stores import drop_views
from tests.support.tiers import examples, is_deep
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.operators import grouping_kernel
from viewkeeper.settings import EpochLimits

HISTORIES_MIN = examples(100, deep=110)
STEPS_MIN = 30
# Every run has the examples that are written down, a deep one draws others too. A seed has nothing to shrink.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate] if is_deep() else [Phase.explicit]
RUN_EVENTS = (
    "epoch checked",
    "several epochs behind",
    "epoch by managers",
    "view filled from rows",
    "view filled in several epochs",
    "bulk put",
    "get checked",
    "groupings served together",
    "sizes checked",
)
SEEN: Counter[str] = Counter()
HISTORIES: Counter[str | tuple[str, str]] = Counter()
LOGS = ("images", "plain")
STORES = ("embedded", "memory")
# The worlds of every run, in which each shape has each kind of log: what an operator does depends on these, not on the store.
LEAN = {
    "embedded": ("text, images", "composite, plain"),
    "memory": ("text, plain", "composite, images"),
}
WORLDS: dict[str, World] = {}


def is_drawn(store: str, shape: str, log: str) -> bool:
    return is_deep() or f"{shape}, {log}" in LEAN[store]


class World:
    """One store for many examples; each example has a table and views of its own."""

    def __init__(self, db: vk.Database, shape: Shape) -> None:
        self.db = db
        self.shape = shape
        self.oracle = Oracle(shape)
        self._numbers = itertools.count()
        self._table = ""

    def start(self) -> None:
        """A new table; what the example before left is dropped and tidied away."""
        if self._table:
            drop_views(self.db)
            self.db.execute(f"DROP TABLE {self._table}")
        self._table = f"t{next(self._numbers)}"
        self.db.execute(f"CREATE TABLE {self._table} {self.shape.ddl}")

    @property
    def table(self) -> object:
        return self.db.table(self._table)

    def define(self, names: set[str]) -> None:
        key = ", ".join(name for name, _ in self.shape.columns)
        for case in CASES:
            if case.name in names:
                self.db.execute(case.definition.format(v=case.name, t=self._table, k=key))

    def write(self, changes: list[Change], choose: random.Random) -> Iterator[tuple[int, vk.Token]]:
        """Write the changes, now and then several in one bulk put; gives how many are written, and the token."""
        at = 0
        while at < len(changes):
            run = list(itertools.takewhile(lambda change: change.kind == "put", changes[at : at + 6]))
            # over several nodes a bulk put is one transaction for each, and an epoch may hold a part of it
            if len(run) > 1 and self.db.store.layout.nodes == 1 and choose.random() < 0.2:
                names = [name for name, _ in self.shape.columns]
                rows = [dict(zip(names, change.key, strict=True)) | dict(change.columns) for change in run]
                token = self.table.put_many(rows)
                SEEN["bulk put"] += 1
                at += len(run)
            else:
                token = write_one(self.table, changes[at])
                at += 1
            yield at, token


def connected(store: str, folder: Path, options: str) -> vk.Database:
    urls = {"embedded": f"embedded:{folder}?sync=off&{options}", "memory": f"memory:?{options}"}
    return vk.connect(urls[store])


def write_one(table: object, change: Change) -> vk.Token:
    match change.kind:
        case "put":
            return table.put(*change.key, dict(change.columns))
        case "clear":
            return table.delete(*change.key, columns=[name for name, _ in change.columns])
    return table.delete(*change.key)


@contextlib.contextmanager
def grouping_all() -> Iterator[None]:
    """A slice of rows is small, and few values of a column are noticed."""

    def counted(terms: Sequence, rows: object) -> object:
        SEEN["groupings served together"] += len(terms)
        return evaluate(terms, rows)

    evaluate = grouping_kernel.evaluate
    with (
        mock.patch.object(grouping_kernel, "_ROWS_AT_ONCE", 40),
        mock.patch.multiple(grouping_kernel, _ROWS_MIN=10, _ROWS_OF_VALUE=2),
        mock.patch.object(grouping_kernel, "evaluate", counted),
    ):
        yield


@pytest.fixture(scope="module", autouse=True)
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The stores; at the end, the judgement of what was drawn."""
    folder = tmp_path_factory.mktemp("worlds")
    with contextlib.ExitStack() as ends:
        for log, (shape, nodes), store in product(LOGS, ((TEXT, 1), (COMPOSITE, 2)), STORES):
            if is_drawn(store, shape.name, log):
                options = f"nodes={nodes}&before_images={'off' if log == 'plain' else 'on'}"
                db = ends.enter_context(connected(store, folder / f"{shape.name}-{log}", options))
                WORLDS[f"{store}, {shape.name}, {log}"] = World(db, shape)
        yield
    if set(HISTORIES) >= set(WORLDS):  # a run of some worlds alone is not judged
        assert [event for event in (*EVENTS, *RUN_EVENTS) if not SEEN[event]] == []
        told = {(kind, log): HISTORIES[kind, log] for kind in KINDS for log in LOGS}
        assert {what: count for what, count in told.items() if count < HISTORIES_MIN} == {}


@pytest.mark.parametrize(
    ("store", "shape", "log"),
    [world for world in product(STORES, ("text", "composite"), LOGS) if is_drawn(*world)],
)
@settings(max_examples=2, phases=PHASES)
@given(
    seed=st.integers(0, 2**32 - 1),
    histories=st.sampled_from((100, 90, 110)),
    steps=st.sampled_from((34, 32, 30, 36)),
)
@example(seed=1, histories=1, steps=3)
def test_every_view_equals_its_recomputation_at_every_epoch(
    shape: str, log: str, store: str, seed: int, histories: int, steps: int
) -> None:
    run(store, shape, log, seed, histories, steps)


@pytest.mark.parametrize(
    ("store", "shape", "log", "seed"),
    [
        (*world, seed)
        for world in product(STORES, ("text", "composite"), LOGS)
        for seed in ((13, 44) if is_deep() else (13,) if world[1] == "text" else (44,))
        if is_drawn(*world)
    ],
)
def test_views_of_every_kind_equal_their_recomputation_at_every_epoch(
    store: str, shape: str, log: str, seed: int
) -> None:
    """The two seeds have views of all kinds between them."""
    run(store, shape, log, seed, histories=100, steps=32)


def run(store: str, shape: str, log: str, seed: int, histories: int, steps: int) -> None:
    """Views over random histories, judged after each epoch."""
    world, choose = WORLDS[f"{store}, {shape}, {log}"], random.Random(seed)
    changes = HistoryMaker(world.shape, seed, SEEN).interleaved(0, histories, steps)
    names = {case.name for case in CASES if choose.random() < 0.75}
    late = {name for name in sorted(names) if choose.random() < 0.3}
    world.start()
    world.define(names - late)
    checker = Checker(world, changes)
    for part in chunks(changes, seed, most=max(3, len(changes) // 3)):
        checker.write(part, choose)
        checker.run_some(choose, epochs=1)
        if choose.random() < 0.5:
            world.define(late)
            late = set()
    world.define(late)
    checker.run_some(choose, epochs=1_000)

    assert checker.is_done()
    require_right_sizes(world.db.store)
    HISTORIES[f"{store}, {shape}, {log}"] += 1
    for kind in {case.kind for case in CASES if case.name in names}:
        HISTORIES[kind, log] += histories * (steps >= STEPS_MIN)


class Checker:
    """Runs epochs over a world and compares after each."""

    def __init__(self, world: World, changes: list[Change]) -> None:
        self._world, self._changes = world, changes
        self._store = world.db.store
        self._written: list[tuple[int, vk.Token | None]] = []  # no token: the write changed nothing
        self._ends = self._store.ends()
        self._done = 0
        self._model: Model = {}
        self._applied = 0

    def write(self, part: list[Change], choose: random.Random) -> None:
        for count, token in self._world.write(part, choose):
            ends = self._store.ends()
            self._written.append((self._done + count, token if ends != self._ends else None))
            self._ends = ends
        self._done += len(part)

    def is_done(self) -> bool:
        return self._done == len(self._changes) == self._reached()

    def run_some(self, choose: random.Random, *, epochs: int) -> None:
        """Some epochs of random size, by a coordinator that took over anew, and a check after each."""
        managers = choose.choice((1, 1, 1, 2, 3, 8))
        group_all = choose.random() < 0.5
        runner = HereRunner(self._store) if managers == 1 else ManagersRunner(self._store, managers, choose.random())
        size = choose.choice((1, 20, 300, 10_000)) if epochs == 1 else 10_000
        coordinator = Coordinator(
            self._store, runner, limits=EpochLimits(changes=size, rows=choose.choice((7, 60, 10_000)))
        )
        SEEN["several epochs behind"] += size < self._done - self._applied
        for _ in range(epochs):
            began_with = set(self._store.read_epoch_record().filled)
            with grouping_all() if group_all else contextlib.nullcontext():
                done = coordinator.step()
            if done is None:
                break
            SEEN["epoch by managers"] += managers > 1
            filled = set(self._store.read_epoch_record().filled) - began_with
            SEEN["view filled from rows"] += bool(filled) and self._applied > 0
            SEEN["view filled in several epochs"] += bool(self._store.read_epoch_record().filling)
            self._check(choose)
        if choose.random() < 0.5:
            collect_garbage(self._store)

    def _reached(self) -> int:
        """How many changes are committed. R17: they are a prefix of all, in the order in which they were written."""
        positions = self._store.read_epoch_record().positions
        covered = [True]
        for _, token in self._written:
            covered.append(token.is_covered_by(self._store.incarnation, positions) if token else covered[-1])
        assert covered == sorted(covered, reverse=True)
        return [0, *(count for count, _ in self._written)][sum(covered) - 1]

    def _check(self, choose: random.Random) -> None:
        record, reached = self._store.read_epoch_record(), self._reached()
        assert reached >= self._applied
        for change in self._changes[self._applied : reached]:
            apply(self._model, change)
        self._applied = reached
        self._world.oracle.load(self._model)
        for view in self._world.db.catalog().views:
            if view.node.backfill in record.filled:
                self._compare(view.name, choose)
        SEEN["epoch checked"] += 1
        if choose.random() < 0.2:
            require_right_sizes(self._store)
            SEEN["sizes checked"] += 1

    def _compare(self, name: str, choose: random.Random) -> None:
        case = next(case for case in CASES if case.name == name)
        view = self._world.db.view(name)
        rows = list(view.scan())

        assert bag_of(row.values() for row in rows) == self._world.oracle.bag(case), case.kind
        if rows and choose.random() < 0.3:
            self._compare_other_reads(view, rows, choose)

    def _compare_other_reads(self, view: object, rows: list[dict], choose: random.Random) -> None:
        """By key, backwards and as Arrow, a view says the same as by scan."""
        assert bag_of(row.values() for row in view.to_arrow().to_pylist()) == bag_of(row.values() for row in rows)
        assert bag_of(row.values() for row in reversed(list(view.scan(reverse=True)))) == bag_of(
            row.values() for row in rows
        )
        names = [column.name for column in view.definition.key]
        if set(names) <= rows[0].keys():
            row = choose.choice(rows)
            assert bag_of([view.get(*(row[name] for name in names)).values()]) == bag_of([row.values()])
            SEEN["get checked"] += 1


def test_the_model_says_what_a_table_holds(tmp_path: Path) -> None:
    """The base itself: what is read back is what the independent model says, on one node and on two."""
    for store, (shape, nodes) in product(STORES, ((TEXT, 1), (COMPOSITE, 2))):
        world = World(connected(store, tmp_path / shape.name, f"nodes={nodes}"), shape)
        world.start()
        changes = HistoryMaker(shape, 7).interleaved(0, 20, STEPS_MIN)
        for change in changes:
            write_one(world.table, change)
        names = [name for name, _ in shape.columns]
        expected = [(*key, *row.values()) for key, row in state_after(changes).items()]

        assert bag_of(row.values() for row in world.table.scan()) == bag_of(expected)
        assert bag_of(row.values() for row in world.table.to_arrow().to_pylist()) == bag_of(expected)
        assert [row[names[0]] for row in world.table.scan(reverse=True)] == [
            row[names[0]] for row in world.table.scan()
        ][::-1]
