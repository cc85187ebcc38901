"""Defining a view: from its text to its catalog entry, with a table for each node.

In: a catalog, a name and a text. Out: a `ViewDefinition` under the catalog's next id, and the stored nodes that it needs;
of an existing view its relation, and its nodes. Always: pure; the same catalog and text give the same definition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import Protocol

from viewkeeper.algebra.expressions import AggregationRef
from viewkeeper.algebra.relations import (
    Aggregation,
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
from viewkeeper.algebra.row_key import row_key
from viewkeeper.catalog.catalog import Catalog, StoredNode, ViewDefinition
from viewkeeper.catalog.shared_state import Sharing, Source
from viewkeeper.errors import DuplicateName, InvariantBroken, UnsupportedSql
from viewkeeper.model.memo import Memo
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.model.syntax import CreateIndex
from viewkeeper.plan import share_copies, share_groupings
from viewkeeper.plan.lower import Lowered, lower_view
from viewkeeper.plan.optimize import SWITCHES, optimize, rules_over
from viewkeeper.plan.relation_checks import check_constants, check_text_growth
from viewkeeper.plan.share_groupings import Grouped
from viewkeeper.plan.share_nodes import assign, share_nodes
from viewkeeper.sql.alternatives import refuse_fallible, refuse_keyless
from viewkeeper.sql.bind_query import bind_query
from viewkeeper.sql.statement_parser import parse_statements


class SharingRule(Protocol):
    """What `share_copies` and `share_groupings` know of views that one node computes."""

    def fits(self, relation: Relation, members: tuple[Relation, ...]) -> bool: ...

    def over_shared(self, relation: Relation, members: tuple[Relation, ...]) -> Relation: ...

    def has_room(self, members: tuple[Relation, ...]) -> bool: ...

    def kept_relations(self, members: tuple[Relation, ...]) -> tuple[Relation, ...]: ...


def rule_of(members: tuple[Relation, ...]) -> SharingRule:
    return share_copies if Grouped.of(members[0]) is None else share_groupings


def plans_of(relation: Relation, rules_off: Collection[str] = ()) -> dict[tuple[str, ...], Lowered]:
    """The plans of a relation, by the rules that are off: first with all others, then without some that rewrite it.

    All have the same key, by which clients read a view. A relation that reads views has one plan: the nodes of those views
    are found by the rules that they were planned by.
    """
    found = {tuple(rules_off): lower_view(optimize(relation, without=rules_off))}
    (first,) = found.values()
    parts = list(walk_relations(relation))
    if any(isinstance(part, ViewRows) for part in parts) or not any(isinstance(part, Join) for part in parts):
        return found
    names = [rule.name for rule in rules_over("relation", rules_off) if not rule.is_needed]
    for count in range(1, len(names) + 1):
        for off in combinations(names, count):
            without = tuple(name for name in SWITCHES if name in {*rules_off, *off})
            try:
                refuse_unkept(other := optimize(relation, without=without))
            except UnsupportedSql:
                continue
            if all(other != known.relation for known in found.values()):
                lowered = lower_view(other)
                if _reads_alike(first, lowered):
                    found[without] = lowered
    return found


def rules_off_for(catalog: Catalog, relation: Relation, read: Iterable[TableId]) -> tuple[str, ...]:
    """The rules that are off in the catalog, and, if the relation has a plan without them, those off for views it reads."""
    rewriting = {rule.name for rule in rules_over("relation")}
    views = [entry for entry in map(catalog.by_id, read) if isinstance(entry, ViewDefinition)]
    off = {*catalog.rules_off, *(rule for view in views for rule in view.rules_off if rule in rewriting)}
    try:
        refuse_unkept(optimize(relation, without=off))
    except UnsupportedSql:
        return catalog.rules_off
    return tuple(name for name in SWITCHES if name in off)


def _reads_alike(first: Lowered, other: Lowered) -> bool:
    """Whether both show the same columns under the same key of the same rows."""

    def key(relation: Relation) -> list[tuple[object, int]]:
        parts = row_key(relation)
        return [(one.origin if isinstance(one.origin, Scan) else type(one.origin), one.number) for one in parts]

    same_rows = key(first.relation) == key(other.relation)
    return same_rows and first.root.key == other.root.key and first.shown == other.shown


Defined = tuple[ViewDefinition, tuple[StoredNode, ...]]
Estimate = Callable[[Lowered, Collection[str]], float | None]  # seconds of an epoch, beside the nodes of some texts


def define_view(
    catalog: Catalog, name: str, query_text: str, *, without: Collection[int] = (), estimate: Estimate | None = None
) -> Defined:
    """The view that `CREATE MATERIALIZED VIEW name AS query_text` makes, and the stored nodes that it needs.

    `without`: tables of stored nodes that it must not use, because they are stopped or will be replaced. Of several plans
    the view gets the one that costs least by the `estimate`, given the nodes that are stored.
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
    if sharing is None:
        rules_off = rules_off_for(catalog, relation, names.values())
        rules_off, lowered = _cheapest(catalog, plans_of(relation, rules_off), without, estimate)
    else:
        members = _members(catalog, sharing)
        rules_off = next(view.rules_off for view in catalog.kept if view.sharing == sharing.id)
        lowered = lower_view(optimize(rule_of(members).over_shared(relation, members), without=rules_off))
    view, nodes = _defined(catalog, name, query_text, kind_of(relation), names, lowered, without)
    return replace(view, sharing=None if sharing is None else sharing.id, rules_off=rules_off), nodes


def _cheapest(
    catalog: Catalog, plans: Mapping[tuple[str, ...], Lowered], without: Collection[int], estimate: Estimate | None
) -> tuple[tuple[str, ...], Lowered]:
    """The plan that adds least to what an epoch does; the first, where that is not known."""
    first = next(iter(plans.items()))
    if estimate is None or len(plans) == 1:
        return first
    stored = _usable_nodes(catalog)
    seconds = {off: estimate(plan, share_nodes(plan, stored, without)) for off, plan in plans.items()}
    known = {off: taken for off, taken in seconds.items() if taken is not None}
    cheapest = min(known, key=known.__getitem__, default=first[0])
    return cheapest, plans[cheapest]


def _usable_nodes(catalog: Catalog) -> tuple[StoredNode, ...]:
    return catalog.lasting_nodes if rules_over("nodes", catalog.rules_off) else ()


def _fitting(catalog: Catalog, relation: Relation, without: Collection[int]) -> Sharing | None:
    """A sharing that has all that a new view needs: with it the view adds no node, so no other plan costs less."""
    rule = "share_copies" if Grouped.of(relation) is None else "share_groupings"
    if rule in catalog.rules_off:
        return None
    usable = {view.sharing for view in catalog.kept if not set(view.needs) & set(without)}
    shared = ((one, _members(catalog, one)) for one in catalog.sharings if one.id in usable)
    return next((one for one, members in shared if rule_of(members).fits(relation, members)), None)


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
    nodes = assign(lowered, _usable_nodes(catalog), view_id, without=without)
    needs = tuple(node.table for node in nodes)
    view = ViewDefinition(view_id, name, text, kind, tuple(names.items()), lowered.shown, needs, nodes[-1])
    return replace(view, present=lowered.present, rules_off=catalog.rules_off), nodes


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
            outputs = relation.outputs if isinstance(relation, Project) else ()
            shown = {one.expression.position for one in outputs if isinstance(one.expression, AggregationRef)}
            is_distinct = not grouping.aggregates and shown == set(range(len(grouping.groups)))
            return "DISTINCT" if is_distinct else "AGGREGATE"
        case Join():
            return "JOIN"
        case Union():
            return "UNION"
        case Top():
            return "TOP"
    return "SELECTION" if predicates else "PROJECTION"


def relation_of(catalog: Catalog, view: ViewDefinition) -> Relation:
    """What a view's text means, with its names and columns as they were when it was written."""
    if view.kind != "INDEX":
        try:
            return _meaning(catalog, view.source)
        except UnsupportedSql as error:
            again = f"drop it and create it again: {error.hint}" if error.hint else "drop it and create it again"
            raise UnsupportedSql(f"view {view.name}, which an earlier release took: {error.fact}", again) from error
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
    members = _members(catalog, sharing)
    return rule_of(members).over_shared(relation, members)


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
    sources = [view.source]
    if (sharing := catalog.sharing(view)) is not None:
        yield sharing
        sources += sharing.members
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
