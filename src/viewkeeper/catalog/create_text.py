"""The statement that makes a table, view or index as it is now.

In: a catalog and one of its entries. Out: SQL. Always: run in a store that has what it reads, it makes the same; a
view's text is the user's own, changed only where a table was renamed or has columns added after the view.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.scope import traverse_scope

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.model.schema import TableSchema
from viewkeeper.model.syntax import CreateIndex
from viewkeeper.sql.ddl import using_text
from viewkeeper.sql.query_parser import parse_query, quoted
from viewkeeper.sql.statement_parser import parse_statements


def create_text(catalog: Catalog, entry: TableSchema | ViewDefinition) -> str:
    """The CREATE statement of a table, view or index."""
    if isinstance(entry, TableSchema):
        return _table_text(entry)
    if entry.kind == "INDEX":
        return _index_text(catalog, entry)
    return f"CREATE MATERIALIZED VIEW {quoted(entry.name)} AS\n{_query_text(catalog, entry)}"


def _table_text(table: TableSchema) -> str:
    lines = []
    for column in table.columns:
        constraint = "" if column.nullable or column.name in table.key else " NOT NULL"
        lines.append(f"{quoted(column.name)} {column.type}{constraint}")
    lines.append(f"PRIMARY KEY ({_listed(table.key)})")
    using = "" if table.foreign is None else f" {using_text(table, table.foreign)}"
    return f"CREATE TABLE {quoted(table.name)} (\n  " + ",\n  ".join(lines) + f"\n){using}"


def _index_text(catalog: Catalog, index: ViewDefinition) -> str:
    (statement,) = (one for one in parse_statements(index.text) if isinstance(one, CreateIndex))
    table = catalog.tables_by_id[index.names[0][1]]
    included = f" INCLUDE ({_listed(statement.covered)})" if statement.covered else ""
    return f"CREATE INDEX {quoted(index.name)} ON {quoted(table.name)} ({_listed(statement.columns)}){included}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(quoted, names))


def _query_text(catalog: Catalog, view: ViewDefinition) -> str:
    """The text with the current names of what FROM reads, and without columns added later."""
    tree, text = parse_query(view.text), view.text
    meant = dict(view.names)
    has_star = tree.find(exp.Star) is not None
    for table in sorted(_tables(tree), key=lambda node: -node.this.meta["start"]):
        entry = catalog.by_id(meant[table.name.lower()])
        source = quoted(entry.name)
        if has_star and isinstance(entry, TableSchema) and entry.as_of(view.id) != entry:
            then = tuple(column.name for column in entry.as_of(view.id).columns)
            source = f"(SELECT {_listed(then)} FROM {source})"
        if source.lower() not in (table.name.lower(), quoted(table.name).lower()):
            called = "" if table.alias else f" AS {quoted(table.name)}"
            text = text[: table.this.meta["start"]] + source + called + text[table.this.meta["end"] + 1 :]
    return text


def _tables(tree: exp.Expression) -> list[exp.Table]:
    """What FROM reads, without queries of WITH."""
    scopes = traverse_scope(normalize_identifiers(tree.copy(), dialect="spark"))
    sources = [source for scope in scopes for source in scope.sources.values()]
    starts = {source.this.meta["start"] for source in sources if isinstance(source, exp.Table)}
    return [table for table in tree.find_all(exp.Table) if table.this.meta["start"] in starts]
