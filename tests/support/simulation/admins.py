"""Admins: they add and remove nodes, and have views repaired and rebuilt, while everything else goes on.

Some add or remove a node just before a pipeline's cut, the second one of an epoch too; these are drawn from a randomness of
their own.

In: the world, its users and pipelines. Out: rows that moved, twins in the catalog. Always: a statement that was interrupted
is repeated by the next admin, as its error would say; a repair of views that are right changes no record.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.simulation.faults import Faults
from tests.support.simulation.pipelines import Pipelines
from tests.support.simulation.users import Users
from tests.support.simulation.world import World, Wrong
from viewkeeper.errors import InputError, StoreUnavailable
from viewkeeper.plan.replacements import with_shadow_views
from viewkeeper.stores.local.placement import is_filling

MOVES = ("node.made", "node.listed", "move.intent", "move.left", "move.arrived", "move.placed", "move.finished")
NODES_MAX = 6
BEFORE_CUTS, BEFORE_CUTS_MAX = 0.3, 2


class Admins:
    """Those who look after one store."""

    def __init__(self, world: World, users: Users, pipelines: Pipelines, faults: Faults) -> None:
        self._world, self._users, self._pipelines, self._faults = world, users, pipelines, faults
        self._random = random.Random(f"{world.seed} nodes before cuts")
        self._left = BEFORE_CUTS_MAX if world.is_looked_after and world.hbase is None else 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        store = self._world.store
        cut = store.cut

        def cut_after_moves(*arguments: object, **limits: object) -> object:
            if self._left and self._random.random() < BEFORE_CUTS:
                self._left -= 1
                with self._faults.put_off():
                    self._alter(self._random)
            return cut(*arguments, **limits)

        store.cut = cut_after_moves
        yield

    def act(self) -> None:
        if self._world.chance(0.6):
            self._pipelines.faulty(
                lambda: self._alter(self._world.random), self._world.random.choice(("", "crash", "crash")), at=MOVES
            )
        else:
            self._fill_anew()
        self._require_idle_repairs()

    def _alter(self, draw: random.Random) -> None:
        """Add a node or remove one, or go on with what was interrupted; while a view is filled, rows stay where they are."""
        world = self._world
        if is_filling(world.record()):
            world.note("moves put off")
            return
        statement = self._drawn_statement(draw)
        world.note("nodes that come and go", statement)
        self._users.execute(f"ALTER STORE {statement}")
        world.note("moves", world.store.meta.read_placement().nodes)

    def _drawn_statement(self, draw: random.Random) -> str:
        placement = self._world.store.meta.read_placement()
        if placement.task is not None:
            kind, number = placement.task
            self._world.note("moves resumed")
            return "ADD NODE" if kind == "add" else f"REMOVE NODE {number}"
        takers = placement.takers
        if len(takers) == 1 or (len(takers) < NODES_MAX and draw.random() < 0.5):
            return "ADD NODE"
        return f"REMOVE NODE {draw.choice(takers)}"

    def _fill_anew(self) -> None:
        """Ask for a repair or a rebuild of some views; pipelines do it in their own time."""
        world, store = self._world, self._world.store
        if not world.views:
            return
        ending = world.random.choice(("repair", "repair", "rebuild"))
        names = world.random.sample(sorted(world.views), min(len(world.views), world.random.choice((1, 1, 2))))
        with world.calm():
            epoch = store.read_frontier().committed
        try:
            world.db.change_catalog(lambda catalog: with_shadow_views(catalog, names, ending, epoch)[0])
        except (InputError, StoreUnavailable) as error:  # one of them is being replaced; or nobody knows
            world.note("fills anew in doubt", type(error).__name__)
        else:
            world.note(f"{ending}s", names)

    def _require_idle_repairs(self) -> None:
        """No record was wrong, so no repair may have changed one."""
        for done in self._world.record().repaired.values():
            if done.records or done.auxiliary:
                raise Wrong(f"a repair changed records that were right: {done}")
