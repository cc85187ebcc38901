"""Users: they write base rows, and create, replace, drop and optimize views.

In: the world. Out: what the model of the base is told too. Always: a write whose outcome was not told is looked up in the
log; a statement that was not answered is executed again.
"""

from __future__ import annotations

from decimal import Decimal

from tests.support.simulation.faults import Crash
from tests.support.simulation.kinds import AUDITED_MAX, COLUMNS, KINDS, TABLES, Kind, with_their_sources
from tests.support.simulation.recomputed import Change
from tests.support.simulation.world import World, Wrong
from viewkeeper.errors import InputError, NameInUse, StoreUnavailable, UnsupportedSql
from viewkeeper.model.keys import encode_key
from viewkeeper.model.positions import Positions
from viewkeeper.plan.optimize import SWITCHES
from viewkeeper.stores.local.placement import slot_of

KEYS, GROUPS, DOUBLES = "abcdefgh", ("a", "b", None), (0.1, 0.7, 1e16, -1e16, 2.5, None)
TRIES_MAX = 60  # at a statement that a store does not answer


class Users:
    """Clients of one database."""

    def __init__(self, world: World, *, deletes: float) -> None:
        self._world, self._deletes = world, deletes
        self._audited = 0

    def make_tables(self) -> None:
        for ddl in TABLES.values():
            self.execute(ddl)

    def write(self, transactions: int) -> None:
        """Single changes, and now and then a group of them."""
        for _ in range(transactions):
            changes = [self._drawn_change()]
            if self._world.chance(0.2):
                changes += self._beside(changes[0], self._world.random.choice((1, 2, 3)))
            self._world.base.begin(self._settled())
            try:
                with self._world.calm():
                    self._write(changes)
            except Crash:
                pass
            if self._world.base.write(changes, self._world.store.ends()):
                self._world.counts["base updates"] += len(changes)
                self._world.note("transactions", changes)

    def _settled(self) -> Positions:
        """Where the logs end, with the entries of a move whose mover died."""
        if self._world.is_looked_after:
            self._world.store.settle()
        return self._world.store.ends()

    def _drawn_change(self) -> Change:
        draw, now = self._world.random, self._world.base.now
        table, key = draw.choice(("l", "l", "r")), draw.choice(KEYS)
        old = now.get((table, key))
        if old is not None and draw.random() < self._deletes:
            return table, key, None
        row = (draw.choice(GROUPS), draw.choice((0, 1, 2, 3, 4, None)))
        return (table, key, row) if table == "r" else (table, key, (*row, draw.choice(DOUBLES), self._audit(old)))

    def _audit(self, old: tuple | None) -> Decimal:
        """What the row had, and a digit of its own for this update."""
        before = Decimal(0) if old is None else old[-1]
        if self._audited >= AUDITED_MAX:
            return before
        self._audited += 1
        return before + Decimal(4 ** (self._audited - 1))

    def _beside(self, first: Change, count: int) -> list[Change]:
        """Changes of other rows on the node of the first one."""
        node, found = self._node(first), {first[:2]: first}
        for _ in range(count):
            change = self._drawn_change()
            if self._node(change) == node and change[:2] not in found:
                found[change[:2]] = change
        return list(found.values())[1:]

    def _node(self, change: Change) -> int:
        with self._world.calm():
            table = self._world.db.catalog().table(change[0])
        placement = self._world.store.meta.read_placement()  # other processes may have finished a move
        return placement.slots[slot_of(encode_key(table.key_columns, (change[1],)))]

    def _write(self, changes: list[Change]) -> None:
        with self._world.db.write() as group:
            for table, key, row in changes:
                if row is None:
                    group.delete(table, key)
                else:
                    group.put(table, key, dict(zip(list(COLUMNS[table])[1:], row, strict=True)))

    def create(self, kind: Kind) -> None:
        self.execute(kind.create)
        self._world.views[kind.name] = kind
        self._world.note(f"view {kind.name}")

    def change_catalog(self) -> None:
        """Optimize, replace a view that no other one reads, or drop it and make it again, or another one."""
        world = self._world
        if world.chance(0.4):
            self.optimize()
            return
        kind = self.drawn_free()
        if world.chance(0.4) and not kind.index:
            self.execute(kind.replace)
            world.note("catalog changes", "replace", kind.name)
            return
        self.drop(kind)
        other = world.random.choice((kind.name, world.random.choice(sorted(KINDS))))
        for new in with_their_sources([other]):
            if new.name not in world.views:
                try:
                    self.create(new)
                except NameInUse:  # what it reads is being replaced
                    return

    def drawn_free(self) -> Kind:
        """One of the views that no other one reads."""
        views = self._world.views
        read = {source for kind in views.values() for source in kind.reads}
        return self._world.random.choice([kind for name, kind in views.items() if name not in read])

    def drop(self, kind: Kind) -> None:
        self._world.views.pop(kind.name)
        self._world.shown.discard(kind.name)
        self.execute(kind.drop)
        self._world.note("catalog changes", "drop", kind.name)

    def optimize(self) -> None:
        """Plan all views anew, with some rules off at times."""
        off = [rule for rule in SWITCHES if self._world.chance(0.2)]
        without = f" WITHOUT ({', '.join(off)})" if off and self._world.chance(0.5) else ""
        try:
            self.execute(f"OPTIMIZE VIEWS{without}")
        except UnsupportedSql:  # a view has no plan without these rules
            without = "refused"
        self._world.note("catalog changes", "optimize", without)

    def execute(self, sql: str) -> None:
        """A statement, again where no answer came."""
        unanswered = 0
        for _ in range(TRIES_MAX):
            try:
                self._world.db.execute(sql)
                return
            except StoreUnavailable:
                unanswered += 1
                self._world.note("statements without an answer")
            except InputError:  # it was done, or was done late
                if not unanswered:
                    raise
                return
        raise Wrong(f"{sql} was never answered")
