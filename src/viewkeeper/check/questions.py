"""Questions: what another engine is asked, to judge a view.

In: a view's original text. Out: the same query in Spark SQL with the view's key added as `__key_0`, `__key_1`, …, and for
sums and averages that Spark adds up in doubles how far they may be off, as `__bound_0`, …. Always: the text's own
expressions are asked for, not what our planner made of them; nothing of `views` or `engine` is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import expressions as exp

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.schema import TableSchema
from viewkeeper.plan.catalog import ViewDefinition
from viewkeeper.sql.dialect import ViewSpark

KEY_NAME = "__key_{}"
BOUND_NAME = "__bound_{}"
_UNIT = "2.220446049250313E-16D"  # 2^-52: a sum of n doubles in any order is within n · 2^-52 · Σ|x|


def can_ask_for_key(view: ViewDefinition) -> bool:
    """Whether its text is one SELECT over one base table, whose columns can be asked for beside what the view shows."""
    if view.kind == "INDEX":
        return True
    if view.names[0][1] != view.sources[0] or len(view.names) > 1 or len(view.nodes) > 1:
        return False
    tree = sqlglot.parse_one(view.text, dialect=ViewSpark)
    is_one = [tree] == list(tree.find_all(exp.Query)) and not tree.args.get("with_")
    return is_one and not any(alias.args.get("columns") for alias in tree.find_all(exp.TableAlias))


def question_for(
    view: ViewDefinition, table: TableSchema, left_out: Sequence[Sequence[str]] = (), *, careful: bool = False
) -> str:
    """Spark SQL whose answer holds the view's key, then what it shows, then a bound for each shown value.

    `left_out` are groups that are not judged, as SQL literals of their key. `careful` asks in a way on which Spark does not
    stop where the view has an answer: it evaluates arguments outside of FILTER, and fails when a sum of integers leaves
    64 bits on its way to one that fits.
    """
    if view.kind == "INDEX":
        return _index_question(view, table)
    tree = sqlglot.parse_one(view.text, dialect=ViewSpark)
    if not isinstance(tree, exp.Select):
        raise InvariantBroken(f"view {view.name} is stored with a text that is no SELECT")
    keys = _keys(view, tree, table)
    if careful:
        tree = _with_care(view, tree)
    for group in left_out:
        same = [
            exp.NullSafeEQ(this=key.copy(), expression=_parsed(text)) for key, text in zip(keys, group, strict=True)
        ]
        tree = tree.where(exp.not_(exp.paren(exp.and_(*same))))
    selected = [exp.alias_(key.copy(), KEY_NAME.format(i)) for i, key in enumerate(keys)]
    bounds = [exp.alias_(bound, BOUND_NAME.format(i)) for i, bound in enumerate(_bounds(view, tree))]
    tree.set("expressions", [*selected, *tree.expressions, *bounds])
    # positions in GROUP BY would now count the added columns too
    if tree.args.get("group"):
        tree.args["group"].set("expressions", [key.copy() for key in keys])
    return tree.sql(dialect=ViewSpark)


def _with_care(view: ViewDefinition, tree: exp.Select) -> exp.Select:
    def change(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Filter) or not isinstance(node.this, exp.AggFunc):
            return node
        call = node.this.copy()
        argument = exp.Literal.number(1) if isinstance(call.this, exp.Star) else call.this
        call.set("this", exp.Case(ifs=[exp.If(this=node.expression.this.copy(), true=argument.copy())]))
        return call

    changed = tree.transform(change)
    for item, shown in zip(changed.expressions, view.shown, strict=True):
        total = item.unalias()
        if isinstance(total, exp.Sum) and shown.column.type.kind == "BIGINT":
            wide = f"CAST(SUM(CAST({total.this.sql(dialect=ViewSpark)} AS DECIMAL(38,0))) AS BIGINT)"
            total.replace(_parsed(wide))
    return changed


def names_of_keys(view: ViewDefinition) -> list[str]:
    return [KEY_NAME.format(i) for i in range(len(view.node.key))]


def names_of_bounds(view: ViewDefinition) -> list[str]:
    return [BOUND_NAME.format(i) for i in range(len(view.shown))]


def _keys(view: ViewDefinition, tree: exp.Select, table: TableSchema) -> list[exp.Expression]:
    if view.kind == "AGGREGATE":
        group = tree.args.get("group")
        return list(dict.fromkeys(_resolve(tree, item, table) for item in group.expressions)) if group else []
    if view.kind == "DISTINCT":
        return [_shown_from_key(view, tree, table, place) for place in range(len(view.node.key))]
    return [exp.column(name, quoted=True) for name in table.key]


def _shown_from_key(view: ViewDefinition, tree: exp.Select, table: TableSchema, place: int) -> exp.Expression:
    """Of DISTINCT the selected expression that is the key's part at `place`."""
    shown = next(number for number, item in enumerate(view.shown) if item.index == place)
    selected = [part for item in tree.expressions for part in _spelled_out(item, table)]
    return selected[shown]


def _spelled_out(item: exp.Expression, table: TableSchema) -> list[exp.Expression]:
    star = item.this if isinstance(item, exp.Column) else item
    if isinstance(star, exp.Star):
        return [exp.column(column.name, quoted=True) for column in table.columns]
    return [item.unalias()]


def _bounds(view: ViewDefinition, tree: exp.Select) -> list[exp.Expression]:
    """For each shown value how far Spark's may be from the exact one; 0 where it must be equal bit for bit."""
    if view.kind != "AGGREGATE":
        return [_parsed("0D") for _ in view.shown]
    pairs = zip(tree.expressions, view.shown, strict=True)
    return [_bound(item.unalias()) if shown.column.type.kind == "DOUBLE" else _parsed("0D") for item, shown in pairs]


def _bound(value: exp.Expression) -> exp.Expression:
    sums = list(value.find_all(exp.Sum, exp.Avg))
    if not sums:
        return _parsed("0D")
    if value in sums or (isinstance(value, exp.Filter) and value.this in sums):
        return _parsed(_error_of(value))
    # what becomes of the error in an expression is not worked out: a billionth of the value, and of what was summed
    parts = " + ".join(_error_of(part.parent if isinstance(part.parent, exp.Filter) else part) for part in sums)
    return _parsed(f"1E-9D * ABS(CAST({value.sql(dialect=ViewSpark)} AS DOUBLE)) + {parts}")


def _error_of(value: exp.Expression) -> str:
    """n · 2^-52 · Σ|x| for a sum, that over n for an average."""
    call = value.this if isinstance(value, exp.Filter) else value
    condition = value.expression.sql(dialect=ViewSpark) if isinstance(value, exp.Filter) else None
    behind = f" FILTER ({condition})" if condition else ""
    arg = call.this.sql(dialect=ViewSpark)
    total = f"COALESCE(SUM(ABS(CAST({arg} AS DOUBLE))){behind}, 0D)"
    return f"{_UNIT} * {total}" + (f" * COUNT({arg}){behind}" if isinstance(call, exp.Sum) else "")


def _index_question(view: ViewDefinition, table: TableSchema) -> str:
    keys = [exp.alias_(exp.column(c.name, quoted=True), KEY_NAME.format(i)) for i, c in enumerate(view.node.key)]
    shown = [exp.column(item.column.name, quoted=True) for item in view.shown]
    bounds = [exp.alias_(_parsed("0D"), name) for name in names_of_bounds(view)]
    return exp.select(*keys, *shown, *bounds).from_(exp.to_table(view.names[0][0])).sql(dialect=ViewSpark)


def _resolve(tree: exp.Select, item: exp.Expression, table: TableSchema) -> exp.Expression:
    """The expression that a position in GROUP BY, or an alias there, stands for; a column goes before an alias."""
    if isinstance(item, exp.Literal) and item.is_int:
        return tree.expressions[int(item.this) - 1].unalias()
    name = item.name.lower()
    if isinstance(item, exp.Column) and all(name != column.name.lower() for column in table.columns):
        named = [chosen for chosen in tree.expressions if chosen.alias.lower() == name]
        return named[0].unalias() if named else item
    return item


def _parsed(text: str) -> exp.Expression:
    return sqlglot.parse_one(text, dialect=ViewSpark)
