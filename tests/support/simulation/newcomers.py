"""Newcomers: clients who make a table and write to it after a pipeline has looked at the catalog, and before its cut.

In: the world and its users. Out: tables of one row. Always: in some schedules only, drawn from a randomness of their own;
a view that is made over each table at the end must hold its row, whether the log has before-images or DELTA has to have it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.simulation.faults import Faults
from tests.support.simulation.pipelines import Pipelines
from tests.support.simulation.users import Users
from tests.support.simulation.world import World, Wrong

SCHEDULES, CUTS = 0.2, 0.3  # the shares in which they come
NEWCOMERS_MAX = 3


class Newcomers:
    """Those of one schedule."""

    def __init__(self, world: World, users: Users, faults: Faults) -> None:
        self._world, self._users, self._faults = world, users, faults
        self._random = random.Random(f"{world.seed} newcomers")
        self._left = NEWCOMERS_MAX if self._random.random() < SCHEDULES else 0
        self._tables: list[str] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        store = self._world.store
        cut = store.cut

        def late_cut(*arguments: object, **limits: object) -> object:
            if self._left and self._random.random() < CUTS:
                self._come()
            return cut(*arguments, **limits)

        store.cut = late_cut
        yield

    def _come(self) -> None:
        self._left -= 1
        name = f"new{self._left}"
        self._world.note("tables made before a cut", name)
        with self._faults.put_off():
            self._users.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, v INT)")
            self._world.db.table(name).put("a", {"v": 7})
        self._tables.append(name)

    def require_heard(self, pipelines: Pipelines) -> None:
        """Views over all these tables, from their first row on."""
        self._left = 0
        for name in self._tables:
            self._users.execute(
                f"CREATE MATERIALIZED VIEW over_{name} AS SELECT COUNT(*) AS n, SUM(v) AS s FROM {name}"
            )
            pipelines.finish()
            if (found := self._world.db.view(f"over_{name}").get()) != {"n": 1, "s": 7}:
                raise Wrong(f"a view over {name}, which has one row of 7, holds {found}")
            self._users.execute(f"DROP MATERIALIZED VIEW over_{name}")
            self._users.execute(f"DROP TABLE {name}")
