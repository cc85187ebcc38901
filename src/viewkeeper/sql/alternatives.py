"""Alternatives: what a view may not contain, and what to write instead.

In: a name in lower case, a clause's name, or a node of sqlglot's tree. Out: a hint, or None; an `UnsupportedSql` to raise.
Always: the message names what was written; what a hint suggests is accepted and means the same, except in the cases that
it names. In a hint t is a table, k its key, g the groups, x and y columns.
"""

from __future__ import annotations

from sqlglot import exp

from viewkeeper.algebra import aggregates
from viewkeeper.algebra.expressions import Expression
from viewkeeper.errors import UnsupportedSql
from viewkeeper.model.syntax import WRITTEN
from viewkeeper.model.wording import nearest, question
from viewkeeper.sql.function_table import NAMED

_LISTS = "keep the rows themselves in a view, and put the values together when reading"
_SHARES = "COUNT(*) by value (GROUP BY x) holds all that it is computed from"
_PAIRS = (
    "it follows from COUNT(*), SUM(x), SUM(y), SUM(x * x), SUM(y * y) and SUM(x * y) of rows without a NULL in x or y"
)
_ORDERED = "a table has no order; use MIN(x) or MAX(x)"
_LAST_BITS = "engines differ in the last bits of a DOUBLE; store the value in a column"
_SQUARE = f"x * x is the square; otherwise {_LAST_BITS}"
_DIALECTS = "dialects of regular expressions differ"
_MATCH = f"'^ab' is x LIKE 'ab%', and 'ab' is x LIKE '%ab%'; store in a column what another pattern gives: {_DIALECTS}"
_PATTERN = "SUBSTRING(CAST(x AS STRING), 1, 7) is yyyy-MM, 1, 4 is yyyy and 6, 2 is MM"
_ELEMENTS = "nested types are not stored: keep one row for each element, in a table of its own"
_GROUPINGS = "make one view for each grouping"
_BEFORE = "FROM t a LEFT JOIN t b ON b.g = a.g AND b.y < a.y GROUP BY a.k"
_NOT_NULL = "where g and y are not NULL, and with > for DESC"
_FIRST_OF_GROUP = (
    f"the first n of each group are SELECT a.k {_BEFORE} HAVING COUNT(b.k) < n, with all rows whose y is that of the last, "
    f"{_NOT_NULL}; without groups ORDER BY y LIMIT n"
)
_ONE_GROUP = "; without PARTITION BY, g is a constant: (SELECT *, 1 AS g FROM t) in place of t"
_ANY_FUNCTION = "store the value in a column, or compute it when reading"

INSTEAD_OF_AGGREGATES: dict[str, str] = {
    **dict.fromkeys(
        "string_agg listagg group_concat collect_list collect_set array_agg array_concat_agg".split(), _LISTS
    ),
    **dict.fromkeys(
        "median percentile percentile_cont percentile_disc percentile_approx approx_percentile quantile mode".split(),
        _SHARES,
    ),
    **{foreign: f"use {name.upper()}(x)" for foreign, name in {**aggregates.FOREIGN_NAMES, "std": "stddev"}.items()},
    **dict.fromkeys("corr covar_pop covar_samp regr_slope regr_intercept regr_r2".split(), _PAIRS),
    **dict.fromkeys("first last first_value last_value any_value".split(), _ORDERED),
    **dict.fromkeys(
        ("approx_count_distinct", "approx_distinct"), "use COUNT(DISTINCT x): it is exact, and kept without a scan"
    ),
    "every": "use BOOL_AND(x)",
    **dict.fromkeys(("some", "any"), "use BOOL_OR(x)"),
    **dict.fromkeys(("grouping", "grouping_id"), _GROUPINGS),
}
INSTEAD_OF_FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("pow", "power"), _SQUARE),
    **dict.fromkeys("exp expm1 ln log log2 log10 log1p cbrt".split(), _LAST_BITS),
    **dict.fromkeys("sin cos tan asin acos atan atan2 sinh cosh tanh degrees radians".split(), _LAST_BITS),
    **dict.fromkeys(("rlike or regexp", "rlike", "regexp", "regexp_like"), _MATCH),
    **dict.fromkeys(
        "regexp_extract regexp_substr regexp_extract_all regexp_count regexp_instr".split(),
        f"{_DIALECTS}; SUBSTRING, SPLIT_PART and INSTR cut and find texts without a pattern",
    ),
    "regexp_replace": f"{_DIALECTS}; REPLACE and TRANSLATE replace texts and characters without a pattern",
    "similar to": f"{_DIALECTS}; use LIKE",
    "ilike": "use LOWER(x) LIKE '…', with the pattern in lower case",
    "width_bucket": "CASE WHEN x < low THEN 0 WHEN x >= high THEN n + 1 "
    "ELSE FLOOR(n * (x - low) / (high - low)) + 1 END, of a DOUBLE x and low < high",
    "split": "SPLIT_PART(s, separator, n) gives one part",
    "such an interval": "write x + INTERVAL n DAY, with a DATE or TIMESTAMP x",
    **dict.fromkeys(("date_format", "to_char", "to_varchar"), _PATTERN),
    "from_unixtime": "TIMESTAMP_SECONDS(n) gives a TIMESTAMP",
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), "use UNIX_SECONDS(t)"),
    "to_date": "store the value as a DATE",
    "to_timestamp": "store the value as a TIMESTAMP",
    **dict.fromkeys(
        ("months_between", "timestampdiff", "date_diff", "datediff"),
        "DATEDIFF(end, start) gives days, UNIX_SECONDS(t) seconds to subtract; store a number of months in a column",
    ),
    **dict.fromkeys(("timestampadd", "date_add", "dateadd"), "write x + INTERVAL n MONTH, or another unit"),
    "bround": _ANY_FUNCTION,
    "initcap": "of one word in ASCII it is CONCAT(UPPER(LEFT(x, 1)), LOWER(SUBSTRING(x, 2)))",
    "try_cast": "of texts with up to 9 digits and no sign: CASE WHEN LENGTH(x) BETWEEN 1 AND 9 AND "
    "TRANSLATE(x, '0123456789', '') = '' THEN CAST(x AS INT) END",
    **dict.fromkeys(("try_divide", "safe_divide"), "write a / NULLIF(b, 0)"),
    **dict.fromkeys(("strpos", "str_position"), "use INSTR(s, part)"),
    **dict.fromkeys(("iff", "iif"), "write IF(condition, value, other value)"),
    "zeroifnull": "write COALESCE(x, 0)",
    "collate": "strings are ordered by their bytes; compare LOWER(x)",
    **dict.fromkeys("array struct named_struct map explode posexplode inline transform size".split(), _ELEMENTS),
    "x[…]": _ELEMENTS,
    "a lambda": _ELEMENTS,
    "a raw string": r"write it as '…', with \\ for each backslash",
    "n'…'": "write it as '…'",
    "range": "put the numbers into a table",
}
CLAUSES: dict[str, tuple[str, str | None]] = {
    "laterals": ("LATERAL VIEW", _ELEMENTS),
    **{name: (f"{name.upper()} BY", "a view is ordered by its key") for name in ("order", "sort", "cluster")},
    "distribute": ("DISTRIBUTE BY", "leave it out"),
    "offset": ("OFFSET", "keep the rows to skip too, with ORDER BY … LIMIT n, and skip them when reading"),
    "windows": ("WINDOW", "with the window after OVER itself the refusal tells what to write instead"),
    "qualify": ("QUALIFY", _FIRST_OF_GROUP),
    "distinct on": ("DISTINCT ON", _FIRST_OF_GROUP),
    "hint": ("a hint", "leave it out"),
    "sample": ("TABLESAMPLE", "choose rows by a column: WHERE id % 10 = 0"),
    "match": ("MATCH_RECOGNIZE", None),
    "pivots": (
        "PIVOT",
        "write SUM(x) FILTER (WHERE c = value) AS name, for each value, and GROUP BY the columns that are neither x nor c",
    ),
    "unpivot": (
        "UNPIVOT",
        "UNION ALL a SELECT k, 'a' AS name, a AS value FROM t WHERE a IS NOT NULL for each column a",
    ),
    "connect": ("CONNECT BY", None),
    "into": ("INTO", "CREATE MATERIALIZED VIEW keeps what a query gives"),
    "kind": ("SELECT AS", None),
    "locks": ("FOR UPDATE", "leave it out"),
}
# What an argument of RANK and the like counts in the rows before.
_RANKS = {"rank": "COUNT(b.k)", "row_number": "COUNT(b.k)", "dense_rank": "COUNT(DISTINCT b.y)"}


def of_function(name: str) -> str:
    return INSTEAD_OF_FUNCTIONS.get(name, _ANY_FUNCTION)


def of_aggregate(node: exp.Expression, name: str) -> str:
    """What to write instead of an aggregate, which is a node of a query."""
    if name not in ("max_by", "arg_max", "min_by", "arg_min"):
        known = [*map(str.upper, aggregates.AGGREGATE_NAMES)]
        return INSTEAD_OF_AGGREGATES.get(name, f"supported aggregates are {', '.join(known[:-1])} and {known[-1]}")
    query, end = node.find_ancestor(exp.Select), "MAX" if "max" in name else "MIN"
    ties = f"of rows with the same y the largest x, where {end}_BY takes any"
    if query is not None and query.args.get("group"):
        found = f"SELECT g, MAX(x) FROM t JOIN (SELECT g, {end}(y) AS y FROM t GROUP BY g) USING (g, y) GROUP BY g"
        return f"{found}: {ties}; g must not be NULL"
    return f"SELECT MAX(x) FROM t WHERE y IN (SELECT {end}(y) FROM t): {ties}"


def of_window(node: exp.Window, name: str) -> str:
    """What to write instead of a function OVER a window."""
    is_one_group = "" if node.args.get("partition_by") else _ONE_GROUP
    if name in ("lag", "lead"):
        group, sign = ("b.g = a.g AND " if node.args.get("partition_by") else ""), "-" if name == "lag" else "+"
        return f"{_NUMBERED}: SELECT a.k, b.x FROM t a LEFT JOIN t b ON {group}b.n = a.n {sign} 1"
    if name in _RANKS:
        return f"SELECT a.k, {_RANKS[name]} + 1 {_BEFORE}, {_NOT_NULL}{_TIES.get(name, '')}{is_one_group}"
    if name not in aggregates.AGGREGATE_FUNCTIONS:
        return _ANY_FUNCTION
    call = f"{name.upper()}(*)" if isinstance(node.this.this, exp.Star) else f"{name.upper()}(x)"
    match _frame(node):
        case "whole":
            whole = f"SELECT t.*, s FROM t JOIN (SELECT g, {call} AS s FROM t GROUP BY g) USING (g)"
            return f"{whole}, where g is not NULL{is_one_group}"
        case "running":
            joined = (
                "JOIN t b ON b.g = a.g AND b.y <= a.y GROUP BY a.k, where g and y are not NULL, and with >= for DESC"
            )
            return f"SELECT a.k, {call.replace('x', 'b.x')} FROM t a {joined}{is_one_group}"
    near = "JOIN t b ON b.g = a.g AND b.n BETWEEN a.n - 2 AND a.n GROUP BY a.k, for 2 PRECEDING"
    return f"{_NUMBERED}: SELECT a.k, {call.replace('x', 'b.x')} FROM t a {near}{is_one_group}"


_NUMBERED = "number the rows of each group in a column n, without gaps"
_TIES = {"row_number": "; rows with the same y get the same number"}


def _frame(node: exp.Window) -> str:
    """Which rows a window has: the whole group, those up to the current one, or others."""
    spec = node.args.get("spec")
    start, end = ("UNBOUNDED", "CURRENT ROW") if spec is None else (spec.args.get("start"), spec.args.get("end"))
    if node.args.get("order") is None or (start, end) == ("UNBOUNDED", "UNBOUNDED"):
        return "whole"
    return "running" if (start, end) == ("UNBOUNDED", "CURRENT ROW") else "other"


def of_row_value(node: exp.Tuple) -> str:
    """What to write instead of a row value, by the operator that it is compared with."""
    match node.parent:
        case exp.EQ():
            return "compare column by column: a = x AND b = y"
        case exp.NEQ():
            return "compare column by column: a <> x OR b <> y"
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            return "compare column by column: a < x OR (a = x AND b < y)"
    return "compare column by column: (a = x AND b = y) OR (a = z AND b = w)"


_NOT_DETERMINISTIC = frozenset(
    "rand random randn uuid now getdate sysdate current_date current_timestamp current_time localtimestamp curdate "
    "monotonically_increasing_id input_file_name current_user session_user shuffle".split()
)
_KNOWN_NAMES = [*filter(str.isidentifier, NAMED), *aggregates.AGGREGATE_NAMES]
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
    clause, hint = CLAUSES.get(name, (name.rstrip("_").upper(), None))
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
    where = "here" if around is None else _PLACES[type(around)]
    if isinstance(node, (exp.In, exp.Exists)):
        hint = (
            "it may stand in WHERE, beside other conditions joined by AND; for OR, UNION two SELECTs that show the key"
        )
        return UnsupportedSql(f"{node.key.upper()} over a subquery {where} is not supported", hint)
    hint = "LEFT JOIN a subquery of FROM, where a COUNT of nothing is NULL; without groups join on a constant: 1 AS one"
    if isinstance(node.parent, exp.EQ):
        hint = "write IN (SELECT …), or join with a subquery in FROM"
    return UnsupportedSql(f"a subquery as a value ({where}) is not supported", hint)


def refuse_expression(node: exp.Expression) -> UnsupportedSql:
    """The refusal of a function or construct that has no rule."""
    match node:
        case exp.Any() | exp.All() if not isinstance(node.this.unnest(), exp.Query):
            hint = "write x LIKE a OR x LIKE b, or with AND"
            return UnsupportedSql(f"LIKE {node.key.upper()} is not supported", hint)
        case exp.Subquery() | exp.Select() | exp.SetOperation() | exp.Exists() | exp.Any() | exp.All():
            return refuse_subquery(node)
        case exp.Window():
            name = name_of(node.this)
            return UnsupportedSql(f"the window function {name} … OVER is not supported", of_window(node, name.lower()))
        case exp.WithinGroup():
            name = name_of(node.this)
            hint = of_aggregate(node, name.lower())
            return UnsupportedSql(f"the aggregate {name} … WITHIN GROUP is not supported", hint)
        case exp.Rollup() | exp.Cube() | exp.GroupingSets():
            words = "GROUPING SETS" if isinstance(node, exp.GroupingSets) else node.key.upper()
            return UnsupportedSql(f"GROUP BY {words} is not supported", _GROUPINGS)
        case exp.Star():
            return UnsupportedSql("* is not supported here", "name the columns")
    return _refuse_named(node, name_of(node))


def _refuse_named(node: exp.Expression, name: str) -> UnsupportedSql:
    word = name.lower()
    if word in _NOT_DETERMINISTIC or (word == "unix_timestamp" and not node.expressions):
        return UnsupportedSql(f"{name} is not deterministic", "store the value in a column, or write it as a literal")
    if word in INSTEAD_OF_AGGREGATES or isinstance(node, exp.AggFunc):
        return UnsupportedSql(f"the aggregate {name} is not supported", of_aggregate(node, word))
    if isinstance(node, exp.Tuple):
        return UnsupportedSql(f"{name} is not supported", of_row_value(node))
    if not isinstance(node, exp.Func) or type(node) in _WORDS:
        return UnsupportedSql(f"{name} is not supported", INSTEAD_OF_FUNCTIONS.get(word))
    is_unknown = isinstance(node, exp.Anonymous) and word not in INSTEAD_OF_FUNCTIONS
    near = nearest(word, _KNOWN_NAMES, likeness=0.8) if is_unknown else []
    return UnsupportedSql(f"the function {name} is not supported", question(near) if near else of_function(word))


def name_of(node: exp.Expression) -> str:
    """What the user calls a function or construct."""
    if written := node.meta.get(WRITTEN):
        return str(written)
    if isinstance(node, exp.Anonymous):
        return str(node.this)
    if type(node) in _WORDS:
        return _WORDS[type(node)]
    return node.sql_name() if isinstance(node, exp.Func) else node.sql(dialect="spark")
