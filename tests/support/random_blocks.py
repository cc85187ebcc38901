"""Random SELECTs: select lists, WHERE with subqueries, groups with aggregates, DISTINCT, ORDER BY with LIMIT.

In: makers of values and of FROM, and the way to make a nested query. Out: a `Query`. Always: every output has a name of its
own that no other column of the world has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.support.random_aggregates import AggregateMaker
from tests.support.random_from import Column, From, FromMaker, Query
from tests.support.random_predicates import PredicateMaker
from tests.support.random_values import ValueMaker
from tests.support.sql_texts import BIGINT, INT, Sql, Type, Value, common_type, joined, sql

_GROUPED_ROWS = 6.0


class BlockMaker:
    def __init__(self, values: ValueMaker, from_: FromMaker, nested: Callable[[int], Query]) -> None:
        self._values, self._from = values, from_
        self._choose, self._seen, self._chance = values.choose, values.seen, values.chance
        self._aggregates = AggregateMaker(values)
        self._predicates = PredicateMaker(values, from_, nested)

    def block(self, depth: int) -> Query:
        """A SELECT with anything."""
        source = self._source(depth)
        where = self._where(source, depth)
        if (source.rows > 60 and self._chance(0.4)) or self._chance(0.3):
            return self._grouped(source, where)
        return self._plain(source, where, None, self._choose.choice((1, 2, 3, 3, 4)))

    def branch(self, depth: int, types: Sequence[Type] | None, width: int) -> Query:
        """A branch of a set operation: a plain SELECT with columns that widen to `types`."""
        source = self._source(depth) if self._chance(0.5) else self._from.source(depth)
        where = self._where(source, depth)
        return self._plain(source, where, types, self._choose.randint(1, width), bare=True)

    def _source(self, depth: int) -> From:
        if depth > 0 and self._chance(0.03):
            return self._from.unnamed(depth)
        source = self._from.joins(depth) if self._chance(0.46) else self._from.source(depth)
        if source.bare and self._chance(0.3):
            self._seen["names without qualifiers"] += 1
            source = replace(source, values=source.bare)
        return source

    def _where(self, source: From, depth: int) -> list[Sql]:
        conditions = list(source.where)
        if self._chance(0.45):
            self._seen["WHERE"] += 1
            conditions.append(self._values.condition(source.values, 2))
        numbers = [value for value in source.values if value.type.is_integer]
        if numbers and self._chance(0.02):
            self._seen["rows set aside by WHERE"] += 1
            failing = self._values.failing(self._choose.choice(numbers))
            conditions.append(sql("{} >= 2", failing.sql))
        if self._chance(0.2) and source.rows < 400:
            predicate = self._predicates.predicate(source, depth)
            if predicate is not None:
                conditions.append(predicate)
        self._choose.shuffle(conditions)
        return conditions

    # ------------------------------------------------------------------ rows

    def _plain(
        self, source: From, where: list[Sql], types: Sequence[Type] | None, width: int, *, bare: bool = False
    ) -> Query:
        if types is None and source.starred and self._chance(0.1):
            return self._star(source, where)
        items = self._items(source, types, width)
        guard = self._failing(source, items, "rows set aside by an output") if types is None else None
        named = self._named(items)
        distinct = self._chance(0.1)
        self._seen["DISTINCT"] += distinct
        text = _select("DISTINCT " if distinct else "", self._listed(named), source.sql, where, guard)
        columns = tuple(_column(name, value) for value, name in named)
        query = Query(text, columns, source.rows)
        if bare or not self._chance(0.1):
            return query
        return self._top(query, [] if distinct else list(source.values), [value for value, _ in named])

    def _named(self, items: Sequence[Value]) -> list[tuple[Value, str]]:
        """Outputs with their names; a column may keep its own, as long as no two outputs have the same."""
        named: list[tuple[Value, str]] = []
        for value in items:
            own = value.sql.view.rpartition(".")[2]
            is_column = own.isidentifier() and own.lower() == own and not value.constant
            if is_column and all(own != name for _, name in named) and self._chance(0.2):
                named.append((value, own))
            else:
                named.append((value, self._from.name("c")))
        return named

    def _listed(self, named: Sequence[tuple[Value, str]]) -> Sql:
        parts = []
        for value, name in named:
            if value.sql.view.rpartition(".")[2] == name:
                self._seen["column without AS"] += 1
                parts.append(sql("{}", value.sql, duck=f"{{}} AS {name}"))
            else:
                parts.append(sql(f"{{}} {'' if self._chance(0.1) else 'AS '}{name}", value.sql, duck=f"{{}} AS {name}"))
        return joined(", ", parts)

    def _items(self, source: From, types: Sequence[Type] | None, width: int) -> list[Value]:
        if types is None:
            return [self._values.any_value(source.values) for _ in range(width)]
        items = []
        for type_ in types:
            value = self._values.value(source.values, type_, self._choose.choice((0, 0, 1)))
            if value.type != type_ and common_type(value.type, type_) is None:
                value = self._values.literal(type_)
            if common_type(value.type, type_) is None:  # a DECIMAL as wide as a sum's
                value = Value(sql(f"CAST(2 AS DECIMAL({type_.digits}, {type_.scale}))"), type_, 2, constant=True)
            if type_.kind == "BIGINT" and self._chance(0.2):
                value = self._values.value(source.values, INT, 0)
            items.append(value)
        return items

    def _failing(self, source: From, items: list[Value], feature: str) -> Sql | None:
        """Now and then a value on which some rows fail; the row is set aside, which the guard says to the others."""
        numbers = [value for value in source.values if value.type.is_integer]
        if not numbers or not self._chance(0.03):
            return None
        self._seen[feature] += 1
        number = self._choose.choice(numbers)
        items.append(self._values.failing(number))
        return sql("({} IS NULL OR {} <> 0)", number.sql, number.sql)

    def _star(self, source: From, where: list[Sql]) -> Query:
        self._seen["*"] += 1
        listed = ", ".join(column.name for column in source.starred)
        star = self._choose.choice(("*", f"{source.qualifier}.*"))
        text = _select("", Sql(star, listed, listed), source.sql, where, None)
        return Query(text, source.starred, source.rows)

    # ------------------------------------------------------------------ groups

    def _grouped(self, source: From, where: list[Sql]) -> Query:
        keys = self._keys(source)
        guard = self._failing(source, keys, "rows set aside by a group")
        failing: list[Value] = []
        guard = self._failing(source, failing, "rows set aside by an aggregate") if guard is None else guard
        self._seen["GROUP BY" if keys else "aggregates without GROUP BY"] += 1
        named: list[tuple[Value, str]] = [(key, self._from.name("c")) for key in keys if self._chance(0.85)]
        for _ in range(self._choose.choice((1, 1, 2, 3)) if keys or not named else 0):
            named.append((self._aggregates.aggregate(source.values, keys), self._from.name("c")))
        named += [(self._aggregates.sum_of(value), self._from.name("c")) for value in failing]
        self._choose.shuffle(named)
        distinct = bool(keys) and self._chance(0.05)
        self._seen["DISTINCT over groups"] += distinct
        text = _select("DISTINCT " if distinct else "", self._listed(named), source.sql, where, guard)
        if keys:
            text = sql("{} GROUP BY {}", text, self._group_by(keys, named))
        hidden = [self._aggregates.aggregate(source.values, keys), *keys]
        if self._chance(0.25):
            text = sql("{} HAVING {}", text, self._having(source, keys, named))
            hidden = []  # beside HAVING, Spark finds nothing but outputs
        columns = tuple(_column(name, value) for value, name in named)
        query = Query(text, columns, _GROUPED_ROWS if keys else 1)
        if not keys or distinct or not self._chance(0.12):
            return query
        return self._top(query, hidden, [value for value, _ in named])

    def _keys(self, source: From) -> list[Value]:
        keys: list[Value] = []
        for _ in range(self._choose.choice((0, 1, 1, 1, 2, 2))):
            key = self._values.any_value(source.values, 1)
            if key.type.kind == "DOUBLE" and not key.exact:
                continue
            if not key.constant and all(key.sql != other.sql for other in keys):
                self._seen["GROUP BY an expression"] += not key.sql.view.replace(".", "").replace("_", "").isalnum()
                keys.append(key)
        return keys

    def _group_by(self, keys: Sequence[Value], named: Sequence[tuple[Value, str]]) -> Sql:
        """The keys as expressions, as aliases or as places of the select list."""
        parts = []
        for key in keys:
            text = key.sql
            place = next((i for i, (value, _) in enumerate(named) if value is key), None)
            if place is not None and self._chance(0.15):
                self._seen["GROUP BY a place"] += 1
                text = Sql(str(place + 1), str(place + 1), text.duck)
            elif place is not None and self._chance(0.15):
                self._seen["GROUP BY an alias"] += 1
                text = Sql(named[place][1], named[place][1], text.duck)
            parts.append(text)
        return joined(", ", parts)

    def _having(self, source: From, keys: Sequence[Value], named: Sequence[tuple[Value, str]]) -> Sql:
        self._seen["HAVING"] += 1
        terms = [self._aggregates.aggregate(source.values, keys), *keys]
        for value, name in named:
            if self._chance(0.3):
                self._seen["HAVING of an alias"] += 1
                terms.append(replace(value, sql=Sql(name, name, value.sql.duck)))
        if self._chance(0.4):
            return sql(f"COUNT(*) {self._choose.choice(('> 1', '< 4', '>= 1', '<> 2'))}")
        if self._values.wide:  # where HAVING fails the group is left out, whatever the rest of it says of NULL
            count = Value(sql("COUNT(*)"), BIGINT, 100, nullable=False)
            terms = [count if value.fails else value for value in terms]
        return self._values.condition(terms, 1)

    # ------------------------------------------------------------------ order

    def _top(self, query: Query, hidden: Sequence[Value], outputs: Sequence[Value]) -> Query:
        self._seen["ORDER BY with LIMIT"] += 1
        limit = self._choose.choice((1, 2, 3, 5, 8))
        first = [self._choose.choice(hidden)] if hidden and self._chance(0.4) else []
        self._seen["ORDER BY what is not shown"] += bool(first)
        shown = [
            replace(value, sql=Sql(column.name, column.name, column.name))
            for column, value in zip(query.columns, outputs, strict=True)
        ]
        order = self.order(first, shown)
        return replace(query, sql=sql(f"{{}} ORDER BY {{}} LIMIT {limit}", query.sql, order), rows=limit)

    def order(self, first: Sequence[Value], outputs: Sequence[Value]) -> Sql:
        """ORDER BY some terms, then all outputs, so that rows that it leaves equal are the same."""
        shuffled = list(enumerate(outputs, start=1))
        self._choose.shuffle(shuffled)
        terms = [(value.sql, None) for value in first if not value.constant]
        terms += [(value.sql, place) for place, value in shuffled]
        parts = []
        for text, place in terms:
            down = self._chance(0.5)
            nulls_first = self._chance(0.5)
            words = (
                f"{' DESC' if down else self._choose.choice(('', ' ASC'))} NULLS {'FIRST' if nulls_first else 'LAST'}"
            )
            view = words
            if nulls_first != down and self._chance(0.5):  # Spark's own order of NULLs
                view = words.split(" NULLS")[0]
            if place is not None and self._chance(0.2):
                self._seen["ORDER BY a place"] += 1
                text = sql(str(place))
            parts.append(sql(f"{{}}{view}", text, duck=f"{{}}{words}"))
        return joined(", ", parts)


def _column(name: str, value: Value) -> Column:
    return Column(name, value.type, value.size, value.exact, value.nullable)


def _select(distinct: str, listed: Sql, source: Sql, where: Sequence[Sql], guard: Sql | None) -> Sql:
    """SELECT … FROM … WHERE; the guard is not for the product."""
    text = sql(f"SELECT {distinct}{{}} FROM {{}}", listed, source)
    plain = joined(" AND ", [sql("({})", one) for one in where]) if len(where) > 1 else (where[0] if where else None)
    if guard is None:
        return text if plain is None else sql("{} WHERE {}", text, plain)
    if plain is None:
        return sql("{}", text, spark="{} WHERE " + guard.spark, duck="{} WHERE " + guard.duck)
    guarded = "{} WHERE ({}) AND "
    return sql("{} WHERE {}", text, plain, spark=guarded + guard.spark, duck=guarded + guard.duck)
