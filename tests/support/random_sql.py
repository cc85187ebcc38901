"""Random views over the whole grammar of view SQL, each as one text for the product, for Spark and for DuckDB.

In: a seed, and the tables and views that are there. Out: `RandomView`s. Always: the same seed gives the same views; the
three texts come from the same choices and mean the same; an ORDER BY ends with all outputs, so that rows it leaves equal
are the same rows.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.support.random_blocks import BlockMaker
from tests.support.random_from import Column, FromMaker, Query, Relation
from tests.support.random_values import ValueMaker
from tests.support.sql_texts import Sql, Type, Value, common_type, joined, sql

NESTED = ("subquery in FROM", "WITH", "IN subquery", "EXISTS subquery", "FROM a view")

_SETS = (
    "UNION ALL",
    "UNION ALL",
    "UNION",
    "UNION DISTINCT",
    "INTERSECT",
    "INTERSECT DISTINCT",
    "EXCEPT",
    "EXCEPT DISTINCT",
    "MINUS",
)
_DUCK = {"MINUS": "EXCEPT", **{f"{word} DISTINCT": word for word in ("UNION", "INTERSECT", "EXCEPT")}}


@dataclass(frozen=True, slots=True)
class RandomView:
    name: str
    sql: Sql
    relation: Relation
    features: frozenset[str]
    reads: frozenset[str]  # other views

    @property
    def has_join(self) -> bool:
        return "join" in self.features

    @property
    def is_nested(self) -> bool:
        return not self.features.isdisjoint(NESTED)


class ViewMaker:
    """Makes views, one after the other; each may read those before it."""

    def __init__(self, seed: int, tables: Sequence[Relation], *, wide: bool = False) -> None:
        self._choose = random.Random(seed)
        self.wide = wide
        self._seen: Counter[str] = Counter()
        self._readable: list[Relation] = list(tables)
        self._with: list[Relation] = []
        self._values = ValueMaker(self._choose, self._seen, wide=wide)
        self._from = FromMaker(self._values, self._relations, lambda depth: self.query(depth), itertools.count(1))
        self._blocks = BlockMaker(self._values, self._from, lambda depth: self.query(depth))

    def view(self, name: str) -> RandomView:
        """The next view; `let_read` makes it one that later ones may read."""
        self._seen.clear()
        self._from.views_read.clear()
        query = self.query(self._choose.choice((0, 1, 1, 2)))
        relation = Relation(name, query.columns, query.rows, "view")
        features = frozenset(feature for feature, count in self._seen.items() if count)
        return RandomView(name, query.sql, relation, features, frozenset(self._from.views_read))

    def let_read(self, relation: Relation) -> None:
        """Let the views to come read this, in the place of what has its name, if anything."""
        self._readable = [one for one in self._readable if one.name != relation.name] + [relation]

    def let_not_read(self, name: str) -> None:
        self._readable = [one for one in self._readable if one.name != name]

    def _relations(self) -> list[Relation]:
        """What FROM can read; a name of WITH goes before a table of that name."""
        hidden = {one.name for one in self._with}
        return [*(one for one in self._readable if one.name not in hidden), *self._with]

    def query(self, depth: int) -> Query:
        chance = self._values.chance
        if depth > 0 and chance(0.15):
            return self._with_queries(depth)
        if chance(0.17):
            return self._set_operation(depth)
        return self._blocks.block(depth)

    def _with_queries(self, depth: int) -> Query:
        self._seen["WITH"] += 1
        outside, texts = list(self._with), []
        for _ in range(self._choose.choice((1, 1, 2))):
            query, name = self.query(depth - 1), self._from.name("w")
            called = name
            if self._values.chance(0.1) and all(one.name != "items" for one in self._with):
                called = "items"
                self._seen["WITH in the place of a table"] += 1
            columns, listed = query.columns, ""
            if self._values.chance(0.2):
                columns = self._from.renamed(columns)
                listed = f"({', '.join(column.name for column in columns)})"
                self._seen["columns renamed by WITH"] += 1
            texts.append(sql(f"{called}{listed} AS ({{}})", query.sql, duck=f"{name}{listed} AS ({{}})"))
            self._with.append(Relation(called, columns, query.rows, "WITH", name))
        query = self._set_operation(depth - 1) if self._values.chance(0.15) else self._blocks.block(depth - 1)
        self._with = outside
        return replace(query, sql=sql("WITH {} {}", joined(", ", texts), query.sql))

    def _set_operation(self, depth: int) -> Query:
        words = [self._choose.choice(_SETS)]
        if self._values.chance(0.25):
            words.append(self._choose.choice(_SETS))
            self._seen["set operations in a row"] += 1
            self._seen["different set operations in a row"] += words[0] != words[1]
        small = any("UNION" not in word for word in words)
        first = self._blocks.branch(depth, None, 2 if small else 4)
        types = [column.type for column in first.columns]
        branches = [first, *(self._blocks.branch(depth, types, len(types)) for _ in words)]
        common = [_common([branch.columns[place].type for branch in branches]) for place in range(len(types))]
        texts = [sql("{}", branch.sql, duck=_casting(common)) for branch in branches]
        if self._values.chance(0.2):
            self._seen["set operation in parentheses"] += 1
            texts = [sql("({})", text) for text in texts]
        columns = tuple(_widened(place, type_, branches) for place, type_ in enumerate(common))
        text = self._combined(texts, words)
        text = Sql(text.view, text.spark, _named(text.duck, columns))
        query = Query(text, columns, sum(branch.rows for branch in branches))
        return self._top(query) if self._values.chance(0.1) else query

    def _combined(self, texts: Sequence[Sql], words: Sequence[str]) -> Sql:
        """The branches with the words between them; two operations with or without parentheses."""
        self._seen["set operation"] += 1
        self._seen.update(words)
        if len(words) == 1:
            return _operation(words[0], texts[0], texts[1])
        form = self._choose.choice(("{} ? {} ! {}", "({} ? {}) ! {}", "{} ? ({} ! {})"))
        view, duck = (
            form.replace("?", one).replace("!", two) for one, two in (words, [_DUCK.get(w, w) for w in words])
        )
        return sql(view, *texts, duck=duck)

    def _top(self, query: Query) -> Query:
        """ORDER BY … LIMIT of a set operation."""
        self._seen["ORDER BY with LIMIT over a set operation"] += 1
        values = [Value(sql(column.name), column.type) for column in query.columns]
        order, limit = self._blocks.order([], values), self._choose.choice((1, 3, 5))
        return replace(query, sql=sql(f"{{}} ORDER BY {{}} LIMIT {limit}", query.sql, order), rows=limit)


def _operation(word: str, left: Sql, right: Sql) -> Sql:
    return sql(f"{{}} {word} {{}}", left, right, duck=f"{{}} {_DUCK.get(word, word)} {{}}")


def _widened(place: int, type_: Type, branches: Sequence[Query]) -> Column:
    columns = [branch.columns[place] for branch in branches]
    return Column(columns[0].name, type_, max(c.size for c in columns), all(c.exact for c in columns))


def _common(types: Sequence[Type]) -> Type:
    type_ = types[0]
    for other in types[1:]:
        both = common_type(type_, other)
        assert both is not None
        type_ = both
    return type_


def _casting(types: Sequence[Type]) -> str:
    """DuckDB's text of a branch, with its columns in the common types."""
    names = [f"b{place}" for place in range(len(types))]
    cast = [f"CAST({name} AS {type_.duck}) AS {name}" for name, type_ in zip(names, types, strict=True)]
    return f"SELECT {', '.join(cast)} FROM ({{}}) AS branch({', '.join(names)})"


def _named(text: str, columns: Sequence[Column]) -> str:
    shown = [f"b{place} AS {column.name}" for place, column in enumerate(columns)]
    return f"SELECT {', '.join(shown)} FROM ({text})"
