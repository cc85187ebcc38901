"""Random conditions over columns: comparisons, AND and OR, IN, BETWEEN, LIKE, IS NULL.

In: a maker of values and the columns in reach. Out: conditions. Always: most are met by more rows than not, so that views
have rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.support.sql_texts import BOOLEAN, DATE, STRING, Sql, Value, common_type, joined, sql

if TYPE_CHECKING:
    from tests.support.random_values import ValueMaker

DATES = tuple(f"2024-0{month}-{day}" for month, day in ((1, "30"), (1, "31"), (2, "01"), (2, "29"), (3, "01")))
_LIKES = ("%a%", "a%", "%b", "_", "%", "a_", "%-%")


def make_condition(maker: ValueMaker, scope: Sequence[Value], depth: int, *, safe: bool) -> Sql:
    """A condition that more rows meet than not; `safe`: the product knows that it cannot fail."""
    if depth > 0 and maker.chance(0.35):
        operator = maker.choose.choice(("AND", "OR", "OR"))
        maker.seen[operator] += 1
        return sql(f"({{}} {operator} {{}})", *(make_condition(maker, scope, depth - 1, safe=safe) for _ in range(2)))
    if depth > 0 and maker.chance(0.08):
        maker.seen["NOT"] += 1
        return sql("NOT ({})", make_condition(maker, scope, depth - 1, safe=safe))
    arg = maker.any_value(scope, depth, safe=safe)
    return maker.choose.choice(_CONDITIONS)(maker, arg, scope, safe)


def _compare(maker: ValueMaker, arg: Value, scope: Sequence[Value], safe: bool) -> Sql:
    other = maker.value(scope, arg.type, 1, safe=safe) if maker.chance(0.3) else maker.literal(arg.type)
    if common_type(arg.type, other.type) is None:
        return _is_null(maker, arg, scope, safe)
    maker.seen["comparison"] += 1
    operators = ("<", "<=", ">=", ">", "<>", "<>", "=") if arg.type.kind != "BOOLEAN" else ("=", "<>")
    operator = maker.choose.choice((*operators, "<=>"))
    duck = "{} IS NOT DISTINCT FROM {}" if operator == "<=>" else f"{{}} {operator} {{}}"
    view = f"{{}} {operator} {{}}"
    if arg.type == DATE and other.constant and maker.chance(0.3):
        maker.seen["date as a string"] += 1
        bare = Sql(*(text.removeprefix("DATE ") for text in (other.sql.view, other.sql.spark)), other.sql.duck)
        return sql(view, arg.sql, bare, duck=duck)
    return sql(view, arg.sql, other.sql, duck=duck)


def _is_null(maker: ValueMaker, arg: Value, scope: Sequence[Value], safe: bool) -> Sql:
    maker.seen["IS NULL"] += 1
    return sql(f"{{}} {maker.choose.choice(('IS NOT NULL', 'IS NOT NULL', 'IS NULL'))}", arg.sql)


def _in_list(maker: ValueMaker, arg: Value, scope: Sequence[Value], safe: bool) -> Sql:
    if arg.type.kind in ("BOOLEAN", "DECIMAL", "DOUBLE"):
        return _compare(maker, arg, scope, safe)
    maker.seen["IN list"] += 1
    most = 12 if maker.wide and maker.chance(0.7) else 4  # of five or more DuckDB makes a join
    entries = [maker.literal(arg.type).sql for _ in range(maker.choose.randint(1, most))]
    if maker.chance(0.1):
        entries.append(sql("NULL"))
    return sql(f"{{}} {maker.choose.choice(('IN', 'IN', 'NOT IN'))} ({{}})", arg.sql, joined(", ", entries))


def _between(maker: ValueMaker, arg: Value, scope: Sequence[Value], safe: bool) -> Sql:
    if not (arg.type.is_integer or arg.type == DATE):
        return _compare(maker, arg, scope, safe)
    maker.seen["BETWEEN"] += 1
    low, high = (DATES[0], DATES[-2]) if arg.type == DATE else ("0", "4")
    quoted = [sql(f"DATE '{end}'" if arg.type == DATE else end) for end in (low, high)]
    word = "NOT BETWEEN" if maker.chance(0.15) else "BETWEEN"
    return sql(f"{{}} {word} {{}} AND {{}}", arg.sql, *quoted)


def _like(maker: ValueMaker, arg: Value, scope: Sequence[Value], safe: bool) -> Sql:
    if arg.type != STRING:
        return _compare(maker, arg, scope, safe)
    maker.seen["LIKE"] += 1
    word = maker.choose.choice(("LIKE", "LIKE", "NOT LIKE"))
    return sql(f"{{}} {word} '{maker.choose.choice(_LIKES)}'", arg.sql)


def _starts(maker: ValueMaker, arg: Value, scope: Sequence[Value], safe: bool) -> Sql:
    if arg.type != STRING:
        return _compare(maker, arg, scope, safe)
    maker.seen["STARTSWITH"] += 1
    forms = {"STARTSWITH({}, 'a')": "starts_with({}, 'a')", "CONTAINS({}, 'b')": "contains({}, 'b')"}
    form = maker.choose.choice(tuple(forms))
    return sql(form, arg.sql, duck=forms[form])


def _is_true(maker: ValueMaker, arg: Value, scope: Sequence[Value], safe: bool) -> Sql:
    if arg.type != BOOLEAN:
        return _compare(maker, arg, scope, safe)
    maker.seen["IS TRUE"] += 1
    word = maker.choose.choice(("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE"))
    return sql(f"{{}} {word}", arg.sql)


_CONDITIONS: tuple[Callable[[ValueMaker, Value, Sequence[Value], bool], Sql], ...] = (
    _compare,
    _compare,
    _is_null,
    _in_list,
    _between,
    _like,
    _starts,
    _is_true,
)
