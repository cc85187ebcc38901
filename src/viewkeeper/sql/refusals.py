"""Refusals: what a view may not contain, and the way round it.

In: a node of sqlglot's tree, or a clause's name. Out: an `UnsupportedSql` to raise. Always: the message names what was
written, and the hint, where there is one, is something that works.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeeper.errors import UnsupportedSql
from viewkeeper.sql.expressions import Expression

_NOT_DETERMINISTIC = frozenset(
    "rand random randn uuid now current_date current_timestamp current_time localtimestamp curdate unix_timestamp "
    "monotonically_increasing_id input_file_name current_user session_user shuffle".split()
)
_NOT_YET = frozenset(
    "max_by min_by stddev stddev_pop stddev_samp variance var_pop var_samp corr approx_count_distinct "
    "approx_distinct percentile median mode collect_list collect_set array_agg every some "
    "array_unique_agg listagg string_agg group_concat quantile approx_quantile".split()
)
_ORDER_DEPENDENT = frozenset("first last first_value last_value any_value anyvalue".split())
_HINTS = {
    "ilike": "use LOWER(x) LIKE '…'",
    "regexp_like": "dialects of regular expressions differ; use LIKE, CONTAINS or STARTSWITH",
    "regexp_replace": "dialects of regular expressions differ; use REPLACE or TRANSLATE",
    "interval": "write x + INTERVAL n DAY, with a DATE or TIMESTAMP x",
    **dict.fromkeys(("pow", "power", "exp", "ln", "log", "cbrt"), "engines differ in the last bits of a DOUBLE"),
    "date_format": "build the text of YEAR(x), MONTH(x), LPAD(…) and the like",
    "initcap": "Spark and DuckDB differ beyond ASCII",
    "every": "use BOOL_AND(x)",
    "some": "use BOOL_OR(x)",
    "approx_count_distinct": "use COUNT(DISTINCT x): it is exact, and kept without a scan",
    "approx_distinct": "use COUNT(DISTINCT x): it is exact, and kept without a scan",
    "trycast": "use CAST: a row whose CAST fails is set aside",
}
CLAUSES = {
    "laterals": ("LATERAL VIEW", None),
    "order": ("ORDER BY", "a view is ordered by its key"),
    "sort": ("SORT BY", "a view is ordered by its key"),
    "cluster": ("CLUSTER BY", "a view is ordered by its key"),
    "distribute": ("DISTRIBUTE BY", None),
    "offset": ("OFFSET", "keep the first rows with ORDER BY … LIMIT n, and skip when reading"),
    "windows": ("WINDOW", None),
    "qualify": ("QUALIFY", None),
    "hint": ("a hint", "leave it out"),
    "sample": ("TABLESAMPLE", None),
    "match": ("MATCH_RECOGNIZE", None),
    "pivots": ("PIVOT", None),
    "connect": ("CONNECT BY", None),
    "into": ("INTO", None),
    "kind": ("SELECT AS", None),
    "locks": ("FOR UPDATE", None),
}


def refuse_clause(name: str) -> UnsupportedSql:
    clause, hint = CLAUSES.get(name, (name.rstrip("_").upper(), None))
    return UnsupportedSql(f"{clause} is not supported", hint)


def refuse_keyless(join: str, left: str, right: str) -> UnsupportedSql:
    """The refusal of a join that would pair every row with every row."""
    return UnsupportedSql(
        f"the {join} of {left} with {right} has no equality between its sides",
        "a join needs a condition like a.x = b.y",
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
    """The refusal of a subquery that is not a condition of WHERE by itself; it names the place."""
    if isinstance(node, (exp.Any, exp.All)):
        quantifier = node.key.upper()
        return UnsupportedSql(f"{quantifier} over a subquery is not supported", "use IN or EXISTS")
    around = node.parent
    while around is not None and (type(around) not in _PLACES or isinstance(around.parent, exp.Case)):
        around = around.parent
    place = "here" if around is None else _PLACES[type(around)]
    if isinstance(node, (exp.In, exp.Exists)):
        hint = "it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs"
        return UnsupportedSql(f"{node.key.upper()} over a subquery {place} is not supported", hint)
    return UnsupportedSql(f"a subquery as a value ({place}) is not supported", "join with a subquery in FROM instead")


def refuse_expression(node: exp.Expression) -> UnsupportedSql:
    """The refusal of a function or construct that has no rule."""
    match node:
        case exp.Subquery() | exp.Select() | exp.SetOperation() | exp.Exists() | exp.Any() | exp.All():
            return refuse_subquery(node)
        case exp.Window():
            return UnsupportedSql("a window function (OVER) is not supported")
        case exp.Rollup() | exp.Cube() | exp.GroupingSets():
            return UnsupportedSql(f"GROUP BY {node.key.upper()} is not supported", "make one view for each grouping")
    name = _name(node)
    if name in _NOT_DETERMINISTIC:
        return UnsupportedSql(
            f"{name}() is not deterministic: a view must give the same answer whenever it is computed",
            "store the value in a column",
        )
    if name in _ORDER_DEPENDENT:
        return UnsupportedSql(f"{name}() depends on the order of rows", "a table has no order")
    if name in _NOT_YET or isinstance(node, exp.AggFunc):
        hint = _HINTS.get(name, "COUNT, SUM, AVG, MIN and MAX are")
        return UnsupportedSql(f"the aggregate {name} is not supported in this version", hint)
    what = "function" if isinstance(node, (exp.Func, exp.Anonymous)) else "expression"
    return UnsupportedSql(f"the {what} {name} is not supported", _HINTS.get(name))


def _name(node: exp.Expression) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if isinstance(node, exp.TryCast) and node.args.get("safe"):
        return "try_cast"
    return node.sql_name().lower() if isinstance(node, exp.Func) else node.key
