"""Defining a view: from its text to its catalog entry, with a table for each node.

In: a catalog, a name and a text. Out: a `ViewDefinition` under the catalog's next id, and the stored nodes that it
needs; of an existing view its relation, and its nodes with their tables. Always: pure; the same catalog and text give
the same definition. A node that is stored under the same canonical text is used again, unless other nodes cannot be
filled from it: only the records of copies and γ hold all their output so far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

from viewkeeper.algebra.expressions import AggregationRef
from viewkeeper.algebra.relations import (
    Aggregation,
    Grouping,
    Index,
    Join,
    Project,
    Relation,
    Scan,
    Select,
    Top,
    Union,
    ViewRows,
    is_product,
    walk_relations,
)
from viewkeeper.catalog.catalog import Catalog, ErrorList, StoredNode, ViewDefinition, with_dependents
from viewkeeper.catalog.shared_state import Sharing, Source
from viewkeeper.errors import DuplicateName, InvariantBroken, UnsupportedSql
from viewkeeper.model.memo import Memo
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.model.syntax import CreateIndex
from viewkeeper.plan import share_copies, share_groupings
from viewkeeper.plan.lower import Lowered, lower_view
from viewkeeper.plan.nodes import AggregateNode, Node, ProjectNode
from viewkeeper.plan.optimize import SHARE_COPIES, SHARE_GROUPINGS, SHARE_NODES, optimize
from viewkeeper.plan.relation_checks import check_constants, check_text_growth
from viewkeeper.plan.share_groupings import Grouped
from viewkeeper.sql.alternatives import refuse_fallible, refuse_keyless
from viewkeeper.sql.bind_query import bind_query
from viewkeeper.sql.statement_parser import parse_statements


def assign(
    lowered: Lowered, stored: Collection[StoredNode], view: TableId, *, without: Collection[int] = ()
) -> tuple[StoredNode, ...]:
    """The stored nodes of a view that is made with the id `view`, its own last; new ones have the ids after it.

    `without`: tables of stored nodes that must not be used.
    """
    chosen = _usable(lowered, stored, without)
    placed: dict[int, TableId] = {}
    free = view + 1
    for text, node in zip(lowered.texts, lowered.nodes, strict=True):
        if text not in chosen:
            own = tuple(TableId(free + place) for place in range(len(node.tables)))
            free += len(own)
            placed |= zip(node.tables, own, strict=True)
            chosen[text] = _stored(with_tables(node, placed), text, view)
        placed |= zip(node.tables, chosen[text].tables, strict=True)
    return tuple(chosen[text] for text in lowered.texts)


def placed_nodes(lowered: Lowered, needed: Sequence[StoredNode]) -> tuple[Node, ...]:
    """The nodes of a lowered view with the tables, and the backfill, of the stored nodes that it needs."""
    return _placed.of((lowered, *needed), lambda: _place(lowered, needed))


_placed = Memo[tuple[Node, ...]](kept_max=8192)


def _place(lowered: Lowered, needed: Sequence[StoredNode]) -> tuple[Node, ...]:
    by_text = {one.text: one for one in needed}
    placed: dict[int, TableId] = {}
    found: list[Node] = []
    for text, node in zip(lowered.texts, lowered.nodes, strict=True):
        if text not in by_text:
            raise InvariantBroken(f"no table is assigned to {text}")
        placed |= zip(node.tables, by_text[text].tables, strict=True)
        found.append(replace(with_tables(node, placed), backfill=by_text[text].backfill))
    return tuple(found)


def _usable(lowered: Lowered, stored: Collection[StoredNode], without: Collection[int]) -> dict[str, StoredNode]:
    """The stored nodes that a view can use, by text: from the view's own downwards, each with all that it reads.

    A new node can be filled from records only. So a join or top-n is used only by the nodes that already use it.
    """
    unusable = with_dependents(stored, without)
    newest = {one.text: one for one in stored if one.table not in unusable}
    by_table = {one.table: one for one in stored}
    text_of = dict(zip((node.table for node in lowered.nodes), lowered.texts, strict=True))
    readers: dict[str, list[str]] = {text: [] for text in lowered.texts}
    for text, node in zip(lowered.texts, lowered.nodes, strict=True):
        for edge in node.edges:
            if edge.source in text_of:
                readers[text_of[edge.source]].append(text)
    refused: set[str] = set()
    while True:
        chosen: dict[str, StoredNode] = {}
        before = len(refused)
        for text, node in zip(reversed(lowered.texts), reversed(lowered.nodes), strict=True):
            users = [reader for reader in readers[text] if reader in chosen]
            inputs = [by_table[source] for user in users for source in chosen[user].reads if source in by_table]
            used = {one.table: one for one in inputs if one.text == text}
            has_records = isinstance(node, (ProjectNode, AggregateNode))
            shared = len(users) < len(readers[text]) and not has_records
            if len(used) > 1 or (used and (shared or text in refused)):
                refused |= set(users)
                break
            if used:
                chosen[text] = next(iter(used.values()))
            elif has_records and text in newest and text not in refused:
                chosen[text] = newest[text]
        if len(refused) == before:
            return chosen


def _stored(node: Node, text: str, view: TableId) -> StoredNode:
    exceptions = [ErrorList("aside", edge.aside, edge.key) for edge in node.edges if edge.aside is not None]
    if isinstance(node, AggregateNode) and node.degraded is not None:
        exceptions.append(ErrorList("degraded", node.degraded, node.key))
    reads = tuple(dict.fromkeys(edge.source for edge in node.edges))
    key, row = (node.key, node.row) if isinstance(node, (ProjectNode, AggregateNode)) else ((), ())
    return StoredNode(node.table, text, reads, node.tables, view, key, row, tuple(exceptions))


def with_tables(value: Any, placed: Mapping[int, TableId]) -> Any:
    """A node, or a part of one, with tables of its own in place of those from lowering."""
    if isinstance(value, tuple):
        return tuple(with_tables(item, placed) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {}
    for field in fields(value):
        part = getattr(value, field.name)
        is_table = field.type in ("TableId", "TableId | None")
        changes[field.name] = placed.get(part, part) if is_table else with_tables(part, placed)
    return replace(value, **changes)


def fits(relation: Relation, members: tuple[Relation, ...]) -> bool:
    """Whether what `members` share has all that a view needs."""
    return (share_copies if Grouped.of(members[0]) is None else share_groupings).fits(relation, members)


def over_shared(relation: Relation, members: tuple[Relation, ...]) -> Relation:
    """A view's relation over what `members` share, one of which it is, or is like."""
    return (share_copies if Grouped.of(members[0]) is None else share_groupings).over_shared(relation, members)


Defined = tuple[ViewDefinition, tuple[StoredNode, ...]]


def define_view(catalog: Catalog, name: str, query_text: str, *, without: Collection[int] = ()) -> Defined:
    """The view that `CREATE MATERIALIZED VIEW name AS query_text` makes, and the stored nodes that it needs.

    `without`: tables of stored nodes that it must not use, because they are stopped or will be made anew.
    """
    names: dict[str, TableId] = {}

    def relation_named(named: str) -> Relation:
        entry = catalog.named(named)
        names[named.lower()] = entry.id
        return _relation(catalog, entry)

    relation = bind_query(query_text, relation_named)
    check_text_growth(relation)
    check_constants(relation)
    refuse_unkept(optimize(relation, without=catalog.rules_off))
    sharing = _fitting(catalog, relation, without)
    computed = relation if sharing is None else over_shared(relation, _members(catalog, sharing))
    lowered = lower_view(optimize(computed, without=catalog.rules_off))
    view, nodes = _defined(catalog, name, query_text, kind_of(relation), names, lowered, without)
    return replace(view, sharing=None if sharing is None else sharing.id), nodes


def _fitting(catalog: Catalog, relation: Relation, without: Collection[int]) -> Sharing | None:
    """A sharing that has all that a new view needs."""
    rule = SHARE_GROUPINGS if Grouped.of(relation) is not None else SHARE_COPIES
    if rule in catalog.rules_off:
        return None
    usable = {view.sharing for view in catalog.kept if not set(view.needs) & set(without)}
    found = (one for one in catalog.sharings if one.id in usable and fits(relation, _members(catalog, one)))
    return next(found, None)


def _members(catalog: Catalog, sharing: Sharing) -> tuple[Relation, ...]:
    return tuple(_meaning(catalog, member) for member in sharing.members)


def _defined(
    catalog: Catalog,
    name: str,
    text: str,
    kind: str,
    names: Mapping[str, TableId],
    lowered: Lowered,
    without: Collection[int],
) -> Defined:
    view_id = TableId(catalog.next_id)
    stored = () if SHARE_NODES in catalog.rules_off else catalog.lasting_nodes
    nodes = assign(lowered, stored, view_id, without=without)
    view = ViewDefinition(
        view_id,
        name,
        text,
        kind,
        tuple(names.items()),
        lowered.shown,
        tuple(node.table for node in nodes),
        nodes[-1],
        present=lowered.present,
        rules_off=catalog.rules_off,
    )
    return view, nodes


def refuse_unkept(relation: Relation) -> None:
    """Raise where a join would pair every row with every row, or its residual may fail."""
    joins = [part for part in walk_relations(relation) if isinstance(part, Join)]
    for join in reversed(joins):
        if is_product(join):
            raise refuse_keyless("JOIN", *join.labels)
        if join.residual is not None and join.residual.fallible:
            raise refuse_fallible(f"a {join.kind.upper()} JOIN", join.residual)


def kind_of(relation: Relation) -> str:
    """The kind of a view, named after its topmost operator."""
    below = relation.input if isinstance(relation, Project) else relation
    predicates = 0
    while isinstance(below, (Select, Project, ViewRows)):
        predicates += isinstance(below, Select)
        below = below.input
    match below:
        case Aggregation(grouping=grouping):
            return "AGGREGATE" if grouping.aggregates or not _shows_groups(relation, grouping) else "DISTINCT"
        case Join():
            return "JOIN"
        case Union():
            return "UNION"
        case Top():
            return "TOP"
    return "SELECTION" if predicates else "PROJECTION"


def _shows_groups(relation: Relation, grouping: Grouping) -> bool:
    """Whether exactly the groups are shown: SELECT DISTINCT, or an equivalent."""
    outputs = relation.outputs if isinstance(relation, Project) else ()
    shown = {output.expression.position for output in outputs if isinstance(output.expression, AggregationRef)}
    return shown == set(range(len(grouping.groups)))


def relation_of(catalog: Catalog, view: ViewDefinition) -> Relation:
    """What a view's text means, with its names and columns as they were when it was written."""
    if view.kind != "INDEX":
        return _meaning(catalog, view.source)
    statement = parse_statements(view.text)[0]
    if not isinstance(statement, CreateIndex):
        raise InvariantBroken(f"index {view.name} has no definition")
    then = catalog.as_of(view.source.written)
    return _index(then.tables_by_id[view.names[0][1]], statement.columns, statement.covered)


def computed_relation(catalog: Catalog, view: ViewDefinition) -> Relation:
    """What is computed for a view: what its text means, or the same over a γ that it shares with others."""
    relation, sharing = relation_of(catalog, view), catalog.sharing(view)
    if sharing is None:
        return relation
    return over_shared(relation, _members(catalog, sharing))


def _meaning(catalog: Catalog, source: Source) -> Relation:
    then = catalog.as_of(source.written)
    return _bound(source.text, tuple((name, _relation(then, then.by_id(meant))) for name, meant in source.names))


@lru_cache(maxsize=4096)
def _bound(text: str, names: tuple[tuple[str, Relation], ...]) -> Relation:
    meant = dict(names)
    return bind_query(text, lambda name: meant[name.lower()])


def _index(table: TableSchema, indexed: Sequence[str], covered: Sequence[str]) -> Index:
    return Index(Scan(table), *(tuple(table.position(column) for column in part) for part in (indexed, covered)))


def _relation(catalog: Catalog, entry: TableSchema | ViewDefinition) -> Relation:
    if isinstance(entry, TableSchema):
        return Scan(entry)
    if entry.kind == "INDEX":
        raise UnsupportedSql(f"{entry.name} is an index, which a view cannot read", "read its table")
    return ViewRows(entry.id, computed_relation(catalog, entry))


def define_index(
    catalog: Catalog,
    name: str,
    table: str,
    columns: tuple[str, ...],
    covered: tuple[str, ...] = (),
    *,
    without: Collection[int] = (),
) -> Defined:
    """The index that `CREATE INDEX name ON table (columns) INCLUDE (covered)` makes."""
    schema = catalog.table(table)
    text = _index_text(schema, name, columns, covered)
    lowered = lower_view(_index(schema, columns, covered))
    return _defined(catalog, name, text, "INDEX", {table.lower(): schema.id}, lowered, without)


def lower(catalog: Catalog, view: ViewDefinition) -> Lowered:
    """The nodes of a view, from its text; made once, until something that the text names is another."""
    return _lowered.of(
        (view, *_named(catalog, view)),
        lambda: _lower(optimize(computed_relation(catalog, view), without=view.rules_off)),
    )


def _named(catalog: Catalog, view: ViewDefinition) -> Iterator[object]:
    """The tables and views that a view's text, or the sharing that computes it, names, and all that those views name."""
    sharing = catalog.sharing(view)
    if sharing is not None:
        yield sharing
    sources = [view.source, *(() if sharing is None else sharing.members)]
    for entry in dict.fromkeys(meant for source in sources for _, meant in source.names):
        yield (found := catalog.by_id(entry))
        if isinstance(found, ViewDefinition):
            yield from _named(catalog, found)


_lowered = Memo[Lowered](kept_max=8192)
_lower = lru_cache(maxsize=1024)(lower_view)  # for an equal text under other names, or of another store


def _index_text(schema: TableSchema, name: str, columns: tuple[str, ...], covered: tuple[str, ...]) -> str:
    key = {part.lower() for part in schema.key}
    spelled = [schema.column(column).name for column in columns]
    included = [schema.column(column).name for column in covered]
    if len({column.lower() for column in (*spelled, *included)}) < len(spelled) + len(included):
        raise DuplicateName(f"index {name} names a column twice", "name it once")
    for column in included:
        if column.lower() in key:
            raise UnsupportedSql(f"INCLUDE names the key column {column}", "an index holds the whole key already")
    include = f" INCLUDE ({', '.join(included)})" if included else ""
    return f"CREATE INDEX {name} ON {schema.name} ({', '.join(spelled)}){include}"
