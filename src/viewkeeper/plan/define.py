"""Defining a view: from its text to what the catalog keeps.

In: a catalog, a name and a text. Out: a `ViewDefinition` under the catalog's next id, and the logical plan of one that
is there. Always: pure; the same catalog and text give the same definition.
"""

from __future__ import annotations

from dataclasses import replace

from viewkeeper.errors import DuplicateName, UnsupportedSql
from viewkeeper.model.schema import TableId
from viewkeeper.plan.build import build_index, build_view
from viewkeeper.plan.catalog import Catalog, ViewDefinition
from viewkeeper.plan.compile import compile_view
from viewkeeper.plan.constants import refuse_failing_constants
from viewkeeper.plan.logical import Base, LogicalPlan
from viewkeeper.sql.bind import bind_query
from viewkeeper.sql.statements import CreateIndex, parse_statements


def define_view(catalog: Catalog, name: str, query_text: str) -> ViewDefinition:
    """The view that `CREATE MATERIALIZED VIEW name AS query_text` makes."""
    query = bind_query(query_text, catalog.table)
    refuse_failing_constants(query)
    view_id = TableId(catalog.next_id)
    node, shown = compile_view(build_view(query, view_id=view_id, name=name))
    kind = "SELECTION" if query.where is not None else "PROJECTION"
    kind = "AGGREGATE" if query.grouping is not None else kind
    kind = "DISTINCT" if query.distinct else kind
    return ViewDefinition(view_id, name, query_text, kind, query.table.id, shown, node)


def define_index(
    catalog: Catalog, name: str, table: str, columns: tuple[str, ...], covered: tuple[str, ...] = ()
) -> ViewDefinition:
    """The index that `CREATE INDEX name ON table (columns) INCLUDE (covered)` makes."""
    schema = catalog.table(table)
    text = _index_text(catalog, name, table, columns, covered)
    view_id = TableId(catalog.next_id)
    node, shown = compile_view(_index_plan(catalog, name, text, view_id))
    return ViewDefinition(view_id, name, text, "INDEX", schema.id, shown, node)


def logical_plan(catalog: Catalog, view: ViewDefinition, *, before_images: bool = True) -> LogicalPlan:
    """The unoptimized plan of a view, from its text."""
    then = catalog.as_of(view.id)
    if view.kind == "INDEX":
        plan = _index_plan(then, view.name, view.text, view.id, before_images=before_images)
    else:
        query = bind_query(view.text, then.table)
        plan = build_view(query, view_id=view.id, name=view.name, before_images=before_images)
    # The base is the table of today, whose first columns are those of then: views of any age share it.
    nodes = (replace(n, table=catalog.table_by_id(n.table.id)) if isinstance(n, Base) else n for n in plan.nodes)
    return LogicalPlan(tuple(nodes))


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


def _index_plan(catalog: Catalog, name: str, text: str, view_id: TableId, *, before_images: bool = True) -> LogicalPlan:
    statement = parse_statements(text)[0]
    if not isinstance(statement, CreateIndex):
        raise UnsupportedSql(f"index {name} has no definition", None)
    schema = catalog.table(statement.table)
    return build_index(
        schema,
        view_id=view_id,
        name=name,
        columns=tuple(schema.position(column) for column in statement.columns),
        covered=tuple(schema.position(column) for column in statement.covered),
        before_images=before_images,
    )
