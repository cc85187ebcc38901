"""Expansion: the text of a view over base tables alone.

In: a view whose text may name other views. Out: a query in which every view, and every name of a WITH, is replaced by
its subquery, and every table has a name of its own. Always: the users' own text, not our planner's; a name means what
it meant when the view was written, whatever it means now, and a table has the columns it had then.
"""

from __future__ import annotations

import sqlglot
from sqlglot import expressions as exp

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import TableSchema
from viewkeeper.sql.dialect import ViewSpark

Tables = dict[str, TableSchema]


def spelled_out(catalog: Catalog, view: ViewDefinition) -> tuple[exp.Query, Tables]:
    """The query, and the tables that it reads by the names they have in it."""
    tables: Tables = {}
    return _expanded(catalog, view, tables), tables


def name_of(table: TableSchema) -> str:
    """The name of a table in the query; views of another age may see fewer columns of it."""
    return f"__table_{table.id}_{len(table.columns)}"


def changed_name(table: TableSchema) -> str:
    """The name of what has the changed rows of a table, as they were and as they became."""
    return f"__changed_{table.id}_{len(table.columns)}"


def _expanded(catalog: Catalog, view: ViewDefinition, tables: Tables) -> exp.Query:
    then, meant = catalog.as_of(view.id), dict(view.names)
    tree = sqlglot.parse_one(view.text, dialect=ViewSpark)
    if not isinstance(tree, exp.Query):
        raise InvariantBroken(f"view {view.name} is stored with a text that is no query")
    for clause in reversed(list(tree.find_all(exp.With))):  # inner ones first, so no name hides another
        _inline(clause)
    for node in list(tree.find_all(exp.Table)):
        entry = then.by_id(meant[node.name.lower()])
        if isinstance(entry, TableSchema):
            tables[name_of(entry)] = entry
            _put(node, exp.Table(this=exp.to_identifier(name_of(entry), quoted=True)))
        else:  # where the view's text gives no name, ours may differ from Spark's
            names = [exp.to_identifier(shown.column.name, quoted=True) for shown in entry.shown]
            _put(node, exp.Subquery(this=_expanded(then, entry, tables)), names)
    return tree


def _inline(clause: exp.With) -> None:
    """Replace the names of a WITH by its queries, the last first: a query may name those before it, not the others."""
    query = clause.parent
    if query is None:
        raise InvariantBroken("a WITH stands before no query")
    clause.pop()
    for common in reversed(clause.expressions):
        columns = common.args["alias"].args.get("columns") or []
        for node in [table for table in query.find_all(exp.Table) if table.name.lower() == common.alias.lower()]:
            _put(node, exp.Subquery(this=common.this.copy()), [column.copy() for column in columns])


def _put(node: exp.Table, source: exp.Expression, columns: list[exp.Identifier] | None = None) -> None:
    """Replace a table by `source`, under the table's name in the text; with its column names, where it gives any."""
    given = node.args.get("alias")
    named = [] if given is None else given.args.get("columns") or []
    alias = exp.to_identifier(node.alias or node.name, quoted=True)
    source.set("alias", exp.TableAlias(this=alias, columns=named or columns or []))
    source.set("joins", node.args.get("joins"))  # of a join in parentheses: they are attached to its first table
    node.replace(source)
