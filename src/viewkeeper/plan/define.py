"""Defining a view: from its text to what the catalog keeps.

In: a catalog, a name and a text. Out: a `ViewDefinition` under the catalog's next id, and the logical plan of one that
is there. Always: pure; the same catalog and text give the same definition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from viewkeeper.errors import DuplicateName, UnsupportedSql
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.plan.assign import assign
from viewkeeper.plan.build import Keeping, build_index, build_view
from viewkeeper.plan.catalog import Catalog, ViewDefinition
from viewkeeper.plan.constants import refuse_failing_constants
from viewkeeper.plan.logical import Base, LogicalPlan
from viewkeeper.plan.lower import Lowered, lower_index, lower_view
from viewkeeper.plan.optimize import optimize
from viewkeeper.plan.stored import StoredNode
from viewkeeper.sql.bind import bind_query
from viewkeeper.sql.expressions import FoldRef
from viewkeeper.sql.refusals import refuse_fallible, refuse_keyless
from viewkeeper.sql.relations import (
    Fold,
    Grouping,
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
from viewkeeper.sql.statements import CreateIndex, parse_statements

Defined = tuple[ViewDefinition, tuple[StoredNode, ...]]


def define_view(catalog: Catalog, name: str, query_text: str, *, without: Collection[int] = ()) -> Defined:
    """The view that `CREATE MATERIALIZED VIEW name AS query_text` makes, and the stored nodes that it needs.

    `without`: tables of stored nodes that it does not use, for they are stopped, or to be made anew.
    """
    names: dict[str, TableId] = {}

    def relation_named(named: str) -> Relation:
        entry = catalog.named(named)
        names[named.lower()] = entry.id
        return _relation(catalog, entry)

    relation = bind_query(query_text, relation_named)
    refuse_failing_constants(relation)
    planned = optimize(relation, without=catalog.rules_off)
    refuse_unkept(planned)
    return _defined(catalog, name, query_text, kind_of(relation), names, lower_view(planned), without)


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
    nodes = assign(lowered, catalog.nodes, view_id, without=without)
    needs = tuple(node.table for node in nodes)
    view = ViewDefinition(view_id, name, text, kind, tuple(names.items()), lowered.shown, needs, nodes[-1])
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
    """What a view is called: by what stands on top of it."""
    below = relation.input if isinstance(relation, Project) else relation
    predicates = 0
    while isinstance(below, (Select, Project, ViewRows)):
        predicates += isinstance(below, Select)
        below = below.input
    match below:
        case Fold(grouping=grouping):
            return "AGGREGATE" if grouping.aggregates or not _shows_groups(relation, grouping) else "DISTINCT"
        case Join():
            return "JOIN"
        case Union():
            return "UNION"
        case Top():
            return "TOP"
    return "SELECTION" if predicates else "PROJECTION"


def _shows_groups(relation: Relation, grouping: Grouping) -> bool:
    """Whether all groups, and nothing else, are shown: SELECT DISTINCT, or as good as that."""
    outputs = relation.outputs if isinstance(relation, Project) else ()
    shown = {output.expression.position for output in outputs if isinstance(output.expression, FoldRef)}
    return shown == set(range(len(grouping.groups)))


def relation_of(catalog: Catalog, view: ViewDefinition) -> Relation:
    """What a view's text means, with its names and columns as they were when it was written."""
    then, meant = catalog.as_of(view.id), dict(view.names)
    return bind_query(view.text, lambda name: _relation(then, then.by_id(meant[name.lower()])))


def planned_relation(catalog: Catalog, view: ViewDefinition) -> Relation:
    """What is computed for a view: what its text means, as the rules have it."""
    return optimize(relation_of(catalog, view), without=catalog.rules_off)


def _relation(catalog: Catalog, entry: TableSchema | ViewDefinition) -> Relation:
    if isinstance(entry, TableSchema):
        return Scan(entry)
    if entry.kind == "INDEX":
        raise UnsupportedSql(f"{entry.name} is an index, which a view cannot read", "read its table")
    return ViewRows(entry.id, relation_of(catalog, entry))


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
    text = _index_text(catalog, name, table, columns, covered)
    return _defined(
        catalog, name, text, "INDEX", {table.lower(): schema.id}, _lower_index(schema, columns, covered), without
    )


def _lower_index(schema: TableSchema, columns: Sequence[str], covered: Sequence[str]) -> Lowered:
    return lower_index(schema, *([schema.position(column) for column in part] for part in (columns, covered)))


def lower(catalog: Catalog, view: ViewDefinition) -> Lowered:
    """The nodes of a view, from its text."""
    if view.kind != "INDEX":
        return _lower(planned_relation(catalog, view))
    statement, schema = _index_of(catalog.as_of(view.id), view)
    return _lower_index(schema, statement.columns, statement.covered)


_lower = lru_cache(maxsize=1024)(lower_view)


def logical_plan(catalog: Catalog, view: ViewDefinition) -> LogicalPlan:
    """The unoptimized plan of a view, from its text."""
    then = catalog.as_of(view.id)
    if view.kind == "INDEX":
        plan = _index_plan(then, view)
    else:
        relation = planned_relation(catalog, view)
        keeping = _keeping(catalog, view, lower(catalog, view))
        plan = build_view(relation, view_id=view.id, name=view.name, keeping=keeping)
    # The base is the table of today, whose first columns are those of then: views of any age share it.
    nodes = (replace(n, table=catalog.table_by_id(n.table.id)) if isinstance(n, Base) else n for n in plan.nodes)
    return LogicalPlan(tuple(nodes))


def _keeping(catalog: Catalog, view: ViewDefinition, lowered: Lowered) -> Keeping:
    """Which of the stored nodes keep the parts of a view's query."""
    by_text = {node.text: node.table for node in catalog.stored(view)}
    tables = {part: by_text[text] for part, text in lowered.relations.items()}
    return Keeping(tables, {other.id: (other.name, other.node.table) for other in catalog.kept})


def _index_text(catalog: Catalog, name: str, table: str, columns: tuple[str, ...], covered: tuple[str, ...]) -> str:
    schema = catalog.table(table)
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


def _index_plan(catalog: Catalog, view: ViewDefinition) -> LogicalPlan:
    statement, schema = _index_of(catalog, view)
    return build_index(
        schema,
        view_id=view.id,
        name=view.name,
        columns=tuple(schema.position(column) for column in statement.columns),
        covered=tuple(schema.position(column) for column in statement.covered),
        stored=view.node.table,
    )


def _index_of(catalog: Catalog, view: ViewDefinition) -> tuple[CreateIndex, TableSchema]:
    statement = parse_statements(view.text)[0]
    if not isinstance(statement, CreateIndex):
        raise UnsupportedSql(f"index {view.name} has no definition", None)
    return statement, catalog.table_by_id(view.names[0][1])
