"""Random conditions with subqueries: IN, NOT IN, EXISTS and NOT EXISTS, tied to the query around or not.

In: the FROM that the condition is about. Out: a condition for its WHERE. Always: an EXISTS that is tied is tied by an
equality, and what else ties it cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.support.random_from import From, FromMaker, Query
from tests.support.random_values import ValueMaker
from tests.support.sql_texts import Sql, Value, cast_for_duck, common_type, joined, sql


class PredicateMaker:
    def __init__(self, values: ValueMaker, from_: FromMaker, nested: Callable[[int], Query]) -> None:
        self._values, self._from, self._nested = values, from_, nested
        self._choose, self._seen, self._chance = values.choose, values.seen, values.chance

    def predicate(self, around: From, depth: int) -> Sql | None:
        # names without qualifiers could mean the subquery's own columns
        if any("." not in value.sql.view for value in around.values):
            return None
        made = self._exists(around, depth) if self._chance(0.45) else self._in(around, depth)
        if made is None:
            return None
        self._seen["tied subquery"] += made[1]
        return made[0]

    def _exists(self, around: From, depth: int) -> tuple[Sql, bool] | None:
        word = self._choose.choice(("EXISTS", "NOT EXISTS"))
        if self._chance(0.1):
            query = self._nested(max(0, depth - 1))
            self._seen["untied EXISTS"] += 1
            self._seen["EXISTS subquery"] += 1
            return sql(f"{word} ({{}})", query.sql), False
        inside = self._inside(depth)
        ties = self._ties(around, inside)
        if not ties:
            return None
        self._seen["EXISTS subquery"] += 1
        self._seen[word] += 1
        shown = self._choose.choice((sql("1"), sql("*"), inside.values[0].sql))
        return sql(f"{word} (SELECT {{}} FROM {{}} WHERE {{}})", shown, inside.sql, joined(" AND ", ties)), True

    def _inside(self, depth: int) -> From:
        if depth > 0 and self._chance(0.2):
            joins = self._from.joins(depth - 1)
            if not joins.where:
                self._seen["join in a subquery of WHERE"] += 1
                return joins
        return self._from.source(max(0, depth - 1))

    def _ties(self, around: From, inside: From) -> list[Sql]:
        """An equality with the query around, and perhaps more."""
        pair = self._pair(around.values, inside.values)
        if pair is None:
            return []
        ties = [_equal(*pair)]
        if self._chance(0.3):
            self._seen["subquery tied by more than an equality"] += 1
            ties.append(self._values.condition([*around.values, *inside.values], 1, safe=True))
        if self._chance(0.4):
            ties.append(self._values.condition(inside.values, 1))
        self._choose.shuffle(ties)
        return ties

    def _pair(self, around: Sequence[Value], inside: Sequence[Value]) -> tuple[Value, Value] | None:
        pairs = [(a, b) for a in around for b in inside if a.type == b.type and a.type.kind != "BOOLEAN"]
        if self._chance(0.2):
            pairs += [(a, b) for a in around for b in inside if a.type != b.type and common_type(a.type, b.type)]
        return self._choose.choice(pairs) if pairs else None

    def _in(self, around: From, depth: int) -> tuple[Sql, bool] | None:
        negated = self._chance(0.45)
        word = "NOT IN" if negated else "IN"
        if self._chance(0.15):
            return self._in_query(around, depth, word)
        inside = self._inside(depth)
        pair = self._pair(around.values, inside.values)
        if pair is None:
            return None
        pairs = [_same_type(*pair)]
        ties = self._ties_of_in(around, inside, negated)
        where = [self._values.condition(inside.values, 1)] if self._chance(0.5) else []
        never_null = not (pair[0].nullable or pair[1].nullable)
        if (not negated or never_null) and self._chance(0.3 if not negated else 0.6):
            second = self._pair(around.values, inside.values)
            if second is not None and not (negated and (second[0].nullable or second[1].nullable)):
                self._seen["IN of several columns"] += 1
                pairs.append(_same_type(*second))
        self._seen["IN subquery"] += 1
        self._seen[f"{word} subquery"] += 1
        return _in_subquery(word, pairs, inside.sql, [*ties, *where]), bool(ties)

    def _ties_of_in(self, around: From, inside: From, negated: bool) -> list[Sql]:
        tie = self._pair(around.values, inside.values) if self._chance(0.3) else None
        if tie is None:
            return []
        ties = [_equal(*tie)]
        if not negated and self._chance(0.3):
            self._seen["subquery tied by more than an equality"] += 1
            ties.append(self._values.condition([*around.values, *inside.values], 1, safe=True))
        return ties

    def _in_query(self, around: From, depth: int, word: str) -> tuple[Sql, bool] | None:
        """IN of a query with groups, an order or a set operation, which stands by itself."""
        inside, other = self._inside(depth), self._from.source(0)
        pair = self._pair(around.values, inside.values)
        if pair is None:
            return None
        outer, inner = _same_type(*pair)
        forms = {
            "IN grouped rows": "SELECT {0} FROM {1} GROUP BY {0} HAVING COUNT(*) < 3",
            "IN an aggregate": "SELECT MAX({0}) FROM {1}",
            "IN the first rows": "SELECT {0} FROM {1} ORDER BY {0} DESC NULLS LAST LIMIT 3",
        }
        second = [value for value in other.values if value.type == pair[1].type]
        if second:
            forms["IN a set operation"] = "SELECT {0} FROM {1} UNION ALL SELECT {2} FROM {3}"
        feature = self._choose.choice(tuple(forms))
        self._seen[feature] += 1
        self._seen["IN subquery"] += 1
        self._seen[f"{word} subquery"] += 1
        beside = _same_type(pair[0], second[0])[1] if second else inner
        query = sql(forms[feature], inner, inside.sql, beside, other.sql)
        return sql(f"{{}} {word} ({{}})", outer, query), False


def _equal(left: Value, right: Value) -> Sql:
    return sql("{} = {}", *_same_type(left, right))


def _same_type(left: Value, right: Value) -> tuple[Sql, Sql]:
    common = common_type(left.type, right.type)
    assert common is not None
    return cast_for_duck(left, common), cast_for_duck(right, common)


def _in_subquery(word: str, pairs: Sequence[tuple[Sql, Sql]], source: Sql, where: Sequence[Sql]) -> Sql:
    """`x IN (SELECT y …)`; of several columns DuckDB is asked by EXISTS, for it cannot tie such an IN."""
    outer, inner = (joined(", ", [pair[place] for pair in pairs]) for place in (0, 1))
    query = sql("SELECT {} FROM {}", inner, source)
    if where:
        query = sql("{} WHERE {}", query, joined(" AND ", list(where)))
    if len(pairs) == 1:
        return sql(f"{{}} {word} ({{}})", outer, query)
    found = sql(f"({{}}) {word} ({{}})", outer, query)
    conditions = joined(" AND ", [sql("({})", one) for one in (*(sql("{} = {}", *pair) for pair in pairs), *where)])
    return Sql(
        found.view, found.spark, f"{word.replace('IN', 'EXISTS')} (SELECT 1 FROM {source.duck} WHERE {conditions.duck})"
    )
