"""Readers: they look at views, hold snapshots, follow changes, and compare with what DuckDB recomputes.

In: the world. Out: nothing, or `Wrong`. Always: what a reader sees is judged by the positions that its epoch was committed
with; a view that is not filled, or was stopped, is not looked at.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass

from tests.support.oracle import bag_of
from tests.support.simulation.inhbase import require_gets
from tests.support.simulation.kinds import KINDS
from tests.support.simulation.world import World, Wrong
from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.client.session import Snapshot
from viewkeeper.client.set_aside import set_aside
from viewkeeper.client.views import record_of
from viewkeeper.errors import ChangesLost, NotReady, StaleRead, UnknownName
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.read_frontier import ReadTimestamp
from viewkeeper.ports.records import Held

HELD_MAX = 3
KEPT_SECONDS = 600  # at least, where a snapshot is kept by a pin


@dataclass(slots=True)
class Follower:
    """Someone who replays the changes of a view."""

    name: str
    view: int
    epoch: int
    rows: Counter


class Readers:
    """All who read in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[Snapshot] = []
        self._kept: dict[Snapshot, int] = {}  # since when
        self._keys: dict[int, dict[bytes, int]] = {}  # by table: keys that it had once, and their partitions
        self._followers: list[Follower] = []

    def close(self) -> None:
        while self._held:
            self._held.pop().close()

    def read(self) -> None:
        """What readers do at any moment."""
        world = self._world
        if world.chance(0.4):
            self.check()
        if world.chance(0.3):
            self.look_again()
        if world.chance(0.3) and len(self._held) < HELD_MAX:
            self._held.append(self._snapshot())
            world.note("snapshots held", self._held[-1].epoch)
        if world.chance(0.3):
            self._follow()
        for follower in list(self._followers):
            if world.chance(0.5):
                self._catch_up(follower)

    def _snapshot(self) -> Snapshot:
        """One that is kept, or one whose epoch may be given up."""
        world = self._world
        if world.store.capabilities.held_reads or world.chance(0.3):
            snapshot = world.db.snapshot()
            self._kept[snapshot] = world.store.now()
            return snapshot
        return Snapshot(world.db)

    def _is_kept(self, snapshot: Snapshot) -> bool:
        since, world = self._kept.get(snapshot), self._world
        pinned = since is not None and world.store.now() < since + KEPT_SECONDS * 1e9
        return world.store.capabilities.held_reads or pinned

    def check(self) -> None:
        """Views as of the committed epoch, and as of the one before for as long as that is readable."""
        world = self._world
        record, catalog, frontier = world.record(), world.db.catalog(), world.store.read_frontier()
        for epoch in sorted({e for e in record.recent if e >= record.floor and e in world.positions}):
            moment = ReadTimestamp(epoch, record.aborted, frontier)
            with closing(world.store.hold(moment, range(world.store.partitions))) as held:
                for view in readable(catalog, record, epoch):
                    self._compare(view, self._rows(held, view), epoch)
                    if world.hbase is not None and epoch == record.committed:
                        self._compare_gets(held, view, epoch)
        names = {view.name for view in readable(catalog, record, record.committed)}
        if hidden := set() if record.stopped else world.shown - names:
            raise Wrong(f"{hidden} could be read before epoch {record.committed}, and now cannot")
        world.shown |= names

    def _compare_gets(self, held: Held, view: ViewDefinition, epoch: int) -> None:
        table, partitions = view.node.table, range(self._world.store.partitions)
        known = self._keys.setdefault(table, {})
        rows = {key: (part, row) for part in partitions for key, row in held.scan([part], table, b"", None)}
        known |= {key: part for key, (part, _) in rows.items()}
        require_gets(self._world, table, epoch, rows, known)

    def look_again(self) -> None:
        """A snapshot that was held while others went on shows its epoch still; some are let go."""
        for snapshot in list(self._held):
            for view in snapshot.catalog.views:
                try:
                    rows = [tuple(row.values()) for row in snapshot.view(view.name).scan()]
                    if snapshot.epoch:
                        self._compare(view, bag_of(rows), snapshot.epoch)
                        self._compare_aside(snapshot, view)
                except NotReady:
                    continue
                except StaleRead as error:
                    if self._is_kept(snapshot):
                        raise Wrong(f"a snapshot that was to be kept was not: {error}") from error
                    self._world.note("snapshots lost", snapshot.epoch)
                    break
            self._world.note("snapshots read", snapshot.epoch)
            if self._world.chance(0.5):
                snapshot.close()
                self._held.remove(snapshot)

    def check_all(self) -> None:
        """At the end: everything, and every follower to the last change."""
        self.check()
        self._held.append(self._world.db.snapshot())
        self.look_again()
        for follower in list(self._followers):
            self._catch_up(follower)

    def _rows(self, held: Held, view: ViewDefinition) -> Counter:
        pairs = held.scan(range(self._world.store.partitions), view.node.table, b"", None)
        records = (record_of(view, key, row) for key, row in pairs)
        return bag_of(record.values() for record in records if record is not None)

    def _compare(self, view: ViewDefinition, found: Counter, epoch: int) -> None:
        expected = self._world.base.bag(view.name, self._world.positions[epoch])
        self._world.note("states compared", view.name, epoch)
        if found != expected:
            raise Wrong(
                f"{view.name} as of epoch {epoch} (committed {self._world.record().committed}) has "
                f"{dict(found - expected)} too much and lacks {dict(expected - found)}{_audited(view, found)}"
            )

    def _compare_aside(self, snapshot: Snapshot, view: ViewDefinition) -> None:
        if KINDS[view.name].aside:
            listed = set_aside(snapshot, view).count
            expected = self._world.base.aside(view.name, self._world.positions[snapshot.epoch])
            if listed != expected:
                raise Wrong(
                    f"{view.name} lists {listed} rows as set aside as of epoch {snapshot.epoch}, not {expected}"
                )

    def _follow(self) -> None:
        """Someone begins to follow a view."""
        record = self._world.record()
        views = readable(self._world.db.catalog(), record, record.committed)
        if views and record.committed:
            view = self._world.random.choice(views)
            rows = self._world.base.bag(view.name, self._world.positions[record.committed])
            self._followers.append(Follower(view.name, view.id, record.committed, Counter(rows)))

    def _catch_up(self, follower: Follower) -> None:
        """Replay what changed since; where that is lost, the follower gives up."""
        try:
            view = self._world.db.view(follower.name)
            if view.definition.id != follower.view:
                raise UnknownName("it is another one")
            changes = view.changes(follower.epoch)
        except (UnknownName, ChangesLost, NotReady) as error:
            self._world.note("followers lost", type(error).__name__)
            self._followers.remove(follower)
            return
        for change in changes:
            follower.rows.subtract(bag_of([change.before.values()] if change.before else ()))
            follower.rows.update(bag_of([change.after.values()] if change.after else ()))
        follower.epoch = changes.epoch
        expected = self._world.base.bag(follower.name, self._world.positions[changes.epoch])
        self._world.note("changes replayed", follower.name, changes.epoch)
        if any(count < 0 for count in follower.rows.values()) or +follower.rows != expected:
            raise Wrong(
                f"the changes of {follower.name} up to epoch {changes.epoch} give {+follower.rows}, not {expected}"
            )


def readable(catalog: Catalog, record: EpochRecord, epoch: int) -> list[ViewDefinition]:
    """The views that a reader of an epoch may see."""
    return [
        view
        for view in catalog.views
        if record.filled.get(view.node.backfill, epoch + 1) <= epoch and not set(view.needs) & record.stopped.keys()
    ]


def _audited(view: ViewDefinition, found: Counter) -> str:
    """Which updates did not count once, of a view that sums powers of 4."""
    if view.name != "audit":
        return ""
    total = sum(int(row[0] or 0) for row in found)
    digits = [total // 4**i % 4 for i in range(60)]
    return f"; updates that counted more than once: {[i for i, digit in enumerate(digits) if digit > 1]}"
