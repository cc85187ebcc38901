"""A schedule: one history of one store, with everything that may befall it.

In: a seed. Out: counts of what happened, or `Wrong`. Always: everything is drawn from the seed, and one thread does it all: a
zombie is a pipeline that is stopped at some place while others go on, and that goes on itself once they have come far. What
views must hold is asked of DuckDB, over a model of the base that the product does not share.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.support.hostile_hbase import SETTLED_SECONDS
from tests.support.simulation.admins import Admins
from tests.support.simulation.faults import Faults
from tests.support.simulation.inhbase import contend, require_little_surplus, require_right_columns
from tests.support.simulation.kinds import KINDS, with_their_sources
from tests.support.simulation.leftovers import require_no_leftovers
from tests.support.simulation.newcomers import Newcomers
from tests.support.simulation.pipelines import Pipelines
from tests.support.simulation.readers import Readers
from tests.support.simulation.users import Users
from tests.support.simulation.world import HBASE, STORES, World, Wrong

ROUNDS = 3
FAR_EPOCHS = 3, 4  # after so many nobody needs what the first of them found
DEPTH_MAX = 2  # zombies within each other
EFFECTS = ("", "crash", "crash", "crash", "lost task", "zombie", "zombie", "rival", "copy")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a schedule was."""

    seed: int
    store: str
    counts: Counter[str]
    points: Counter[str]
    history: str


class Schedule:
    """One history of one store."""

    def __init__(self, seed: int, kind: str = "") -> None:
        self._world = world = World(seed, kind)
        self._sharp = world.chance(0.35)  # nothing but zombies, over views that are made from what they read
        self._users = Users(world, deletes=0.8 if self._sharp else 0.4)
        self._readers = Readers(world)
        self._faults = Faults(world, self._meanwhile)
        self._pipelines = Pipelines(world, self._faults)
        self._admins = Admins(world, self._users, self._pipelines, self._faults)
        self._newcomers = Newcomers(world, self._users, self._faults)
        self._depth = 0

    def run(self) -> Outcome:
        """The whole of it; raises Wrong."""
        world = self._world
        try:
            with self._faults.listening(), self._newcomers.listening(), self._admins.listening():
                self._run()
                if world.hbase is not None:
                    world.counts.update(world.hbase.counts)
        except Wrong as error:
            told = f"seed {world.seed} ({world.kind}, {world.options}): {error}"
            raise Wrong(f"{told}; again: {again(world.seed, world.kind)}") from error
        finally:
            self._readers.close()
            world.close()
        world.counts["schedules"] += 1
        return Outcome(world.seed, world.kind, world.counts, self._faults.hits, world.history)

    def _run(self) -> None:
        world = self._world
        if world.hbase is not None:
            world.hbase.is_calm = False
        self._users.make_tables()
        self._users.write(8)
        for kind in with_their_sources(self._drawn_kinds()):
            self._users.create(kind)
        if world.chance(0.5):
            with world.calm():
                world.db.keep_changes(epochs=world.random.choice((2, 10)))
        self._pipelines.go_on(lambda: self._users.write(1), 2)
        if any(kind.beside for kind in world.views.values()) and world.chance(0.7):
            self._users.optimize()
        for _ in range(ROUNDS):
            self._act()
        world.note("steps to the end", self._pipelines.finish())
        if world.hbase is not None:
            world.hbase.is_calm = True
            world.hbase.pass_time(SETTLED_SECONDS)
        self._require_all_filled()
        self._readers.check_all()
        self._newcomers.require_heard(self._pipelines)
        if world.hbase is not None:
            require_right_columns(world)
        world.counts["groupings shared"] += len({view.sharing for view in world.db.catalog().views} - {None})
        if world.chance(0.3):
            self._users.drop(self._users.drawn_free())
            self._pipelines.retry(self._pipelines.tidy)
            self._pipelines.wake_newest()
            require_no_leftovers(world)
            if world.hbase is not None:
                require_little_surplus(world)

    def _drawn_kinds(self) -> list[str]:
        draw, number = self._world.random, self._world.seed // len(STORES)
        if self._sharp:
            return [draw.choice([name for name, kind in KINDS.items() if kind.aggregations])]
        names = list(KINDS)
        return [names[number % len(names)], *draw.sample(names, draw.choice((0, 0, 1, 2)))]

    def _require_all_filled(self) -> None:
        record, names = self._world.record(), {view.name for view in self._world.db.catalog().views}
        if names != set(self._world.views):
            raise Wrong(f"there are views {names}, not {set(self._world.views)}")
        if record.stopped and not self._world.counts["void epochs"]:
            raise Wrong(f"views were stopped: {record.stopped}")

    def _act(self) -> None:
        """What may happen between two epochs, and an epoch or two."""
        world, pipelines = self._world, self._pipelines
        self._users.write(world.random.randint(1, 3))
        if world.chance(0.25) and not self._sharp:
            self._users.change_catalog()
        if world.is_looked_after and self._depth == 0 and world.chance(0.7):
            self._admins.act()
        if world.chance(0.2):
            seconds = world.random.choice((1, 299, 3_600, 86_400))
            world.clock.jump(seconds)
            if world.hbase is not None:
                world.hbase.pass_time(min(seconds, SETTLED_SECONDS))
            world.note("clock jumps")
        effect = "zombie" if self._sharp else world.random.choice(EFFECTS)
        pipelines.faulty(lambda: pipelines.epochs(world.random.choice((1, 2))), effect, sharp=self._sharp)
        if world.chance(0.6):
            pipelines.faulty(pipelines.tidy, world.random.choice(("", "crash", "zombie")))
        if world.chance(0.25):
            pipelines.start_late()
        if world.hbase is not None and world.chance(0.1):
            contend(world)
        with world.calm():
            self._readers.read()

    def _meanwhile(self, effect: str) -> None:
        """What others do while somebody is stopped."""
        world, pipelines = self._world, self._pipelines
        if effect == "copy":
            pipelines.start_late()
        elif effect == "rival":  # at the same epoch, and no further
            pipelines.retry(lambda: pipelines.epochs(1))
        elif self._depth < DEPTH_MAX:
            self._depth += 1
            try:
                if self._sharp or world.chance(0.7):
                    pipelines.go_on(lambda: self._users.write(1), world.random.choice(FAR_EPOCHS))
                else:
                    self._act()
            finally:
                self._depth -= 1


def again(seed: int, kind: str) -> str:
    """The line that replays a schedule."""
    return f"make sim SEED={seed} COUNT=1{f' STORE={HBASE}' if kind == HBASE else ''}"
