"""Defining a view: from its text to its catalog entry.

In: a catalog, a name and a text. Out: a `ViewDefinition` under the catalog's next id; the relation and the nodes of an
existing view. Always: pure; the same catalog and text give the same definition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from viewkeeper.catalog.catalog import Catalog, StoredNode, ViewDefinition
from viewkeeper.catalog.sharings import Sharing, Source
from viewkeeper.errors import DuplicateName, InvariantBroken, UnsupportedSql
from viewkeeper.model.identity import Memo
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.plan.assign import assign
from viewkeeper.plan.constants import refuse_failing_constants
from viewkeeper.plan.growth import refuse_growing_texts
from viewkeeper.plan.lower import Lowered, lower_view
from viewkeeper.plan.optimize import SHARE_COPIES, SHARE_GROUPINGS, SHARE_NODES, optimize
from viewkeeper.plan.rules.share_groupings import Grouped
from viewkeeper.plan.rules.shared import fits, over_shared
from viewkeeper.sql.bind import bind_query
from viewkeeper.sql.expressions import AggregationRef
from viewkeeper.sql.refusals import refuse_fallible, refuse_keyless
from viewkeeper.sql.relations import (
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
from viewkeeper.sql.statements import parse_statements
from viewkeeper.sql.syntax import CreateIndex

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
    refuse_growing_texts(relation)
    refuse_failing_constants(relation)
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
