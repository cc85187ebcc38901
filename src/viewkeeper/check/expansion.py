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
        alias = exp.TableAlias(this=exp.to_identifier(node.alias or node.name, quoted=True))
        if isinstance(entry, TableSchema):
            name = f"__table_{entry.id}_{len(entry.columns)}"
            tables[name] = entry
            node.replace(exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias))
        else:
            node.replace(exp.Subquery(this=_expanded(then, entry, tables), alias=alias))
    return tree


def _is_common_table(node: exp.Table) -> bool:
    """Whether the name is that of a WITH around it."""
    above = node.parent
    inside: exp.Expression = node
    while above is not None:
        clause = above.args.get("with_")
        for common in clause.expressions if clause is not None else ():
            if common is inside:
                break  # those behind it, and itself, are not known here
            if common.alias.lower() == node.name.lower():
                return True
        if isinstance(above, exp.With):
            for common in above.expressions:
                if common is inside:
                    break
                if common.alias.lower() == node.name.lower():
                    return True
        inside, above = above, above.parent
    return False
