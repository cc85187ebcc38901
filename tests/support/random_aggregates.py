"""Random aggregates, and expressions over groups.

In: the columns below and the groups. Out: `Value`s for a select list or HAVING. Always: sums are exact in every order, and
types are Spark's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.support.random_values import ValueMaker
from tests.support.sql_texts import BIGINT, BOOLEAN, DOUBLE, Sql, Value, decimal, joined, sql

_ROWS_MAX = 2000  # what a sum is thought to be over


class AggregateMaker:
    def __init__(self, values: ValueMaker) -> None:
        self._values = values
        self._choose, self._seen, self._chance = values.choose, values.seen, values.chance

    def aggregate(self, scope: Sequence[Value], keys: Sequence[Value]) -> Value:
        """An aggregate, or an expression over aggregates and groups."""
        first = self._call(scope)
        if first.type == BIGINT and self._chance(0.04):
            self._seen["value of a group that fails"] += 1
            return self._values.failing(first)
        if not self._chance(0.15):
            return first
        self._seen["expression over aggregates"] += 1
        terms = [first, self._call(scope), *keys]
        made = self._values.value(terms, first.type, 1)
        return first if made.constant or not any(term.sql.view in made.sql.view for term in terms) else made

    def sum_of(self, value: Value) -> Value:
        return Value(sql("SUM({})", value.sql, duck="CAST(sum({}) AS BIGINT)"), BIGINT, value.size * _ROWS_MAX)

    def _call(self, scope: Sequence[Value]) -> Value:
        for _ in range(6):
            arg = self._values.any_value(scope, self._choose.choice((0, 0, 1)))
            name = self._choose.choice(
                ("COUNT(*)", "COUNT", "DISTINCT", "SUM", "SUM", "AVG", "MIN", "MAX", "BOOL_AND", "COUNT_IF", "two")
            )
            made = self._of(name, arg, scope)
            if made is not None:
                return made
        return self._count("*", "*")

    def _of(self, name: str, arg: Value, scope: Sequence[Value]) -> Value | None:
        match name:
            case "COUNT(*)":
                return self._filtered(scope, "COUNT(*)", sql("count(*)", duck="count(*)"))
            case "COUNT":
                return self._filtered(scope, "COUNT(x)", sql("COUNT({})", arg.sql))
            case "DISTINCT":
                return self._filtered(scope, "COUNT(DISTINCT)", sql("COUNT(DISTINCT {})", arg.sql))
            case "two":
                return self._distinct_pairs(arg, self._choose.choice(scope), scope)
            case "COUNT_IF":
                return self._count_if(scope)
            case "MIN" | "MAX":
                self._seen["MIN and MAX"] += 1
                made = self._filter(scope, sql(f"{name}({{}})", arg.sql))
                return Value(made, arg.type, arg.size, exact=arg.exact)
            case "BOOL_AND":
                return self._truth(arg, scope)
            case "AVG":
                return self._average(arg, scope)
        return self._sum(arg, scope)

    def _count(self, view: str, duck: str) -> Value:
        return Value(sql(f"COUNT({view})", duck=f"count({duck})"), BIGINT, _ROWS_MAX, nullable=False)

    def _count_if(self, scope: Sequence[Value]) -> Value:
        """With a FILTER, DuckDB is asked for the rows for which both conditions hold, in words of its own."""
        self._seen["COUNT_IF"] += 1
        condition = self._values.condition(scope, 1)
        beside = _beside(condition)
        if beside.random() > 0.3:
            made = sql("COUNT_IF({})", condition, duck="CAST(count(*) FILTER (WHERE {}) AS BIGINT)")
            return Value(made, BIGINT, _ROWS_MAX)
        self._seen["COUNT_IF with FILTER"] += 1
        made = sql(
            "COUNT_IF({}) FILTER (WHERE {} IS NOT NULL)",
            condition,
            beside.choice(scope).sql,
            duck="CAST(coalesce(sum(CASE WHEN ({}) AND ({}) IS NOT NULL THEN 1 ELSE 0 END), 0) AS BIGINT)",
        )
        return Value(made, BIGINT, _ROWS_MAX)

    def _filtered(self, scope: Sequence[Value], feature: str, text: Sql) -> Value:
        self._seen[feature] += 1
        return Value(self._filter(scope, text), BIGINT, _ROWS_MAX, nullable=False)

    def _filter(self, scope: Sequence[Value], text: Sql) -> Sql:
        if not self._chance(0.15):
            return text
        self._seen["FILTER"] += 1
        return sql("{} FILTER (WHERE {})", text, self._values.condition(scope, 1))

    def _distinct_pairs(self, first: Value, second: Value, scope: Sequence[Value]) -> Value:
        self._seen["COUNT(DISTINCT a, b)"] += 1
        a, b = first.sql.duck, second.sql.duck
        duck = f"count(DISTINCT CASE WHEN ({a}) IS NOT NULL AND ({b}) IS NOT NULL THEN row({a}, {b}) END)"
        listed = joined(", ", [first.sql, second.sql])
        made = sql("COUNT(DISTINCT {})", listed)
        return Value(self._filter(scope, Sql(made.view, made.spark, duck)), BIGINT, _ROWS_MAX, nullable=False)

    def _truth(self, arg: Value, scope: Sequence[Value]) -> Value | None:
        if arg.type != BOOLEAN:
            return None
        self._seen["BOOL_AND and BOOL_OR"] += 1
        name = self._choose.choice(("BOOL_AND", "BOOL_OR"))
        return Value(self._filter(scope, sql(f"{name}({{}})", arg.sql)), BOOLEAN)

    def _sum(self, arg: Value, scope: Sequence[Value]) -> Value | None:
        if not arg.type.is_number or not arg.exact or arg.type.digits > 24:
            return None
        if arg.type.kind == "DECIMAL" and _beside(arg.sql).random() < 0.3:
            return self._wide_sum(arg, scope)
        type_ = BIGINT if arg.type.is_integer else arg.type
        if arg.type.kind == "DECIMAL":
            type_ = decimal(arg.type.digits + 10, arg.type.scale)
        self._seen[f"SUM of {arg.type.kind}"] += 1
        made = self._filter(scope, sql("SUM({})", arg.sql))
        zero = " + CAST(0 AS DOUBLE)" if type_ == DOUBLE else ""
        return Value(sql("{}", made, duck=f"CAST({{}}{zero} AS {type_.duck})"), type_, arg.size * _ROWS_MAX)

    def _wide_sum(self, arg: Value, scope: Sequence[Value]) -> Value:
        """A sum that by its argument's type could take more than 128 bits."""
        self._seen["SUM of wide DECIMAL"] += 1
        wide, type_ = decimal(34, arg.type.scale), decimal(38, arg.type.scale)
        made = self._filter(scope, sql(f"SUM(CAST({{}} AS {wide.duck}))", arg.sql))
        return Value(sql("{}", made, duck=f"CAST({{}} AS {type_.duck})"), type_, arg.size * _ROWS_MAX)

    def _average(self, arg: Value, scope: Sequence[Value]) -> Value | None:
        if not arg.type.is_number or not arg.exact or arg.type.digits > 16:
            return None
        self._seen[f"AVG of {arg.type.kind}"] += 1
        # the sum over the count, both exact, in one more FILTER of the same text
        made = self._filter(scope, sql("AVG({})", arg.sql))
        total, count = (made.duck.replace("AVG(", f"{name}(", 1) for name in ("sum", "count"))
        if arg.type.kind != "DECIMAL":
            duck = f"(CAST({total} AS DOUBLE) / {count} + CAST(0 AS DOUBLE))"
            return Value(Sql(made.view, made.spark, duck), DOUBLE, arg.size, exact=False)
        type_ = decimal(arg.type.digits + 4, arg.type.scale + 4)
        return Value(Sql(made.view, made.spark, _decimal_average(total, count, type_.scale)), type_, arg.size)


def _beside(text: Sql) -> random.Random:
    """Draws of its own: what is drawn for other views, and what Spark confirmed of them, stays as it was."""
    return random.Random(text.view)


def _decimal_average(total: str, count: str, scale: int) -> str:
    """An exact quotient rounded half up, by whole numbers: DuckDB divides DECIMALs as DOUBLEs."""
    whole = f"CAST(CAST({total} AS DECIMAL(24,{scale - 4})) * 1{'0' * scale} AS HUGEINT)"
    rounded = f"(sign({whole}) * ((2 * abs({whole}) + {count}) // nullif(2 * {count}, 0)))"
    return f"CAST(CAST({rounded} AS DECIMAL(24,0)) * 0.{'0' * (scale - 1)}1 AS DECIMAL(24,{scale}))"
