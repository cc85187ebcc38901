"""Plans of worlds: which views a world has, and what happens to its tables.

In: a seed. Out: a `WorldPlan`, and the oracle that answers what a view must hold. Always: the same seed gives the same plan,
whatever the product does; most views have rows after the first part of the history.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from tests.support import tiers
from tests.support.random_sql import RandomView, ViewMaker
from tests.support.random_tables import TABLES, RowChange, Tables, herd_changes, random_changes

Bag = Counter[tuple[object, ...]]
VIEWS, STEPS = 25, 3
SEEDS = range(1, 62)
DOZEN = (4, 11, 12, 15, 20, 27, 33, 38, 43, 50, 54, 61)  # every run goes through these; they have the whole grammar
FRESH = range(tiers.seed() * 100 + 1_000_000, tiers.seed() * 100 + 1_000_010)  # others in each deep run
_EMPTY_SHARE = 0.05  # of the views that have no rows at first, so many are taken all the same


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """`early` views are made before there are rows, the others after the first of `parts`; then columns are added too.

    The views called `dropped` go after the second part. `optimizes`: OPTIMIZE VIEWS comes after each part.
    """

    seed: int
    options: str
    early: int
    views: tuple[RandomView, ...]
    dropped: frozenset[str]
    parts: tuple[tuple[RowChange, ...], ...]
    store: str = "embedded:{folder}?sync=off&{options}"
    optimizes: bool = False

    @property
    def kept(self) -> tuple[RandomView, ...]:
        return tuple(view for view in self.views if view.name not in self.dropped)

    def final_tables(self) -> Tables:
        """What the tables hold in the end."""
        tables = Tables()
        for part in self.parts:
            for change in part:
                tables.apply(change)
        return tables


class RandomOracle:
    """DuckDB over the rows of a model; one for many worlds, for a connection costs more than many queries."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1; SET enable_progress_bar = false")
        # Optimizers of DuckDB 2.0 that do not keep to SQL: the first refuses some queries ("BindBuiltinScalarFunction did
        # not return a BoundFunctionExpression"), the second takes a LEFT JOIN away below the LIMIT below a DISTINCT.
        self._connection.execute("SET disabled_optimizers = 'statistics_propagation,join_elimination'")
        self._views: list[str] = []

    def load(self, tables: Tables) -> None:
        for shape in TABLES:
            self._connection.register("rows_of_the_model", shape.to_arrow(tables.rows[shape.name]))
            self._connection.execute(f"CREATE OR REPLACE TABLE {shape.name} AS FROM rows_of_the_model")

    def define(self, view: RandomView) -> None:
        self._connection.execute(f"CREATE VIEW {view.name} AS {view.sql.duck}")
        self._views.append(view.name)

    def forget_views(self) -> None:
        while self._views:
            self._connection.execute(f"DROP VIEW {self._views.pop()}")

    def bag(self, view: RandomView) -> Bag:
        return bag_of(self._connection.execute(view.sql.duck).fetchall())


def bag_of(rows: Iterable[Iterable[object]]) -> Bag:
    """Rows as a bag in which NaN equals NaN."""
    return Counter(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def plan_wide_world(seed: int, oracle: RandomOracle, *, views: int = 6, steps: int = STEPS) -> WorldPlan:
    """A world with few views, long texts, long lists of literals and epochs that change many rows alike; of four such worlds
    two are in memory, and in two OPTIMIZE VIEWS comes between epochs."""
    choose, tables = random.Random(f"wide {seed}"), Tables()
    parts = [[*random_changes(choose, tables, choose.randint(70, 110), wide=True), *herd_changes(choose, tables)]]
    oracle.forget_views()
    oracle.load(tables)
    for _ in range(steps - 1):
        few = random_changes(choose, tables, choose.choice((1, 3, 8, 20, 40)), with_late=True, wide=True)
        parts.append([*few, *herd_changes(choose, tables)])
    early = choose.randint(0, views)
    maker = ViewMaker(seed, [shape.relation(wide=True) for shape in TABLES], wide=True)
    made = _make_views(choose, maker, oracle, early, views)
    options = f"nodes={choose.choice((1, 1, 2))}&before_images={choose.choice(('on', 'off'))}"
    store = "memory:?{options}" if seed % 2 else "embedded:{folder}?sync=off&{options}"
    filled = tuple(map(tuple, parts))
    return WorldPlan(seed, options, early, tuple(made), frozenset(), filled, store, optimizes=seed % 4 > 1)


def plan_world(seed: int, oracle: RandomOracle, *, views: int = VIEWS, steps: int = STEPS) -> WorldPlan:
    """The plan of the world with that seed; the oracle's tables and views are the plan's own for the time."""
    choose = random.Random(seed)
    options = f"nodes={choose.choice((1, 1, 2))}&before_images={choose.choice(('on', 'off'))}"
    tables = Tables()
    parts = [random_changes(choose, tables, choose.randint(70, 110))]
    oracle.forget_views()
    oracle.load(tables)
    for _ in range(steps - 1):
        parts.append(random_changes(choose, tables, choose.choice((1, 3, 8, 20, 40)), with_late=True))
    early = choose.randint(0, views)
    made = _make_views(choose, ViewMaker(seed, [shape.relation() for shape in TABLES]), oracle, early, views)
    read = {name for view in made for name in view.reads}
    unread = [view.name for view in made[:early] if view.name not in read]
    dropped = frozenset(choose.sample(unread, min(1, len(unread))) if choose.random() < 0.5 else ())
    return WorldPlan(seed, options, early, tuple(made), dropped, tuple(map(tuple, parts)))


def _make_views(
    choose: random.Random, maker: ViewMaker, oracle: RandomOracle, early: int, count: int
) -> list[RandomView]:
    made: list[RandomView] = []
    while len(made) < count:
        if len(made) == early:
            for shape in TABLES:
                maker.let_read(shape.relation(with_late=True, wide=maker.wide))
        view = maker.view(f"v{len(made)}")
        if not oracle.bag(view) and choose.random() >= _EMPTY_SHARE:
            continue
        made.append(view)
        oracle.define(view)
        maker.let_read(view.relation)
    return made
