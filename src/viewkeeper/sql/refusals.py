"""Refusals: what a view may not contain, and what to write instead.

In: a node of sqlglot's tree, or a clause's name. Out: an `UnsupportedSql` to raise. Always: the message names what was
written, and the hint, if there is one, is something that works.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeeper.errors import UnsupportedSql
from viewkeeper.model.nearest import nearest, question
from viewkeeper.sql import aggregates, ways_round
from viewkeeper.sql.expressions import Expression
from viewkeeper.sql.function_table import NAMED
from viewkeeper.sql.syntax import WRITTEN

_NOT_DETERMINISTIC = frozenset(
    "rand random randn uuid now getdate sysdate current_date current_timestamp current_time localtimestamp curdate "
    "monotonically_increasing_id input_file_name current_user session_user shuffle".split()
)
_FUNCTIONS = [*filter(str.isidentifier, NAMED), *aggregates.FUNCTIONS]
# The classes that sqlglot uses for operators, and the words that a user writes.
_WORDS: dict[type[exp.Expression], str] = {
    exp.RegexpLike: "RLIKE or REGEXP",
    exp.SimilarTo: "SIMILAR TO",
    exp.ILike: "ILIKE",
    exp.Tuple: "a row value",
    exp.Bracket: "x[…]",
    exp.Lambda: "a lambda",
    exp.Interval: "such an INTERVAL",
    exp.Collate: "COLLATE",
    exp.RawString: "a raw string",
    exp.National: "N'…'",
}


def refuse_clause(name: str) -> UnsupportedSql:
    clause, hint = ways_round.CLAUSES.get(name, (name.rstrip("_").upper(), None))
    return UnsupportedSql(f"{clause} is not supported", hint)


def allow_clauses(node: exp.Expression, *names: str) -> None:
    """Raise where a node has another clause than these."""
    for name, value in node.args.items():
        if value and name not in names:
            raise refuse_clause("unpivot" if name == "pivots" and value[0].args.get("unpivot") else name)


def refuse_keyless(join: str, left: str, right: str) -> UnsupportedSql:
    """The refusal of a join that would pair every row with every row."""
    return UnsupportedSql(
        f"the {join} of {left} with {right} has no equality between its sides",
        "a join needs a condition like a.x = b.y; else join (SELECT *, 1 AS one FROM t) for both ON a.one = b.one AND …",
    )


def refuse_fallible(where: str, condition: Expression) -> UnsupportedSql:
    """The refusal of a condition that may fail where no row could be set aside for it."""
    return UnsupportedSql(
        f"the condition {condition.text} of {where} may fail",
        "compute what may fail in a subquery of FROM on each side, and compare the results",
    )


_PLACES: dict[type[exp.Expression], str] = {
    exp.Or: "under OR",
    exp.Case: "in CASE",
    exp.If: "in IF",
    exp.Not: "under NOT",
    exp.Having: "in HAVING",
    exp.Join: "in ON",
    exp.Group: "in GROUP BY",
    exp.Order: "in ORDER BY",
    exp.Where: "inside of an expression in WHERE",
    exp.Select: "in the select list",
}


def refuse_subquery(node: exp.Expression) -> UnsupportedSql:
    """The refusal of a subquery that is not a condition of WHERE by itself; it names the clause."""
    if isinstance(node, (exp.Any, exp.All)):
        hint = "= ANY is IN, and <> ALL is NOT IN; for > ANY join with a subquery that gives the MIN, for > ALL the MAX"
        return UnsupportedSql(f"{node.key.upper()} over a subquery is not supported", hint)
    around = node.parent
    while around is not None and (type(around) not in _PLACES or isinstance(around.parent, exp.Case)):
        around = around.parent
    place = "here" if around is None else _PLACES[type(around)]
    if isinstance(node, (exp.In, exp.Exists)):
        hint = (
            "it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key"
        )
        return UnsupportedSql(f"{node.key.upper()} over a subquery {place} is not supported", hint)
    hint = "LEFT JOIN a subquery of FROM, where a COUNT of nothing is NULL; without groups join on a constant: 1 AS one"
    if isinstance(node.parent, exp.EQ):
        hint = "write IN (SELECT …), or join with a subquery in FROM"
    return UnsupportedSql(f"a subquery as a value ({place}) is not supported", hint)


def refuse_expression(node: exp.Expression) -> UnsupportedSql:
    """The refusal of a function or construct that has no rule."""
    match node:
        case exp.Any() | exp.All() if not isinstance(node.this.unnest(), exp.Query):
            return UnsupportedSql(
                f"LIKE {node.key.upper()} is not supported", "write x LIKE a OR x LIKE b, or with AND"
            )
        case exp.Subquery() | exp.Select() | exp.SetOperation() | exp.Exists() | exp.Any() | exp.All():
            return refuse_subquery(node)
        case exp.Window():
            name = name_of(node.this)
            return UnsupportedSql(
                f"the window function {name} … OVER is not supported", ways_round.of_window(node, name.lower())
            )
        case exp.WithinGroup():
            name = name_of(node.this)
            return UnsupportedSql(
                f"the aggregate {name} … WITHIN GROUP is not supported", ways_round.of_aggregate(node, name.lower())
            )
        case exp.Rollup() | exp.Cube() | exp.GroupingSets():
            words = "GROUPING SETS" if isinstance(node, exp.GroupingSets) else node.key.upper()
            return UnsupportedSql(f"GROUP BY {words} is not supported", "make one view for each grouping")
        case exp.Star():
            return UnsupportedSql("* is not supported here", "name the columns")
    return _refuse_named(node, name_of(node))


def _refuse_named(node: exp.Expression, name: str) -> UnsupportedSql:
    word = name.lower()
    is_now = word == "unix_timestamp" and not node.expressions
    if word in _NOT_DETERMINISTIC or is_now:
        return UnsupportedSql(f"{name} is not deterministic", "store the value in a column, or write it as a literal")
    if word in ways_round.AGGREGATES or isinstance(node, exp.AggFunc):
        return UnsupportedSql(f"the aggregate {name} is not supported", ways_round.of_aggregate(node, word))
    if isinstance(node, exp.Tuple):
        return UnsupportedSql(f"{name} is not supported", ways_round.of_row_value(node))
    if isinstance(node, exp.Anonymous) and word not in ways_round.FUNCTIONS:
        near = nearest(word, _FUNCTIONS, likeness=0.8)
        hint = question(near) if near else ways_round.of_function(word)
        return UnsupportedSql(f"the function {name} is not supported", hint)
    if isinstance(node, exp.Func) and type(node) not in _WORDS:
        return UnsupportedSql(f"the function {name} is not supported", ways_round.of_function(word))
    return UnsupportedSql(f"{name} is not supported", ways_round.FUNCTIONS.get(word))


def name_of(node: exp.Expression) -> str:
    """What the user calls a function or construct."""
    written = node.meta.get(WRITTEN)
    if written:
        return str(written)
    if isinstance(node, exp.Anonymous):
        return str(node.this)
    if type(node) in _WORDS:
        return _WORDS[type(node)]
    return node.sql_name() if isinstance(node, exp.Func) else node.sql(dialect="spark")
