"""Worlds of random views: a store with tables, a random history, and views that are compared with DuckDB after each epoch.

In: a folder and a plan. Out: what was seen. Always: after every epoch each view that is filled equals DuckDB's answer over
the model's rows of that epoch, as a bag.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from tests.support.random_plans import Bag, RandomOracle, WorldPlan, bag_of
from tests.support.random_sql import RandomView
from tests.support.random_tables import TABLES, RowChange, Tables
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.settings import EpochLimits

if TYPE_CHECKING:
    from viewkeeper.client.tables import Table

_MANAGERS = (1, 1, 1, 1, 1, 2, 2, 3, 5)
_ALL = 1_000_000
_ASKED_EVERY = 4  # views whose text is asked as a SELECT too


@dataclass(slots=True)
class Tally:
    """What the worlds contained."""

    worlds: int = 0
    views: int = 0
    joins: int = 0
    nested: int = 0
    non_empty: int = 0
    refused: int = 0
    comparisons: int = 0
    features: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """The distribution, for people."""
        share = {
            "with a join": self.joins,
            "nested": self.nested,
            "with rows in some state": self.non_empty,
            "refused": self.refused,
        }
        shares = ", ".join(f"{count} {what} ({count / max(1, self.views):.1%})" for what, count in share.items())
        features = sorted(self.features.items(), key=lambda item: (-item[1], item[0]))
        return [
            f"{self.views} random views in {self.worlds} worlds: {shares}; {self.comparisons} comparisons",
            "events: " + ", ".join(f"{name} {count}" for name, count in sorted(self.events.items())),
            "features: " + ", ".join(f"{name} {count}" for name, count in features),
        ]


TALLY = Tally()  # of the worlds of this run


class WrongView(AssertionError):
    """A view that does not hold what it should."""

    def __init__(self, plan: WorldPlan, view: RandomView, wanted: Bag, found: Bag) -> None:
        missing, surplus = dict(wanted - found), dict(found - wanted)
        super().__init__(
            f"world {plan.seed}: {view.name} AS {view.sql.view}\nDuckDB: {view.sql.duck}\n- {missing}\n+ {surplus}"
        )
        self.view = view


class RandomWorld:
    """One store, its history and its views."""

    def __init__(self, folder: Path, plan: WorldPlan, oracle: RandomOracle, tally: Tally) -> None:
        self.plan, self._oracle, self._tally = plan, oracle, tally
        self._choose = random.Random(f"run {plan.seed}")
        self.db = vk.connect(plan.store.format(folder=folder, options=plan.options))
        self.views: dict[str, RandomView] = {}
        self.model = Tables()  # what the committed epoch holds
        self._written: list[RowChange] = []
        self._tokens: list[tuple[int, vk.Token | None]] = []  # no token: the write changed nothing
        self._applied = 0
        self._ends = self.db.store.ends()
        self._with_rows: set[str] = set()
        oracle.forget_views()
        oracle.load(self.model)

    def run(self) -> None:
        """The whole plan, with a comparison after every epoch."""
        plan = self.plan
        self._tally.events.update(plan.options.split("&"))
        for shape in TABLES:
            self.db.execute(shape.ddl)
        self._define(plan.views[: plan.early])
        for number, part in enumerate(plan.parts):
            self._write(part)
            if number == 0:
                self._run_epochs(1)
                self._add_columns()
                self._define(plan.views[plan.early :])
            elif number == 1:
                self._drop_views()
            if plan.optimizes:
                self.db.execute("OPTIMIZE VIEWS")
                self._tally.events["views optimized"] += 1
            self._run_epochs(1)
        self._run_epochs(1_000)
        self._finish()

    def _define(self, views: Sequence[RandomView]) -> None:
        """Make views; one that the product refuses is counted, and so is one that reads such a one."""
        for view in views:
            self._tally.views += 1
            self._oracle.define(view)
            if not view.reads <= self.views.keys():
                self._tally.refused += 1
                continue
            try:
                self.db.execute(f"CREATE MATERIALIZED VIEW {view.name} AS {view.sql.view}")
            except UnsupportedSql as refusal:
                self._tally.refused += 1
                self.on_refused(view, refusal)
                continue
            self.views[view.name] = view

    def on_refused(self, view: RandomView, refusal: UnsupportedSql) -> None:
        """A place for a search to look at what is refused."""

    def _add_columns(self) -> None:
        for shape in TABLES:
            for statement in shape.late_ddl:
                self.db.execute(statement)
                self._tally.events["column added"] += 1

    def _drop_views(self) -> None:
        for name in self.plan.dropped & self.views.keys():
            self.db.execute(f"DROP MATERIALIZED VIEW {name}")
            self._count(self.views.pop(name))
            self._tally.events["view dropped"] += 1

    def _write(self, part: Sequence[RowChange]) -> None:
        for change in part:
            token = _write_one(self.db.table(change.table), change)
            self._written.append(change)
            ends = self.db.store.ends()
            self._tokens.append((len(self._written), token if ends != self._ends else None))
            self._ends = ends

    def _run_epochs(self, count: int) -> None:
        """So many epochs at most, by a coordinator that took over anew, and a comparison after each."""
        store, choose, events = self.db.store, self._choose, self._tally.events
        managers = choose.choice(_MANAGERS)
        runner = HereRunner(store) if managers == 1 else ManagersRunner(store, managers, choose.random())
        size = _ALL if count > 1 else choose.choice((7, 30, _ALL, _ALL, _ALL))
        rows_max = choose.choice((15, 1_000, 1_000, 1_000))
        if choose.random() < 0.07:
            with contextlib.suppress(Interrupted):
                Coordinator(store, RunThenDie(runner), limits=EpochLimits(changes=size, rows=rows_max)).step()
            events["epoch run twice"] += store.read_epoch_record().inflight is not None
        coordinator = Coordinator(store, runner, limits=EpochLimits(changes=size, rows=rows_max))
        for _ in range(count):
            before = set(store.read_epoch_record().filled)
            if coordinator.step() is None:
                return
            record = store.read_epoch_record()
            events["epoch by several managers" if managers > 1 else "epoch here"] += 1
            events["views filled from rows"] += bool(set(record.filled) - before) and self._applied > 0
            events["views filled in several epochs"] += bool(record.filling)
            self.compare()

    def compare(self) -> None:
        """Every view that is filled, with DuckDB."""
        self._catch_up_model()
        self._oracle.load(self.model)
        filled, catalog = self.db.store.read_epoch_record().filled, self.db.catalog()
        for view in self.views.values():
            if catalog.view(view.name).node.backfill in filled:
                self._compare(view)

    def _compare(self, view: RandomView) -> None:
        found, wanted = bag_of(row.values() for row in self.db.view(view.name).scan()), self._oracle.bag(view)
        self._tally.comparisons += 1
        if wanted:
            self._with_rows.add(view.name)
        if found != wanted:
            raise WrongView(self.plan, view, wanted, found)

    def _catch_up_model(self) -> None:
        """R17: what is committed is a prefix of all changes, in the order in which they were written."""
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
        self.compare()  # a last change that changed nothing made no epoch
        assert self._applied == len(self._written)
        filled = self.db.store.read_epoch_record().filled
        assert all(view.node.backfill in filled for view in self.db.catalog().views)
        for place, view in enumerate(self.views.values()):
            self._count(view)
            if place % _ASKED_EVERY == 0:
                self._ask(view)
        self._tally.worlds += 1

    def _ask(self, view: RandomView) -> None:
        """The same text as a SELECT means the same.

        But where rows are set aside, or groups degraded: these stop a SELECT, unless it needs no column that fails.
        """
        if "*" in view.sql.view.replace("(*)", "") and view in self.plan.views[: self.plan.early]:
            return  # the tables have more columns since
        held = bag_of(row.values() for row in self.db.view(view.name).scan())
        status = {one.name: one for one in self.db.status().views}
        read = [status[name] for name in (view.name, *view.reads) if name in status]
        is_whole = not any(one.set_aside.count or one.degraded for one in read)
        try:
            found = bag_of(self.db.execute(view.sql.view).rows)
        except SqlError:
            assert not is_whole, view.sql.view
            return
        if found != held and is_whole:
            raise WrongView(self.plan, view, held, found)

    def _count(self, view: RandomView) -> None:
        tally = self._tally
        tally.joins += view.has_join
        tally.nested += view.is_nested
        tally.non_empty += view.name in self._with_rows
        tally.features.update(view.features)


def _write_one(table: Table, change: RowChange) -> vk.Token:
    match change.kind:
        case "put":
            return table.put(*change.key, dict(change.columns))
        case "clear":
            return table.delete(*change.key, columns=[name for name, _ in change.columns])
    return table.delete(*change.key)
