"""Rows: σ and π over one source, as SQL over the delta rows of that source.

In: a source, then predicates and projections, one after the other. Out: edges. Always: the SQL never fails: a row on
which an expression fails is marked `fails`, evaluated no further, and kept, so that it can be set aside; which rows
fail depends on the text of the view alone. The row key of the source is carried along, shown or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import ColumnRef, Expression, columns_of
from viewkeeper.codegen.expression_sql import emit, guarded
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import INT
from viewkeeper.plan.nodes import Edge

# Every relation of delta rows has both; `ord` is never NULL, so it also guards TRY against being folded to a constant.
_ORDER, _SIGN = "ord", "sign"
_BRANCH = Column("branch", INT, nullable=False)

Wanted = tuple[str, Expression | None, str]  # name, the expression if it can fail, SQL


@dataclass(frozen=True, slots=True)
class Rows:
    """A relation as SQL over one source.

    `key` are the columns of its row key, `key_sqls` their SQL over `origin`; `key_of` maps visible columns to the key
    parts they are. `read` are the source's columns that anything refers to so far; after a projection (`is_raw` is then
    False), nothing else can.
    """

    source: TableId
    source_key: tuple[Column, ...]
    source_key_places: tuple[int, ...]
    key: tuple[Column, ...]
    key_sqls: tuple[str, ...]
    key_of: Mapping[int, int]
    origin: str = "delta"
    where: tuple[str, ...] = ()
    read: frozenset[int] = frozenset()
    fails: bool = False
    is_raw: bool = True
    predicates: tuple[Expression, ...] = field(default=())  # while raw
    text: str = ""  # canonical

    def select(self, predicate: Expression) -> Rows:
        """σ."""
        read = self._reading(predicate)
        sql = emit(predicate)
        seen = (*self.predicates, predicate) if self.is_raw else ()
        text = f"σ({spell(predicate)}) {self.text}"
        if not predicate.fallible:
            where = (*self.where, f"(fails OR {sql})" if self.fails else sql)
            return replace(self, where=where, read=read, predicates=seen, text=text)
        tried = self._unfailed(guarded([sql], _ORDER))
        inner = f"(SELECT *, {tried} AS w FROM {self._from})"
        hidden = "w, fails" if self.fails else "w"
        origin = f"(SELECT * EXCLUDE ({hidden}), (w IS NULL) AS fails FROM {inner} WHERE w IS NULL OR w.v0)"
        return replace(self, origin=origin, where=(), read=read, fails=True, predicates=seen, text=text)

    def project(self, outputs: Mapping[int, Expression]) -> Rows:
        """π: the expressions as the visible columns at the given positions."""
        keys: list[Wanted] = [(f"h{i}", None, sql) for i, sql in enumerate(self.key_sqls)]
        shown: list[Wanted] = [(f"c{place}", expression, emit(expression)) for place, expression in outputs.items()]
        sql, fails = self._sql([*keys, *shown])
        key_of = {
            place: self.key_of[expression.position]
            for place, expression in outputs.items()
            if isinstance(expression, ColumnRef) and expression.position in self.key_of
        }
        read = self._reading(*outputs.values()) | (frozenset(self.source_key_places) if self.is_raw else frozenset())
        names = tuple(name for name, _, _ in keys)
        return replace(
            self,
            origin=f"({sql})",
            where=(),
            key_sqls=names,
            key_of=key_of,
            read=read,
            fails=fails,
            is_raw=False,
            predicates=(),
            text=f"π({', '.join(f'c{place}={spell(part)}' for place, part in outputs.items())}) {self.text}",
        )

    def edge(
        self,
        wanted: Sequence[Wanted],
        aside: TableId | None,
        *,
        keep: str = "",
        with_key: bool = True,
        marked: bool = False,
    ) -> Edge:
        """The edge to a node that asks for `wanted`.

        `keep` is a condition on its names that every row must meet; `marked`: there is a `fails` even where nothing can
        fail.
        """
        sql, fails = self._sql(wanted)
        if marked and not fails:
            sql = f"SELECT *, FALSE AS fails FROM ({sql})"
        if keep:
            sql = f"SELECT * FROM ({sql}) WHERE {f'fails OR ({keep})' if fails else keep}"
        read = self._reading(*(expression for _, expression, _ in wanted if expression is not None))
        if self.is_raw and with_key:
            read |= frozenset(self.source_key_places)
        return Edge(self.source, tuple(sorted(read)), self.source_key, sql, aside if fails else None)

    def can_fail(self, expressions: Sequence[Expression]) -> bool:
        return self.fails or any(expression.fallible for expression in expressions)

    @property
    def _from(self) -> str:
        return f"{self.origin} WHERE {' AND '.join(self.where)}" if self.where else self.origin

    def _reading(self, *expressions: Expression) -> frozenset[int]:
        return self.read | frozenset(columns_of(*expressions)) if self.is_raw else self.read

    def _unfailed(self, tried: str) -> str:
        return f"CASE WHEN NOT fails THEN {tried} END" if self.fails else tried

    def _sql(self, wanted: Sequence[Wanted]) -> tuple[str, bool]:
        """SELECT of what is wanted, and whether it marks `fails`."""
        risky = [
            place for place, (_, expression, _) in enumerate(wanted) if expression is not None and expression.fallible
        ]
        source, fails = self._from, "fails" if self.fails else ""
        if risky:
            tried = self._unfailed(guarded([wanted[place][2] for place in risky], _ORDER))
            source, fails = f"(SELECT *, {tried} AS t FROM {source})", "(t IS NULL)"
        columns = [_ORDER, _SIGN]
        for place, (name, _, sql) in enumerate(wanted):
            columns.append(f"{f't.v{risky.index(place)}' if place in risky else sql} AS {name}")
        if fails:
            columns.append(f"{fails} AS fails")
        return f"SELECT {', '.join(columns)} FROM {source}", bool(fails)


def scan_rows(table: TableSchema) -> Rows:
    places = tuple(table.position(name) for name in table.key)
    key_of = {place: part for part, place in enumerate(places)}
    return output_rows(table.id, tuple(table.key_columns), places, f"#{table.id}", key_of)


def output_rows(
    table: TableId, key: tuple[Column, ...], places: tuple[int, ...], text: str, key_of: Mapping[int, int]
) -> Rows:
    """The output of a table or a node, as the source of others; `places` are the positions of its row key."""
    return Rows(table, key, places, key, tuple(f"c{place}" for place in places), key_of, text=text)


def united_rows(branches: Sequence[Rows]) -> list[Rows]:
    """Branches under one key: the branch, then its own key in columns that only branches of like keys share."""
    columns: list[Column] = [_BRANCH]
    homes: list[list[int]] = []
    for one in branches:
        mine: list[int] = []
        for part in one.key:
            free = [i for i, c in enumerate(columns) if i and i not in mine and c.type == part.type]
            if not free:
                columns.append(Column(part.name, part.type, nullable=True))
            mine.append(free[0] if free else len(columns) - 1)
        homes.append(mine)
    key = tuple(columns)
    united = []
    for number, (one, mine) in enumerate(zip(branches, homes, strict=True)):
        sqls = [f"CAST({number} AS INTEGER)", *(f"CAST(NULL AS {column.type.duckdb})" for column in key[1:])]
        for home, sql in zip(mine, one.key_sqls, strict=True):
            sqls[home] = sql
        read = one.read | (frozenset(one.source_key_places) if one.is_raw else frozenset())
        united.append(replace(one, key=key, key_sqls=tuple(sqls), key_of={}, read=read))
    return united


def key_wanted(rows: Rows) -> list[Wanted]:
    return [(f"k{i}", None, sql) for i, sql in enumerate(rows.key_sqls)]
