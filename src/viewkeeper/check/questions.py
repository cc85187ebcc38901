"""Questions: what another engine is asked, to judge a view.

In: a view's original text. Out: the same query in Spark SQL with the view's key added as `__key_0`, `__key_1`, …. Always:
the text's own expressions are asked for, not what our planner made of them; nothing of `views` or `engine` is used.
"""

from __future__ import annotations

import sqlglot
from sqlglot import expressions as exp

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import TableSchema
from viewkeeper.plan.catalog import ViewDefinition
from viewkeeper.sql.dialect import ViewSpark

KEY_NAME = "__key_{}"


def question_for(view: ViewDefinition, table: TableSchema) -> str:
    """Spark SQL whose answer holds the view's key and then what it shows."""
    if view.kind == "INDEX":
        return _index_question(view, table)
    tree = sqlglot.parse_one(view.text, dialect=ViewSpark)
    if not isinstance(tree, exp.Select):
        raise InvariantBroken(f"view {view.name} is stored with a text that is no SELECT")
    keys = (
        _group_keys(tree, table) if view.kind == "AGGREGATE" else [exp.column(name, quoted=True) for name in table.key]
    )
    selected = [exp.alias_(key.copy(), KEY_NAME.format(i)) for i, key in enumerate(keys)]
    tree.set("expressions", [*selected, *tree.expressions])
    # positions in GROUP BY would now count the added columns too
    if tree.args.get("group"):
        tree.args["group"].set("expressions", [key.copy() for key in keys])
    return tree.sql(dialect=ViewSpark)


def _index_question(view: ViewDefinition, table: TableSchema) -> str:
    keys = [exp.alias_(exp.column(c.name, quoted=True), KEY_NAME.format(i)) for i, c in enumerate(view.node.key)]
    shown = [exp.column(item.column.name, quoted=True) for item in view.shown]
    return exp.select(*keys, *shown).from_(exp.to_table(table.name)).sql(dialect="spark")


def _group_keys(tree: exp.Select, table: TableSchema) -> list[exp.Expression]:
    group = tree.args.get("group")
    return [_resolve(tree, item, table) for item in group.expressions] if group else []


def _resolve(tree: exp.Select, item: exp.Expression, table: TableSchema) -> exp.Expression:
    """The expression that a position in GROUP BY, or an alias there, stands for; a column goes before an alias."""
    if isinstance(item, exp.Literal) and item.is_int:
        return tree.expressions[int(item.this) - 1].unalias()
    name = item.name.lower()
    if isinstance(item, exp.Column) and all(name != column.name.lower() for column in table.columns):
        named = [chosen for chosen in tree.expressions if chosen.alias.lower() == name]
        return named[0].unalias() if named else item
    return item


def names_of_keys(view: ViewDefinition) -> list[str]:
    return [KEY_NAME.format(i) for i in range(len(view.node.key))]
