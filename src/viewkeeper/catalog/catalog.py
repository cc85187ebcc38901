"""The catalog: which tables and views a store has.

In: pieces of statements. Out: frozen catalogs; every change makes a new one with a higher version. Always: tables and
views share one namespace, names are case-insensitive and keep their spelling, and an id is never reused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from operator import attrgetter
from typing import Any

from viewkeeper.catalog.shared_state import Sharing, Source
from viewkeeper.errors import DuplicateName, InputError, InvariantBroken, NameInUse, UnknownName, UnsupportedSql
from viewkeeper.model.epochs import AsideRequest
from viewkeeper.model.json_codec import ParsedEntries, Remembered, fields_to_json, from_json_value, to_json_value
from viewkeeper.model.memo import OnceForEachOf
from viewkeeper.model.positions import Positions
from viewkeeper.model.schema import Column, Foreign, TableId, TableSchema
from viewkeeper.model.wording import shown, suggestion
from viewkeeper.plan.nodes import OutputColumn

_SWAPS_KEPT = 8
_LONG = ("tables", "views", "nodes", "replacements")  # each entry of which is encoded once


@dataclass(frozen=True, slots=True)
class ErrorList:
    """A table that lists the keys of rows set aside ("aside") or of groups with a value that does not fit ("degraded")."""

    kind: str
    table: TableId
    key: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A node of the plan that keeps records, `key` → `row`, in `table`. `reads` are the base tables and nodes that it reads.
    It is found by its canonical text, belongs to no view, and exists for as long as a view needs it.

    `tables` are all that it writes, in the order in which lowering asks for them. `backfill` is the id of the view with
    which it was made: nodes made for one view are filled at once.
    """

    table: TableId
    text: str
    reads: tuple[TableId, ...]
    tables: tuple[TableId, ...]
    backfill: TableId
    key: tuple[Column, ...]
    row: tuple[Column, ...]
    exceptions: tuple[ErrorList, ...]


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view: its text as written, and which columns of which records it shows.

    `names` maps each name in the text to its table or view, so that a RENAME does not change its meaning. `needs` are the
    tables of the stored nodes that compute it, its own last; `node` is that one. `replaces` are the views that it replaces,
    or will replace once it is filled, its direct predecessor last. `written` is the id under which the text was first
    created, if that is another. `present`: the index in the row of a count that is 0 in records of other views. `sharing`:
    the sharing that computes it. `rules_off`: the optimizer rules that were off when it was planned. `twin`: "repair" or
    "rebuild", if this is a shadow view.
    """

    id: TableId
    name: str
    text: str
    kind: str  # "SELECTION", "PROJECTION", "AGGREGATE", "DISTINCT", "JOIN", "UNION", "TOP" or "INDEX"
    names: tuple[tuple[str, TableId], ...]
    shown: tuple[OutputColumn, ...]
    needs: tuple[TableId, ...]
    node: StoredNode
    replaces: tuple[TableId, ...] = ()
    written: TableId | None = None
    present: int | None = None
    sharing: TableId | None = None
    rules_off: tuple[str, ...] = ()
    twin: str = ""

    @property
    def source(self) -> Source:
        return Source(self.text, self.names, self.written or self.id)

    @property
    def key(self) -> tuple[Column, ...]:
        """The key columns, under their output names, else their own."""
        names = {shown.index: shown.column.name for shown in reversed(self.shown) if shown.part == "key"}
        return tuple(Column(names.get(at, one.name), one.type, one.nullable) for at, one in enumerate(self.node.key))

    def reads(self, other: TableId) -> bool:
        """Whether its text names a table or view."""
        return any(meant == other for _, meant in self.names)

    def to_json(self) -> dict[str, object]:
        return fields_to_json(self, without=("node",))


@dataclass(frozen=True)
class Catalog:
    """`nodes` are the stored nodes of all views. `dropped`: tables whose records are still to be removed, with the epoch at
    which they were dropped.

    `replacements` are views that are filled beside those they will replace, and shadow views; readers cannot see them yet.
    `swaps` are the nonces of the newest swaps: a writer that lost the reply looks for its own. `rules_off` are the optimizer
    rules that are off for new views. `asides` are open requests for rows set aside. Not slotted: it caches its indexes.
    """

    version: int = 0
    next_id: int = 1
    tables: tuple[TableSchema, ...] = ()
    views: tuple[ViewDefinition, ...] = ()
    nodes: tuple[StoredNode, ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()
    replacements: tuple[ViewDefinition, ...] = ()
    swaps: tuple[str, ...] = ()
    rules_off: tuple[str, ...] = ()
    sharings: tuple[Sharing, ...] = ()
    asides: tuple[AsideRequest, ...] = ()

    @cached_property
    def kept(self) -> tuple[ViewDefinition, ...]:
        """All views that the pipeline maintains, in order of id."""
        return tuple(sorted((*self.views, *self.replacements), key=attrgetter("id")))

    @cached_property
    def _by_name(self) -> dict[str, TableSchema | ViewDefinition]:
        """Tables and views by their names in lower case; of two alike the first, for one may be only explained."""
        return {entry.name.lower(): entry for entry in reversed(self._entries)}

    @cached_property
    def _by_id(self) -> dict[TableId, TableSchema | ViewDefinition]:
        return {entry.id: entry for entry in self._entries}

    @property
    def _entries(self) -> tuple[TableSchema | ViewDefinition, ...]:
        return (*self.tables, *self.views)

    @cached_property
    def _stored(self) -> dict[TableId, StoredNode]:
        return {node.table: node for node in self.nodes}

    def _find(self, name: str) -> TableSchema | ViewDefinition | None:
        if not isinstance(name, str):
            raise InputError(f"{shown(name)} is not the name of a table or view", "pass a text")
        return self._by_name.get(name.lower())

    def table(self, name: str) -> TableSchema:
        """The base table of that name; UnknownName otherwise."""
        found = self._find(name)
        if isinstance(found, ViewDefinition):
            hint = "name its base table: a view is written by the pipeline alone"
            raise UnknownName(f"{name} is a view, not a table", hint)
        if found is None:
            raise UnknownName(f"there is no table {name}", suggestion(name, _names(self.tables), "the tables are"))
        return found

    def view(self, name: str) -> ViewDefinition:
        """The view of that name; UnknownName otherwise."""
        found = self._find(name)
        if isinstance(found, TableSchema):
            raise UnknownName(f"{name} is a table, not a view")
        if found is None:
            raise UnknownName(f"there is no view {name}", suggestion(name, _names(self.views), "the views are"))
        return found

    @cached_property
    def tables_by_id(self) -> dict[TableId, TableSchema]:
        return {table.id: table for table in self.tables}

    def named(self, name: str) -> TableSchema | ViewDefinition:
        """The table or view of that name; UnknownName otherwise."""
        if (found := self._find(name)) is None:
            raise UnknownName(f"there is no table or view {name}", suggestion(name, _names(self._entries), "there are"))
        return found

    def by_id(self, meant: TableId) -> TableSchema | ViewDefinition:
        return self._by_id[meant]

    def bases_of(self, view: ViewDefinition) -> tuple[TableId, ...]:
        """The base tables that a view is computed from, directly or through other views."""
        read = {source for node in self.stored(view) for source in node.reads}
        return tuple(sorted(read - self._stored.keys()))

    def stored(self, view: ViewDefinition) -> tuple[StoredNode, ...]:
        """The stored nodes that a view needs, its own last."""
        return tuple(self._stored[table] for table in view.needs)

    @property
    def lasting_nodes(self) -> tuple[StoredNode, ...]:
        """The nodes that other views may use: not those that go when a repair is done."""
        kept = {table for view in self.kept if view.twin != "repair" for table in view.needs}
        return tuple(node for node in self.nodes if node.table in kept)

    def sharing(self, view: ViewDefinition) -> Sharing | None:
        return None if view.sharing is None else self._sharings.get(view.sharing)

    @cached_property
    def _sharings(self) -> dict[TableId, Sharing]:
        return {sharing.id: sharing for sharing in self.sharings}

    def own_nodes(self, view: ViewDefinition) -> frozenset[TableId]:
        """The tables of the nodes that a view alone needs."""
        others = {table for other in self.kept if view.id not in (other.id, *other.replaces) for table in other.needs}
        return frozenset(view.needs) - others

    def as_of(self, view: TableId) -> Catalog:
        """The tables as they were when the view with that id was written: `SELECT *` means the columns of then."""
        if view >= self._newest_column:
            return self
        return replace(self, tables=tuple(table.as_of(view) for table in self.tables))

    @cached_property
    def _newest_column(self) -> int:
        """The last ALTER TABLE that added columns."""
        return max((table.columns[-1].added for table in self.tables), default=0)

    def has(self, name: str) -> bool:
        return self._find(name) is not None

    def kind_of(self, name: str) -> str | None:
        """What has that name: a table, a view or an index; None when nothing has."""
        if isinstance(found := self._find(name), ViewDefinition):
            return "index" if found.kind == "INDEX" else "view"
        return None if found is None else "table"

    def with_table(self, table: TableSchema) -> Catalog:
        """Add a table that carries the catalog's next id."""
        self._refuse_taken(table.name)
        self._check_id(table.id, table.name)
        next_id = max(table.tables) + 1
        return replace(self, version=self.version + 1, next_id=next_id, tables=(*self.tables, table))

    def with_view(self, view: ViewDefinition, nodes: Sequence[StoredNode]) -> Catalog:
        """Add a view that was defined against this catalog, and the nodes that it needs."""
        self._refuse_taken(view.name)
        self._refuse_changing(view)
        self._check_id(view.id, view.name)
        return self.with_explained(view, nodes)

    def with_explained(self, view: ViewDefinition, nodes: Sequence[StoredNode]) -> Catalog:
        """The same for a view that is only explained, whatever its name."""
        return self._with_nodes(view, nodes, views=(*self.views, view))

    def with_replacement(self, view: ViewDefinition, nodes: Sequence[StoredNode], epoch: int) -> Catalog:
        """Fill a view beside the one of its name, to replace it; an earlier unfinished replacement is dropped."""
        old = self.view(view.name)
        self._check_id(view.id, view.name)
        self._refuse_changing(view)
        self._refuse_read(f"view {old.name}", old.id)
        kept = tuple(other for other in self.replacements if other.replaces[-1] != old.id)
        new = replace(view, name=old.name, replaces=(*old.replaces, old.id))
        return self._with_nodes(view, nodes, replacements=(*kept, new))._without_unneeded(epoch)

    def _with_nodes(self, view: ViewDefinition, nodes: Sequence[StoredNode], **changes: Any) -> Catalog:
        added = tuple(node for node in nodes if node.table not in self._stored)
        next_id = max((view.id, *(table for node in added for table in node.tables))) + 1
        return replace(self, version=self.version + 1, next_id=next_id, nodes=(*self.nodes, *added), **changes)

    def _without_unneeded(self, epoch: int) -> Catalog:
        """The same version of the catalog without the nodes that no view needs: their tables are dropped."""
        needed = {table for view in self.kept for table in view.needs}
        nodes = tuple(node for node in self.nodes if node.table in needed)
        dropped = tuple((table, epoch) for node in self.nodes if node.table not in needed for table in node.tables)
        shared = {view.sharing for view in self.kept}
        sharings = tuple(sharing for sharing in self.sharings if sharing.id in shared)
        return replace(self, nodes=nodes, dropped=(*self.dropped, *dropped), sharings=sharings)

    def with_definition(self, view: ViewDefinition) -> Catalog:
        """The same version of the catalog with another definition of a view that needs the same nodes."""
        return replace(self, views=tuple(view if other.id == view.id else other for other in self.views))

    def with_sharing(self, sharing: Sharing) -> Catalog:
        """Add a sharing that carries the catalog's next id, for views that are defined next."""
        return replace(self, next_id=self.next_id + 1, sharings=(*self.sharings, sharing))

    def with_replaced(self, filled: Collection[int], epoch: int) -> Catalog:
        """Put the filled replacements in place of their views; the same catalog when there are none. A rebuilt view keeps its
        definition and gets other nodes; twins for a repair replace nothing.
        """
        filling = [view for view in self.replacements if view.twin != "repair"]
        ready = {view.replaces[-1]: view for view in filling if view.node.backfill in filled}
        if not ready:
            return self
        views = []
        for view in self.views:
            new = ready.get(view.id, view)
            views.append(replace(view, needs=new.needs, node=new.node) if new.twin else new)
        left = tuple(view for view in self.replacements if view.replaces[-1] not in ready)
        changed = replace(self, version=self.version + 1, views=tuple(views), replacements=left)
        return changed._without_unneeded(epoch)

    def with_shadow_views(self, twins: Iterable[ViewDefinition], nodes: Iterable[StoredNode], next_id: int) -> Catalog:
        """Fill twins, with their nodes, beside their views."""
        nodes, views = (*self.nodes, *nodes), (*self.replacements, *twins)
        return replace(self, version=self.version + 1, next_id=next_id, nodes=nodes, replacements=views)

    def without_shadow_views(self, backfills: Collection[int], epoch: int) -> Catalog:
        """The catalog without the twins that some backfills fill; the same when there are none."""
        kept = tuple(view for view in self.replacements if not (view.twin and view.node.backfill in backfills))
        if kept == self.replacements:
            return self
        return replace(self, version=self.version + 1, replacements=kept)._without_unneeded(epoch)

    def with_asides(self, requests: Iterable[AsideRequest], next_id: int) -> Catalog:
        """Ask for something to be done with rows set aside."""
        return replace(self, version=self.version + 1, next_id=next_id, asides=(*self.asides, *requests))

    def without_asides(self, ids: Collection[int]) -> Catalog:
        """The catalog without some of these requests; the same when there are none."""
        kept = tuple(request for request in self.asides if request.id not in ids)
        return self if kept == self.asides else replace(self, version=self.version + 1, asides=kept)

    def with_name(self, name: str, new: str, *, is_table: bool) -> Catalog:
        """Rename a table or view; its readers refer to it by id."""
        entry = self.table(name) if is_table else self.view(name)
        if new.lower() != entry.name.lower():
            self._refuse_taken(new, "choose another name")
        tables = tuple(replace(t, name=new) if t.id == entry.id else t for t in self.tables)
        views = tuple(replace(v, name=new) if v.id == entry.id else v for v in self.views)
        waiting = tuple(replace(v, name=new) if v.replaces[-1] == entry.id else v for v in self.replacements)
        return replace(self, version=self.version + 1, tables=tables, views=views, replacements=waiting)

    def with_columns(self, name: str, columns: tuple[Column, ...]) -> Catalog:
        """Add columns to a table, after all it has. The change takes an id, so that views made before keep theirs."""
        table = self.table(name)
        if table.foreign is not None:
            hint = "make another table over it with all columns"
            raise UnsupportedSql(f"table {table.name} is mapped, and its columns stay as they are", hint)
        known = {column.name.lower(): column.name for column in table.columns}
        for column in columns:
            if (taken := known.get(column.name.lower())) is not None:
                raise DuplicateName(f"table {table.name} has a column {taken} already", "choose another name")
        added = tuple(replace(column, nullable=True, added=self.next_id) for column in columns)
        wider = replace(table, columns=(*table.columns, *added))
        tables = tuple(wider if other.id == table.id else other for other in self.tables)
        return replace(self, version=self.version + 1, next_id=self.next_id + 1, tables=tables)

    @property
    def foreign(self) -> frozenset[int]:
        """The tables of the store's own users."""
        return frozenset(table.id for table in self.tables if table.foreign is not None)

    def with_staged(self, table: TableId, staging: int, ends: Positions) -> Catalog:
        """The log has the rows of a foreign table's staging up to these positions; the same if it is staged anew."""

        def change(one: TableId, foreign: Foreign) -> Foreign:
            is_meant = one == table and foreign.staging == staging and foreign.staged is None
            return replace(foreign, staged=tuple(sorted(ends.items()))) if is_meant else foreign

        return self._with_foreign(change)

    def with_all_staged(self, stagings: Mapping[TableId, int]) -> Catalog:
        """All that these stagings of foreign tables staged is committed; the same where they are over."""

        def change(one: TableId, foreign: Foreign) -> Foreign:
            is_meant = stagings.get(one) == foreign.staging and foreign.staged is not None
            return replace(foreign, staged=()) if is_meant else foreign

        return self._with_foreign(change)

    def with_staging_reset(self) -> Catalog:
        """All foreign tables are staged again; the same where there are none."""
        return self._with_foreign(lambda _, foreign: replace(foreign, staging=foreign.staging + 1, staged=None))

    def _with_foreign(self, change: Callable[[TableId, Foreign], Foreign]) -> Catalog:
        tables = tuple(
            table if table.foreign is None else replace(table, foreign=change(table.id, table.foreign))
            for table in self.tables
        )
        return self if tables == self.tables else replace(self, version=self.version + 1, tables=tables)

    def without_table(self, name: str, epoch: int) -> Catalog:
        table = self.table(name)
        self._refuse_read(f"table {table.name}", table.id)
        tables = tuple(other for other in self.tables if other.id != table.id)
        dropped = (*self.dropped, *((number, epoch) for number in table.tables))
        return replace(self, version=self.version + 1, tables=tables, dropped=dropped)

    def without_view(self, name: str, epoch: int) -> Catalog:
        view = self.view(name)
        self._refuse_read(f"view {view.name}", view.id)
        views = tuple(other for other in self.views if other.id != view.id)
        kept = tuple(other for other in self.replacements if other.replaces[-1] != view.id)
        return replace(self, version=self.version + 1, views=views, replacements=kept)._without_unneeded(epoch)

    def swapped_by(self, nonce: str) -> Catalog:
        """The same catalog, about to be swapped in by the writer with that nonce."""
        return replace(self, swaps=(nonce, *self.swaps)[:_SWAPS_KEPT])

    def without_dropped(self, ids: Iterable[int]) -> Catalog:
        """Forget dropped tables whose records have been removed."""
        removed = frozenset(ids)
        left = tuple(entry for entry in self.dropped if entry[0] not in removed)
        return replace(self, version=self.version + 1, dropped=left)

    def _refuse_read(self, what: str, entry: TableId) -> None:
        readers = list(dict.fromkeys(view.name for view in self.kept if view.reads(entry)))
        if readers:
            raise NameInUse(f"{what} is read by {', '.join(readers)}", "drop the views first")

    def _refuse_changing(self, view: ViewDefinition) -> None:
        """A text over a view that is being replaced would mean the old one today and the new one tomorrow."""
        for other in self.replacements:
            if not other.twin and view.reads(other.replaces[-1]):
                raise NameInUse(f"view {other.name} is being replaced", "wait until the new one is filled")

    def _check_id(self, given: TableId, name: str) -> None:
        if given != self.next_id:
            raise InvariantBroken(f"{name} has the id {given}, but the next id is {self.next_id}")

    def _refuse_taken(self, name: str, hint: str = "choose another name, or IF NOT EXISTS") -> None:
        taken = self._find(name)
        if taken is not None:
            what = "table" if isinstance(taken, TableSchema) else "view"
            raise DuplicateName(f"there is a {what} {taken.name} already", hint)

    def to_json(self) -> dict[str, object]:
        lists = [getattr(self, name) for name in _LONG]
        plain = iter(_plain_each([entry for entries in lists for entry in entries]))
        entries = {name: list(islice(plain, len(part))) for name, part in zip(_LONG, lists, strict=True)}
        value = fields_to_json(self, without=_LONG) | entries
        _parse.know(value, self)
        return value

    @staticmethod
    def from_json(value: dict) -> Catalog:
        return _parse(value)


def _from_plain(value: dict) -> Catalog:
    if not value:  # a store without a catalog yet
        return Catalog()
    nodes = _parse_nodes(value["nodes"])
    own = {node.table: node for node in nodes}
    lists = {
        name: parse(value[name], lambda view: own[view["needs"][-1]])
        for name, parse in (("views", _parse_views), ("replacements", _parse_replacements))
    }
    return from_json_value(Catalog, value, tables=_parse_tables(value["tables"]), nodes=nodes, **lists)


_parse_tables = ParsedEntries("id", lambda value, _: from_json_value(TableSchema, value))
_parse_nodes = ParsedEntries("table", lambda value, _: from_json_value(StoredNode, value))
_parse_views, _parse_replacements = (
    ParsedEntries("id", lambda value, node: from_json_value(ViewDefinition, value, node=node)) for _ in range(2)
)
_parse = Remembered("catalog", _from_plain)
_plain_each = OnceForEachOf[object, object](to_json_value)


def with_dependents(nodes: Collection[StoredNode], tables: Collection[int]) -> frozenset[int]:
    """The tables of some nodes, and of all that is computed from them."""
    found = {node.table for node in nodes if node.table in tables}
    while more := {node.table for node in nodes if node.table not in found and not found.isdisjoint(node.reads)}:
        found |= more
    return frozenset(found)


def _names(entries: Sequence[TableSchema | ViewDefinition]) -> list[str]:
    return [entry.name for entry in entries]
