"""Alternatives: what to write instead of a function or clause that is refused.

In: a name in lower case. Out: a hint, or None. Always: what a hint suggests is accepted.
"""

from __future__ import annotations

from viewkeeper.sql import aggregates

_LISTS = "keep the rows themselves in a view, and put the values together when reading"
_SHARES = "COUNT(*) by value (GROUP BY x) holds all that it is computed from"
_PAIRS = "it follows from COUNT(*), SUM(x), SUM(y), SUM(x * x), SUM(y * y) and SUM(x * y)"
_EXTREME = "join with (SELECT g, MAX(y) AS y FROM t GROUP BY g) on g and y"
_ORDERED = "a table has no order; use MIN(x) or MAX(x)"
_LAST_BITS = "engines differ in the last bits of a DOUBLE; store the value in a column"
_DIALECTS = "dialects of regular expressions differ"
_PATTERN = "build the text of YEAR(x), MONTH(x), LPAD(…) and the like"
_ELEMENTS = "nested types are not stored: keep one row for each element, in a table of its own"
_GROUPINGS = "make one view for each grouping"
_RANKED = "ORDER BY … LIMIT n gives the first n rows; the first of each group is MIN or MAX by group, joined back"

AGGREGATES: dict[str, str] = {
    **dict.fromkeys(
        "string_agg listagg group_concat collect_list collect_set array_agg array_concat_agg".split(), _LISTS
    ),
    **dict.fromkeys(
        "median percentile percentile_cont percentile_disc percentile_approx approx_percentile quantile mode".split(),
        _SHARES,
    ),
    "std": "use STDDEV(x)",
    **dict.fromkeys("corr covar_pop covar_samp regr_slope regr_intercept regr_r2".split(), _PAIRS),
    **dict.fromkeys(("max_by", "arg_max"), _EXTREME),
    **dict.fromkeys(("min_by", "arg_min"), _EXTREME.replace("MAX", "MIN")),
    **dict.fromkeys("first last first_value last_value any_value".split(), _ORDERED),
    **dict.fromkeys(
        ("approx_count_distinct", "approx_distinct"), "use COUNT(DISTINCT x): it is exact, and kept without a scan"
    ),
    "every": "use BOOL_AND(x)",
    "some": "use BOOL_OR(x)",
    "any": "use BOOL_OR(x)",
    "grouping": _GROUPINGS,
    "grouping_id": _GROUPINGS,
}
FUNCTIONS: dict[str, str] = {
    **dict.fromkeys("pow power exp expm1 ln log log2 log10 log1p cbrt".split(), _LAST_BITS),
    **dict.fromkeys("sin cos tan asin acos atan atan2 sinh cosh tanh degrees radians".split(), _LAST_BITS),
    **dict.fromkeys(
        ("rlike or regexp", "rlike", "regexp", "regexp_like"), f"{_DIALECTS}; use LIKE, CONTAINS or STARTSWITH"
    ),
    **dict.fromkeys(
        ("regexp_extract", "regexp_substr", "regexp_extract_all"), f"{_DIALECTS}; use SUBSTRING, SPLIT_PART or INSTR"
    ),
    "regexp_replace": f"{_DIALECTS}; use REPLACE or TRANSLATE",
    "similar to": f"{_DIALECTS}; use LIKE",
    "ilike": "use LOWER(x) LIKE '…'",
    "split": "SPLIT_PART(s, separator, n) gives one part",
    "such an interval": "write x + INTERVAL n DAY, with a DATE or TIMESTAMP x",
    **dict.fromkeys(("date_format", "to_char", "to_varchar"), _PATTERN),
    "from_unixtime": "TIMESTAMP_SECONDS(n) gives a TIMESTAMP",
    "unix_timestamp": "use UNIX_SECONDS(t)",
    "to_unix_timestamp": "use UNIX_SECONDS(t)",
    "to_date": "store the value as a DATE",
    "to_timestamp": "store the value as a TIMESTAMP",
    **dict.fromkeys(
        ("months_between", "timestampdiff", "date_diff", "datediff"),
        "DATEDIFF(end, start) gives days, UNIX_SECONDS(t) seconds to subtract",
    ),
    **dict.fromkeys(("timestampadd", "date_add", "dateadd"), "write x + INTERVAL n MONTH, or another unit"),
    "initcap": "Spark and DuckDB differ beyond ASCII; UPPER and LOWER are there",
    "try_cast": "CASE WHEN s <> '' AND TRANSLATE(s, '0123456789', '') = '' THEN CAST(s AS INT) END",
    "try_divide": "write a / NULLIF(b, 0)",
    "safe_divide": "write a / NULLIF(b, 0)",
    "iff": "write IF(condition, value, other value)",
    "zeroifnull": "write COALESCE(x, 0)",
    "collate": "strings are ordered by their bytes; compare LOWER(x)",
    **dict.fromkeys("array struct named_struct map explode posexplode inline transform size".split(), _ELEMENTS),
    "x[…]": _ELEMENTS,
    "a lambda": _ELEMENTS,
    "a row value": "compare column by column: a = x AND b = y",
    "range": "put the numbers into a table",
}
_ANY_FUNCTION = "store the value in a column, or compute it when reading"
CLAUSES: dict[str, tuple[str, str | None]] = {
    "laterals": ("LATERAL VIEW", _ELEMENTS),
    "order": ("ORDER BY", "a view is ordered by its key"),
    "sort": ("SORT BY", "a view is ordered by its key"),
    "cluster": ("CLUSTER BY", "a view is ordered by its key"),
    "distribute": ("DISTRIBUTE BY", "leave it out"),
    "offset": ("OFFSET", "keep the first rows with ORDER BY … LIMIT n, and skip when reading"),
    "windows": ("WINDOW", _RANKED),
    "qualify": ("QUALIFY", _RANKED),
    "hint": ("a hint", "leave it out"),
    "sample": ("TABLESAMPLE", "choose rows by a column: WHERE id % 10 = 0"),
    "match": ("MATCH_RECOGNIZE", None),
    "pivots": ("PIVOT", "write SUM(x) FILTER (WHERE c = value) AS name, for each value"),
    "connect": ("CONNECT BY", None),
    "into": ("INTO", "CREATE MATERIALIZED VIEW keeps what a query gives"),
    "kind": ("SELECT AS", None),
    "locks": ("FOR UPDATE", "leave it out"),
}
_RANKING = frozenset(
    "row_number rank dense_rank percent_rank cume_dist ntile first last first_value last_value nth_value".split()
)
_NEIGHBOURS = frozenset(("lag", "lead"))


def of_function(name: str) -> str:
    return FUNCTIONS.get(name, _ANY_FUNCTION)


def of_aggregate(name: str) -> str:
    *others, last = (known.upper() for known in aggregates.FUNCTIONS)
    return AGGREGATES.get(name, f"{', '.join(others)} and {last} are")


def of_window(name: str) -> str:
    """What to write instead of a function OVER a window."""
    if name in _NEIGHBOURS:
        return "number the rows in a column, and join the table with itself on that number"
    return _RANKED if name in _RANKING else "join with (SELECT g, SUM(x) AS s FROM t GROUP BY g) on g"
