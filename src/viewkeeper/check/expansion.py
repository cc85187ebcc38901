"""Expansion: the text of a view over base tables alone.

In: a view whose text may name other views. Out: Spark SQL in which every view stands as the subquery that it is, and every
table under a name of its own. Always: the users' own words, not what our planner made of them; a name means what it meant
when the view was written, whatever it is called today, and a table has the columns it had then.
"""

from __future__ import annotations

import sqlglot
from sqlglot import expressions as exp

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import TableSchema
from viewkeeper.plan.catalog import Catalog, ViewDefinition
from viewkeeper.sql.dialect import ViewSpark

Tables = dict[str, TableSchema]


def spelled_out(catalog: Catalog, view: ViewDefinition) -> tuple[str, Tables]:
    """The text, and the tables that it reads by the names they have in it."""
    tables: Tables = {}
    return _expanded(catalog, view, tables).sql(dialect=ViewSpark), tables


def _expanded(catalog: Catalog, view: ViewDefinition, tables: Tables) -> exp.Query:
    then, meant = catalog.as_of(view.id), dict(view.names)
    tree = sqlglot.parse_one(view.text, dialect=ViewSpark)
    if not isinstance(tree, exp.Query):
        raise InvariantBroken(f"view {view.name} is stored with a text that is no query")
    for node in list(tree.find_all(exp.Table)):
        if _is_common_table(node):
            continue
        entry = then.by_id(meant[node.name.lower()])
        alias = _alias(node)
        if isinstance(entry, TableSchema):
            name = f"__table_{entry.id}_{len(entry.columns)}"
            tables[name] = entry
            source: exp.Expression = exp.Table(this=exp.to_identifier(name, quoted=True))
        else:
            source = exp.Subquery(this=_expanded(then, entry, tables))
            if not alias.args.get("columns"):  # where the view's text gives no name, ours need not be Spark's
                names = [exp.to_identifier(shown.column.name, quoted=True) for shown in entry.shown]
                alias.set("columns", names)
        source.set("alias", alias)
        source.set("joins", node.args.get("joins"))  # of a join in parentheses: they hang on its first table
        node.replace(source)
    return tree


def _alias(node: exp.Table) -> exp.TableAlias:
    """What a table is called, and its columns, where the text gives them names."""
    given = node.args.get("alias")
    columns = [] if given is None else given.args.get("columns")
    return exp.TableAlias(this=exp.to_identifier(node.alias or node.name, quoted=True), columns=columns)


def _is_common_table(node: exp.Table) -> bool:
    """Whether the name is that of a WITH around it."""
    inside: exp.Expression = node
    above = node.parent
    while above is not None:
        if isinstance(above, exp.With):  # inside one of them: those before it are known there
            known = above.expressions[: above.expressions.index(inside)]
        else:
            clause = above.args.get("with_")
            known = [] if clause is None or clause is inside else clause.expressions
        if any(common.alias.lower() == node.name.lower() for common in known):
            return True
        inside, above = above, above.parent
    return False
