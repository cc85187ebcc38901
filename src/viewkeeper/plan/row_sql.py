"""Rows: σ and π over one source, as SQL over the delta rows of that source.

In: a source, then predicates and projections. Out: edges. Always: the SQL never fails: a row on which an expression fails
is marked `fails`, evaluated no further, and kept, so that it can be set aside; which rows fail depends on the text of the
view alone. The row key of the source is kept, shown or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import ColumnRef, Expression, Literal, columns_of
from viewkeeper.algebra.row_key import united_key
from viewkeeper.codegen.expression_sql import emit, guarded
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import INT
from viewkeeper.plan.nodes import Edge, Moves

# Every relation of delta rows has both; `ord` is never NULL, so it also guards TRY against being folded to a constant.
_ORDER, _SIGN = "ord", "sign"
_BRANCH = Column("branch", INT, nullable=False)

# Name, expression, SQL; without an expression the SQL is the name of a column.
Wanted = tuple[str, Expression | None, str]


@dataclass(frozen=True, slots=True)
class Rows:
    """A relation as SQL over one source: the rows of `origin`, a SELECT over the relation `delta` (none: the delta itself),
    that meet the `predicates`.

    `key` is its row key, `key_parts` the expressions of that over `origin`; `key_of` maps visible columns to key parts.
    `read` are the source's columns in use; over a projection none is added. `fails`: `origin` marks rows that fail.
    `moves`: `origin` only renames the delta's columns.
    """

    source: TableId
    source_key: tuple[Column, ...]
    source_key_places: tuple[int, ...]
    key: tuple[Column, ...]
    key_parts: tuple[tuple[Expression | None, str], ...]
    key_of: Mapping[int, int]
    origin: str = ""
    predicates: tuple[Expression, ...] = ()
    read: frozenset[int] = frozenset()
    fails: bool = False
    moves: Moves | None = None
    text: str = ""  # canonical

    def select(self, predicate: Expression) -> Rows:
        """σ."""
        predicates, text = (*self.predicates, predicate), f"σ({spell(predicate)}) {self.text}"
        return replace(self, predicates=predicates, read=self._reading(predicate), text=text)

    def project(self, outputs: Mapping[int, Expression]) -> Rows:
        """π: the expressions as the visible columns at the given positions."""
        keys: list[Wanted] = [(f"h{i}", part, sql) for i, (part, sql) in enumerate(self.key_parts)]
        shown: list[Wanted] = [(f"c{index}", expression, emit(expression)) for index, expression in outputs.items()]
        sql, fails = self._sql([*keys, *shown])
        key_of = {
            index: self.key_of[expression.position]
            for index, expression in outputs.items()
            if isinstance(expression, ColumnRef) and expression.position in self.key_of
        }
        return replace(
            self,
            origin=sql,
            key_parts=tuple((None, name) for name, _, _ in keys),
            key_of=key_of,
            predicates=(),
            read=self._reading(*outputs.values()) | self.key_places,
            fails=fails,
            moves=self._moves([*keys, *shown]),
            text=f"π({', '.join(f'c{index}={spell(part)}' for index, part in outputs.items())}) {self.text}",
        )

    def edge(self, wanted: Sequence[Wanted], aside: TableId | None, *, present: Sequence[str] = ()) -> Edge:
        """The edge to a node that asks for `wanted`, of which those named in `present` must have a value."""
        read = self._reading(*(part for _, part, _ in wanted if part is not None)) | self.key_places
        if (moves := self._moves(wanted)) is not None:
            moved = dict(moves.columns)
            moves = replace(moves, present=(*moves.present, *(moved[name] for name in present)))
            return self._edge(read, None, moves, None)
        sql, fails = self._sql(wanted)
        if present:
            keep = " AND ".join(f"{name} IS NOT NULL" for name in present)
            sql = f"SELECT * FROM ({sql}) WHERE {f'fails OR ({keep})' if fails else keep}"
        return self._edge(read, sql, None, aside if fails else None)

    def grouped_edge(self, expressions: Sequence[Expression], error_list: TableId | None) -> Edge:
        """The edge to a node that evaluates `expressions`, and the predicates, itself."""
        read, needed = self._reading(*expressions), columns_of(*self.predicates, *expressions)
        names = [f"c{index}" for index in needed]
        if self.moves is not None:
            moved = dict(self.moves.columns)
            return self._edge(read, None, replace(self.moves, columns=tuple((n, moved[n]) for n in names)), error_list)
        if not self.origin:
            return self._edge(read, None, None, error_list)
        columns = ", ".join([_ORDER, _SIGN, *names, *(["fails"] if self.fails else [])])
        return self._edge(read, f"SELECT {columns} FROM ({self.origin})", None, error_list)

    def can_fail(self, expressions: Sequence[Expression]) -> bool:
        return self.fails or any(expression.fallible for expression in (*self.predicates, *expressions))

    def _edge(self, read: frozenset[int], sql: str | None, moves: Moves | None, aside: TableId | None) -> Edge:
        return Edge(self.source, tuple(sorted(read)), self.source_key, sql, moves, aside)

    @property
    def key_places(self) -> frozenset[int]:
        """The source's columns that the row key needs and that are not read yet."""
        return frozenset() if self.origin else frozenset(self.source_key_places)

    def _reading(self, *expressions: Expression) -> frozenset[int]:
        return self.read if self.origin else self.read | frozenset(columns_of(*expressions))

    def _moves(self, wanted: Sequence[Wanted]) -> Moves | None:
        """What is wanted, if each is a column of the delta, and every row is."""
        if self.predicates or (self.origin and self.moves is None):
            return None
        if not all(part is None or (isinstance(part, ColumnRef) and sql == emit(part)) for _, part, sql in wanted):
            return None
        if self.moves is None:
            return Moves(tuple((name, sql) for name, _, sql in wanted))
        moved = dict(self.moves.columns)
        return replace(self.moves, columns=tuple((name, moved[sql]) for name, _, sql in wanted))

    def _selected(self) -> tuple[str, bool]:
        """What follows FROM, of the rows that meet the predicates, and whether it marks `fails`."""
        origin, where, fails = f"({self.origin})" if self.origin else "delta", list[str](), self.fails
        for predicate in self.predicates:
            sql = emit(predicate)
            if not predicate.fallible:
                where.append(f"(fails OR {sql})" if fails else sql)
                continue
            tried = _unfailed(guarded([sql], _ORDER), fails=fails)
            inner = f"(SELECT *, {tried} AS w FROM {_where(origin, where)})"
            hidden = "w, fails" if fails else "w"
            origin = f"(SELECT * EXCLUDE ({hidden}), (w IS NULL) AS fails FROM {inner} WHERE w IS NULL OR w.v0)"
            where, fails = [], True
        return _where(origin, where), fails

    def _sql(self, wanted: Sequence[Wanted]) -> tuple[str, bool]:
        """SELECT of what is wanted, and whether it marks `fails`."""
        risky = [index for index, (_, part, _) in enumerate(wanted) if part is not None and part.fallible]
        source, has_failed = self._selected()
        fails = "fails" if has_failed else ""
        if risky:
            tried = _unfailed(guarded([wanted[index][2] for index in risky], _ORDER), fails=has_failed)
            source, fails = f"(SELECT *, {tried} AS t FROM {source})", "(t IS NULL)"
        sqls = [f"t.v{risky.index(at)}" if at in risky else sql for at, (_, _, sql) in enumerate(wanted)]
        columns = [f"{sql} AS {name}" for sql, (name, _, _) in zip(sqls, wanted, strict=True)]
        columns += [f"{fails} AS fails"] if fails else []
        return f"SELECT {', '.join([_ORDER, _SIGN, *columns])} FROM {source}", bool(fails)


def _where(origin: str, conditions: Sequence[str]) -> str:
    return f"{origin} WHERE {' AND '.join(conditions)}" if conditions else origin


def _unfailed(tried: str, *, fails: bool) -> str:
    return f"CASE WHEN NOT fails THEN {tried} END" if fails else tried


def scan_rows(table: TableSchema) -> Rows:
    indexes = tuple(table.position(name) for name in table.key)
    key_of = {index: part for part, index in enumerate(indexes)}
    return output_rows(table.id, tuple(table.key_columns), indexes, f"#{table.id}", key_of)


def output_rows(
    table: TableId, key: tuple[Column, ...], indexes: tuple[int, ...], text: str, key_of: Mapping[int, int]
) -> Rows:
    """The output of a table or a node, as the source of others; `places` are the positions of its row key."""
    return Rows(table, key, indexes, key, tuple((None, f"c{index}") for index in indexes), key_of, text=text)


def united_rows(branches: Sequence[Rows]) -> list[Rows]:
    """Branches under one key: the branch, then its own key in columns that only branches of like keys share."""
    _, positions = united_key([[part.type for part in one.key] for one in branches])
    columns: list[Column] = [_BRANCH]
    for one, own in zip(branches, positions, strict=True):
        # a column has the name of the part for which it was added
        added = (part for part, position in zip(one.key, own, strict=True) if position >= len(columns))
        columns += [Column(part.name, part.type, nullable=True) for part in list(added)]
    united = []
    for number, (one, own) in enumerate(zip(branches, positions, strict=True)):
        constants = [Literal(number, INT), *(Literal(None, column.type) for column in columns[1:])]
        parts: list[tuple[Expression | None, str]] = [(constant, emit(constant)) for constant in constants]
        for position, key_part in zip(own, one.key_parts, strict=True):
            parts[position] = key_part
        read = one.read | one.key_places
        united.append(replace(one, key=tuple(columns), key_parts=tuple(parts), key_of={}, read=read))
    return united


def key_wanted(rows: Rows) -> list[Wanted]:
    return [(f"k{i}", part, sql) for i, (part, sql) in enumerate(rows.key_parts)]
