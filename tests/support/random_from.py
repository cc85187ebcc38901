"""Random FROM clauses: tables, views, subqueries and joins of every kind.

In: a random source, what there is to read, and the way to make a subquery. Out: a `From`. Always: each join has an equality
between its sides, and what its ON says beyond that cannot fail where the product could set no row aside for it.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.support.random_values import ValueMaker
from tests.support.sql_texts import Sql, Type, Value, cast_for_duck, common_type, joined, sql

ROWS_MAX = 1500  # by rough estimate; joins of joins would grow without end
_MATCHES = 5  # a row of one side meets about one in so many of the other


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type
    size: float = 0
    exact: bool = True
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that FROM can read by its name."""

    name: str
    columns: tuple[Column, ...]
    rows: float
    kind: str  # "table", "view" or "WITH"
    duck_name: str = ""
    grows: bool = False  # it may have more columns by the time that it is read

    @property
    def sql(self) -> Sql:
        return Sql(self.name, self.name, self.duck_name or self.name)


@dataclass(frozen=True, slots=True)
class Query:
    sql: Sql
    columns: tuple[Column, ...]
    rows: float


@dataclass(frozen=True, slots=True)
class From:
    """A FROM clause; `where` are conditions that must stand in WHERE. `starred` is what `*` means, where that is plain."""

    sql: Sql
    values: tuple[Value, ...]
    rows: float
    where: tuple[Sql, ...] = ()
    starred: tuple[Column, ...] = ()
    qualifier: str = ""
    bare: tuple[Value, ...] = ()  # the same values, named without a qualifier


_KINDS = {
    "INNER JOIN": "INNER JOIN",
    "JOIN": "JOIN",
    "LEFT JOIN": "LEFT JOIN",
    "LEFT OUTER JOIN": "LEFT JOIN",
    "RIGHT JOIN": "RIGHT JOIN",
    "FULL OUTER JOIN": "FULL JOIN",
    "FULL JOIN": "FULL JOIN",
    "LEFT SEMI JOIN": "SEMI JOIN",
    "SEMI JOIN": "SEMI JOIN",
    "LEFT ANTI JOIN": "ANTI JOIN",
    "ANTI JOIN": "ANTI JOIN",
}
# The sides on which a row without a key, set aside or not, gives nothing.
_SIDES_THAT_MAY_FAIL = {
    "INNER JOIN": "lr",
    "JOIN": "lr",
    "LEFT JOIN": "r",
    "RIGHT JOIN": "l",
    "FULL JOIN": "",
    "SEMI JOIN": "lr",
    "ANTI JOIN": "r",
}
_WEIGHTS = (5, 4, 5, 2, 4, 2, 2, 2, 1, 2, 1)


class FromMaker:
    """Makes FROM clauses. `subquery` makes a query of a depth for use in FROM."""

    def __init__(
        self,
        values: ValueMaker,
        relations: Callable[[], Sequence[Relation]],
        subquery: Callable[[int], Query],
        names: Iterator[int],
    ) -> None:
        self._values, self._relations, self._subquery, self._names = values, relations, subquery, names
        self._choose: random.Random = values.choose
        self._seen: Counter[str] = values.seen
        self.views_read: set[str] = set()

    def name(self, letter: str) -> str:
        return f"{letter}{next(self._names)}"

    def source(self, depth: int, *, same: Relation | None = None) -> From:
        """One table, view, query of WITH, or subquery."""
        if same is None and depth > 0 and self._values.chance(0.3):
            return self._from_subquery(depth)
        relation = same or self._relation()
        self._seen[f"FROM a {relation.kind}"] += 1
        if relation.kind == "view":
            self.views_read.add(relation.name)
        alias = self.name("q")
        form = self._choose.choice((f"{{}} AS {alias}", f"{{}} {alias}"))
        columns = relation.columns
        if self._values.chance(0.06) and not relation.grows:
            columns = self.renamed(columns)
            form = f"{{}} AS {alias}({', '.join(column.name for column in columns)})"
        return self._of(sql(form, relation.sql), alias, columns, relation.rows)

    def renamed(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        self._seen["columns renamed by AS"] += 1
        return tuple(replace(column, name=self.name("x")) for column in columns)

    def _relation(self) -> Relation:
        relations = list(self._relations())
        named = [one for one in relations if one.kind == "WITH"]
        if named and self._values.chance(0.6):
            return self._choose.choice(named)
        views = [one for one in relations if one.kind == "view"]
        if views and self._values.chance(0.12):
            return self._choose.choice(views)
        return self._choose.choice([one for one in relations if one.kind == "table"])

    def _from_subquery(self, depth: int) -> From:
        self._seen["subquery in FROM"] += 1
        query, alias = self._subquery(depth - 1), self.name("q")
        columns, shown = query.columns, f"({{}}) AS {alias}"
        if self._values.chance(0.1):
            columns = self.renamed(columns)
            shown += f"({', '.join(column.name for column in columns)})"
        return self._of(sql(shown, query.sql), alias, columns, query.rows)

    def unnamed(self, depth: int) -> From:
        """A subquery without a name, whose columns have no qualifier."""
        self._seen["subquery in FROM"] += 1
        self._seen["subquery without a name"] += 1
        query = self._subquery(depth - 1)
        bare = tuple(_value(column.name, column) for column in query.columns)
        return From(sql("({})", query.sql), bare, query.rows)

    def _of(self, text: Sql, alias: str, columns: Sequence[Column], rows: float) -> From:
        values = tuple(_value(f"{alias}.{column.name}", column) for column in columns)
        if self._values.chance(0.05):
            self._seen["names in other letters"] += 1
            values = tuple(_value(f"{alias.upper()}.{column.name.upper()}", column) for column in columns)
        elif self._values.chance(0.05):
            self._seen["names in backticks"] += 1
            values = tuple(
                replace(one, sql=sql(f"{alias}.`{column.name}`", duck=one.sql.duck))
                for one, column in zip(values, columns, strict=True)
            )
        bare = tuple(_value(column.name, column) for column in columns)
        return From(text, values, rows, starred=tuple(columns), qualifier=alias, bare=bare)

    def joins(self, depth: int) -> From:
        """A FROM clause with at least one join."""
        form = self._choose.choice(
            (self._chain, self._chain, self._chain, self._same_key, self._commas, self._using, self._nested)
        )
        made = form(depth)
        self._seen["join"] += 1
        return made

    def _chain(self, depth: int) -> From:
        """Joins one after the other, each with something before it."""
        left = self.source(depth)
        count = self._choose.choice((1, 1, 1, 2, 2, 3))
        for place in range(count):
            right = self._another(left, depth)
            if left.rows * right.rows / _MATCHES > ROWS_MAX:
                break
            joined_ = self._join(left, right, self._kind())
            if joined_ is None:
                break
            left = joined_
            self._seen["join of three or more"] += place == 1
        return left if left.where or " JOIN " in left.sql.view else self._using(depth)

    def _kind(self) -> str:
        return self._choose.choices(tuple(_KINDS), _WEIGHTS)[0]

    def _another(self, left: From, depth: int) -> From:
        """The next source; now and then a table that is there already."""
        tables = [one for one in self._relations() if f"{one.name} " in left.sql.view and one.kind == "table"]
        if tables and self._values.chance(0.25):
            self._seen["self-join"] += 1
            return self.source(0, same=self._choose.choice(tables))
        return self.source(depth)

    def _join(self, left: From, right: From, kind: str) -> From | None:
        pairs = list(self._pairs(left.values, right.values))
        if not pairs:
            return None
        self._choose.shuffle(pairs)
        count = 2 if len(pairs) > 1 and self._values.chance(0.2) else 1
        conditions = [self._equality(*pair, _SIDES_THAT_MAY_FAIL[_KINDS[kind]]) for pair in pairs[:count]]
        self._seen["join on several columns"] += count > 1
        self._seen["join of different types"] += any(a.type != b.type for a, b in pairs[:count])
        if self._values.chance(0.3):
            inner = kind in ("JOIN", "INNER JOIN")
            sides = (*left.values, *right.values)
            self._seen["join with a further condition"] += 1
            self._seen["outer join with a further condition"] += not inner
            conditions.append(self._values.condition(sides, 1, safe=not inner))
        self._choose.shuffle(conditions)
        self._seen[kind] += 1
        text = sql(
            f"{{}} {kind} {{}} ON {{}}",
            left.sql,
            right.sql,
            joined(" AND ", conditions),
            duck=f"{{}} {_KINDS[kind]} {{}} ON {{}}",
        )
        return replace(_together(kind, left, right), sql=text)

    def _pairs(self, left: Sequence[Value], right: Sequence[Value]) -> Iterator[tuple[Value, Value]]:
        """Columns that can be equal: mostly of the same type, of numbers also of different ones."""
        for a, b in itertools.product(left, right):
            if a.type.kind == "BOOLEAN" or common_type(a.type, b.type) is None:
                continue
            if a.type == b.type or self._values.chance(0.25):
                yield a, b

    def _equality(self, left: Value, right: Value, may_fail: str = "") -> Sql:
        """`left = right`; `may_fail` names the sides whose rows are set aside when the key fails, as if it were NULL."""
        if left.type.is_integer and right.type.is_integer and may_fail and self._values.chance(0.05):
            self._seen["rows set aside by a key"] += 1
            if self._choose.choice(may_fail) == "l":
                left = self._values.failing(left)
            else:
                right = self._values.failing(right)
        if self._values.chance(0.15):
            changed = self._values.value([left], left.type, 1)
            if common_type(changed.type, right.type) is not None and not changed.constant:
                if left.sql.view in changed.sql.view:
                    self._seen["join on an expression"] += 1
                    left = changed
        sides = [left, right] if self._values.chance(0.5) else [right, left]
        common = common_type(left.type, right.type)
        assert common is not None
        return sql("{} = {}", *(cast_for_duck(side, common) for side in sides))

    def _same_key(self, depth: int) -> From:
        """Several sources that are all equal on one key."""
        sources = [self.source(0) for _ in range(self._choose.choice((3, 3, 4)))]
        types = [
            type_
            for type_ in dict.fromkeys(value.type for value in sources[0].values)
            if type_.kind != "BOOLEAN" and all(any(v.type == type_ for v in one.values) for one in sources)
        ]
        rows = sources[0].rows
        for one in sources[1:]:
            rows *= one.rows / _MATCHES
        if not types or rows > ROWS_MAX:
            return self._chain(depth)
        type_ = self._choose.choice(types)
        keys = [self._choose.choice([v for v in one.values if v.type == type_]) for one in sources]
        text, values = sources[0].sql, list(sources[0].values)
        self._seen["join of three or more"] += 1
        self._seen["join of three or more on one key"] += 1
        for place in range(1, len(sources)):
            other = keys[self._choose.randrange(place)]
            condition = self._equality_of(other, keys[place])
            text = sql("{} JOIN {} ON {}", text, sources[place].sql, condition)
            values += sources[place].values
        return From(text, tuple(values), rows)

    def _equality_of(self, left: Value, right: Value) -> Sql:
        return sql("{} = {}", left.sql, right.sql)

    def _commas(self, depth: int) -> From:
        """Sources side by side, with the equalities in WHERE."""
        left = self.source(depth)
        where: list[Sql] = []
        for _ in range(self._choose.choice((1, 1, 2))):
            right = self._another(left, depth)
            pairs = list(self._pairs(left.values, right.values))
            if not pairs or left.rows * right.rows / _MATCHES > ROWS_MAX:
                break
            where.append(self._equality(*self._choose.choice(pairs)))
            word = self._choose.choice((", ", " CROSS JOIN "))
            self._seen["comma join" if word == ", " else "CROSS JOIN"] += 1
            left = replace(_together("JOIN", left, right), sql=sql(f"{{}}{word}{{}}", left.sql, right.sql))
        return replace(left, where=tuple(where)) if where else self._chain(depth)

    def _using(self, depth: int) -> From:
        """Two or three tables by the names that all have; DuckDB is told by ON what that means."""
        tables = [one for one in self._relations() if one.kind == "table"]
        first, second = (self._choose.choice(tables) for _ in range(2))
        names = [a.name for a in first.columns for b in second.columns if a.name == b.name and _can_be_key(a, b)]
        names = self._choose.sample(names, min(len(names), self._choose.choice((1, 1, 2))))
        left = self._of_table(first)
        keys = {
            name: next(v for v, c in zip(left.values, first.columns, strict=True) if c.name == name) for name in names
        }
        made, keys = self._join_using(replace(left, values=_others(left, first, names)), keys, second, names)
        self._seen["self-join"] += first is second
        third = self._choose.choice(tables)
        if self._values.chance(0.25) and all(
            any(c.name == n and common_type(c.type, keys[n].type) for c in third.columns) for n in names
        ):
            self._seen["USING twice"] += 1
            self._seen["join of three or more"] += 1
            made, keys = self._join_using(made, keys, third, names)
        return replace(made, values=(*keys.values(), *made.values))

    def _of_table(self, table: Relation) -> From:
        alias = self.name("q")
        return self._of(sql(f"{{}} {alias}", table.sql), alias, table.columns, table.rows)

    def _join_using(
        self, left: From, keys: dict[str, Value], table: Relation, names: Sequence[str]
    ) -> tuple[From, dict[str, Value]]:
        """The values of `left` are those beside the keys."""
        kind, right = self._kind(), self._of_table(table)
        self._seen[kind] += 1
        self._seen["USING"] += 1
        self._seen[f"USING in {_KINDS[kind]}"] += 1
        found = {c.name: v for v, c in zip(right.values, table.columns, strict=True) if c.name in names}
        common = {name: _common(keys[name], found[name]) for name in names}
        equal = [f"{cast_for_duck(keys[n], common[n]).duck} = {cast_for_duck(found[n], common[n]).duck}" for n in names]
        text = sql(
            f"{{}} {kind} {{}} USING ({', '.join(names)})",
            left.sql,
            right.sql,
            duck=f"{{}} {_KINDS[kind]} {{}} ON {' AND '.join(equal)}",
        )
        together = _together(kind, left, replace(right, values=_others(right, table, names)))
        after = {name: _using_key(kind, name, keys[name], found[name]) for name in names}
        return replace(together, sql=text), after

    def _nested(self, depth: int) -> From:
        """A join with joined tables in parentheses, which may have a name."""
        left, inside = self.source(depth), self._join(self.source(0), self.source(0), self._kind())
        if inside is None or left.rows * inside.rows / _MATCHES > ROWS_MAX:
            return self._chain(depth)
        is_fixed = not any(f"{one.name} " in inside.sql.view for one in self._relations() if one.grows)
        if is_fixed and self._values.chance(0.4):
            inside = self._named(inside)
        else:
            inside = replace(inside, sql=sql("({})", inside.sql))
        whole = self._join(left, inside, self._kind())
        if whole is None:
            return self._chain(depth)
        self._seen["join in parentheses"] += 1
        self._seen["join of three or more"] += 1
        return whole

    def _named(self, inside: From) -> From:
        self._seen["join in parentheses under a name"] += 1
        alias = self.name("q")
        plain = [Column("", value.type, value.size, value.exact, value.nullable) for value in inside.values]
        columns = self.renamed(plain)
        listed = ", ".join(column.name for column in columns)
        shown = ", ".join(value.sql.duck for value in inside.values)
        text = sql(f"({{}}) AS {alias}({listed})", inside.sql, duck=f"(SELECT {shown} FROM {{}}) AS {alias}({listed})")
        return self._of(text, alias, columns, inside.rows)


def _can_be_key(left: Column, right: Column) -> bool:
    return left.type.kind != "BOOLEAN" and common_type(left.type, right.type) is not None


def _others(source: From, table: Relation, names: Sequence[str]) -> tuple[Value, ...]:
    """The columns that are not keys of USING."""
    return tuple(value for value, c in zip(source.values, table.columns, strict=True) if c.name not in names)


def _common(left: Value, right: Value) -> Type:
    common = common_type(left.type, right.type)
    assert common is not None
    return common


def _using_key(kind: str, name: str, left: Value, right: Value) -> Value:
    """The key that USING shows under its bare name."""
    size = max(left.size, right.size)
    match _KINDS[kind]:
        case "RIGHT JOIN":
            shown, type_ = right.sql.duck, right.type
        case "FULL JOIN":
            type_ = _common(left, right)
            shown = f"coalesce({cast_for_duck(left, type_).duck}, {cast_for_duck(right, type_).duck})"
        case _:
            shown, type_ = left.sql.duck, left.type
    return Value(Sql(name, name, shown), type_, size)


def _value(text: str, column: Column) -> Value:
    return Value(sql(text), column.type, column.size, exact=column.exact, nullable=column.nullable)


def _together(kind: str, left: From, right: From) -> From:
    rows = max(1, left.rows * right.rows / _MATCHES)
    first, second = left.values, right.values
    if "SEMI" in kind or "ANTI" in kind:
        return From(left.sql, first, left.rows)
    if "RIGHT" in kind or "FULL" in kind:
        first, rows = tuple(replace(value, nullable=True) for value in first), rows + right.rows
    if "LEFT" in kind or "FULL" in kind:
        second, rows = tuple(replace(value, nullable=True) for value in second), rows + left.rows
    return From(left.sql, (*first, *second), rows)
