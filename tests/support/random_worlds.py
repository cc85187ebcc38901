"""Worlds of random views: a store with tables, a random history, and views that are compared with DuckDB after each epoch.

In: a folder and a seed. Out: what was seen. Always: the same seed gives the same world; after every epoch each view that is
filled equals DuckDB's answer over the model's rows of that epoch, as a bag.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

import viewkeeper as vk
from tests.support.random_sql import RandomView, ViewMaker
from tests.support.random_tables import TABLES, RowChange, Tables, random_changes
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie
from viewkeeper.errors import UnsupportedSql
from viewkeeper.flow.coordinator import Coordinator

if TYPE_CHECKING:
    from viewkeeper.client.tables import Table

Bag = Counter[tuple[object, ...]]


@dataclass(slots=True)
class Tally:
    """What the worlds contained."""

    views: int = 0
    joins: int = 0
    nested: int = 0
    non_empty: int = 0
    refused: int = 0
    comparisons: int = 0
    features: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)


class RandomOracle:
    """DuckDB over the rows of a model."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")

    def load(self, tables: Tables) -> None:
        for shape in TABLES:
            self._connection.register("rows_of_the_model", shape.to_arrow(tables.rows[shape.name]))
            self._connection.execute(f"CREATE OR REPLACE TABLE {shape.name} AS FROM rows_of_the_model")

    def define(self, view: RandomView) -> None:
        self._connection.execute(f"CREATE VIEW {view.name} AS {view.sql.duck}")

    def bag(self, text: str) -> Bag:
        return bag_of(self._connection.execute(text).fetchall())


def bag_of(rows: Iterable[Iterable[object]]) -> Bag:
    """Rows as a bag in which NaN equals NaN."""
    return Counter(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class RandomWorld:
    """One store, its history and its views."""

    def __init__(self, folder: Path, seed: int, tally: Tally, *, views: int = 25, steps: int = 4) -> None:
        self._choose = random.Random(seed)
        self._tally = tally
        images, nodes = self._choose.choice(("on", "off")), self._choose.choice((1, 1, 2))
        tally.events[f"before_images={images}"] += 1
        tally.events[f"nodes={nodes}"] += 1
        self.db = vk.connect(f"embedded:{folder}?sync=off&nodes={nodes}&before_images={images}")
        self._maker = ViewMaker(seed, [shape.relation for shape in TABLES])
        self._oracle = RandomOracle()
        self.views: list[RandomView] = []
        self.model = Tables()  # what the committed epoch holds
        self._oracle.load(self.model)
        self._parts = self._history(steps)
        self._count = views
        self._written: list[RowChange] = []
        self._tokens: list[tuple[int, vk.Token | None]] = []
        self._applied = 0
        self._ends = self.db.store.ends()
        self._filled_with_rows: set[str] = set()

    def _history(self, steps: int) -> list[list[RowChange]]:
        """The changes between epochs; candidates for views are tried on two of the states."""
        model, sizes = Tables(), [self._choose.randint(70, 110)]
        sizes += [self._choose.choice((1, 3, 8, 20, 40)) for _ in range(steps - 1)]
        parts = [random_changes(self._choose, model, sizes[0])]
        self._samples = RandomOracle()
        self._samples.load(model)
        return parts + [random_changes(self._choose, model, size) for size in sizes[1:]]

    def run(self) -> None:
        for shape in TABLES:
            self.db.execute(shape.ddl)
        early = self._choose.randint(0, self._count)
        self._define(early)
        for number, part in enumerate(self._parts):
            self._write(part)
            if number == 0:
                self._run_epochs(self._choose.choice((1, 2)), last=False)
                self._define(self._count - early)
            self._run_epochs(1, last=number == len(self._parts) - 1)
        self._finish()

    def _define(self, count: int) -> None:
        for _ in range(count):
            view = self._next_view()
            self._oracle.define(view)
            self._samples.define(view)
            self._maker.add(view)
            self.views.append(view)

    def _next_view(self) -> RandomView:
        """A view that the product takes; mostly one that has rows in the first state."""
        while True:
            view = self._maker.view(f"v{len(self.views)}")
            if not self._samples.bag(view.sql.duck) and self._choose.random() < 0.9:
                continue
            try:
                self.db.execute(f"CREATE MATERIALIZED VIEW {view.name} AS {view.sql.view}")
            except UnsupportedSql:
                self._tally.refused += 1
                self._tally.events["refused"] += 1
                self.on_refused(view)
                continue
            return view

    def on_refused(self, view: RandomView) -> None:
        """A place for a search to look at what is refused."""

    def _write(self, part: Sequence[RowChange]) -> None:
        for change in part:
            token = _write_one(self.db.table(change.table), change)
            self._written.append(change)
            ends = self.db.store.ends()
            self._tokens.append((len(self._written), token if ends != self._ends else None))
            self._ends = ends

    def _run_epochs(self, count: int, *, last: bool) -> None:
        store, choose = self.db.store, self._choose
        managers = choose.choice((1, 1, 2, 3, 5))
        runner = HereRunner(store) if managers == 1 else ManagersRunner(store, managers, choose.random())
        self._tally.events["epoch by managers" if managers > 1 else "epoch here"] += 1
        size = 1_000_000 if last else choose.choice((7, 30, 1_000_000, 1_000_000))
        rows_max = choose.choice((15, 1_000, 1_000))
        if choose.random() < 0.2:
            with contextlib.suppress(Interrupted):
                Coordinator(store, RunThenDie(runner), changes_max=size, rows_max=rows_max).step()
                self._tally.events["nothing to run"] += 1
            self._tally.events["epoch run twice"] += 1
        coordinator = Coordinator(store, runner, changes_max=size, rows_max=rows_max)
        for _ in range(1_000 if last else count):
            before = set(store.read_epoch_record().filled)
            if coordinator.step() is None:
                return
            record = store.read_epoch_record()
            self._tally.events["views filled from rows"] += bool(set(record.filled) - before) and self._applied > 0
            self._tally.events["views filled in several epochs"] += bool(record.filling)
            self.check()

    def check(self) -> None:
        """Compare every view that is filled."""
        self._catch_up_model()
        self._oracle.load(self.model)
        filled = self.db.store.read_epoch_record().filled
        for view in self.views:
            definition = self.db.catalog().view(view.name)
            if definition.node.table in filled:
                self._compare(view)

    def _compare(self, view: RandomView) -> None:
        found = bag_of(row.values() for row in self.db.view(view.name).scan())
        wanted = self._oracle.bag(view.sql.duck)
        self._tally.comparisons += 1
        if wanted:
            self._filled_with_rows.add(view.name)
        if found != wanted:
            raise WrongView(view, dict(wanted - found), dict(found - wanted))

    def _catch_up_model(self) -> None:
        positions, incarnation = self.db.store.read_epoch_record().positions, self.db.store.incarnation
        covered = [True]
        for _, token in self._tokens:
            covered.append(token.is_covered_by(incarnation, positions) if token else covered[-1])
        assert covered == sorted(covered, reverse=True)
        reached = [0, *(count for count, _ in self._tokens)][sum(covered) - 1]
        for change in self._written[self._applied : reached]:
            self.model.apply(change)
        self._applied = reached

    def _finish(self) -> None:
        self.check()  # a last change that changed nothing made no epoch
        assert self._applied == len(self._written)
        filled = self.db.store.read_epoch_record().filled
        assert all(view.node.table in filled for view in self.db.catalog().views)
        tally = self._tally
        tally.views += len(self.views)
        tally.joins += sum(view.has_join for view in self.views)
        tally.nested += sum(view.is_nested for view in self.views)
        tally.non_empty += len(self._filled_with_rows)
        for view in self.views:
            tally.features.update(view.features)


class WrongView(AssertionError):
    """A view that does not hold what it should."""

    def __init__(self, view: RandomView, missing: dict, surplus: dict) -> None:
        super().__init__(f"{view.name} AS {view.sql.view}\nDuckDB: {view.sql.duck}\n- {missing}\n+ {surplus}")
        self.view = view


def _write_one(table: Table, change: RowChange) -> vk.Token:
    match change.kind:
        case "put":
            return table.put(*change.key, dict(change.columns))
        case "clear":
            return table.delete(*change.key, columns=[name for name, _ in change.columns])
    return table.delete(*change.key)


def worlds(folder: Path, seeds: Iterable[int], tally: Tally, **sizes: int) -> Iterator[RandomWorld]:
    """Worlds that ran and were right."""
    for seed in seeds:
        world = RandomWorld(folder / f"world{seed}", seed, tally, **sizes)
        world.run()
        yield world
