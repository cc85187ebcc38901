"""The base under a schedule: a model of two small tables, and what DuckDB says that views over them hold.

In: groups of changes, and where the log ended after each. Out: the rows of a view as of any positions, as a bag. Always:
nothing of the product is asked; an answer that was given once is given again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from tests.support.oracle import bag_of
from tests.support.simulation.kinds import COLUMNS, KINDS, TABLES
from viewkeeper.model.positions import Position, Positions, Stream

ANSWERS_MAX = 5_000
Row = tuple | None
Change = tuple[str, str, Row]  # table, key, the rest of the row or None: deleted
State = tuple[tuple[tuple, ...], ...]  # the rows of each table


class Base:
    """The base tables as of any positions, and what views over them hold."""

    _connection: duckdb.DuckDBPyConnection | None = None
    _answers: dict[tuple[str, State], list[tuple]] = {}

    def __init__(self) -> None:
        self._writes: list[tuple[Change, Stream, Position]] = []
        self._ends: Positions = {}
        self.now: dict[tuple[str, str], Row] = {}

    def begin(self, ends: Positions) -> None:
        """A transaction begins: what the logs have by now is not its own."""
        self._ends = ends

    def write(self, changes: Sequence[Change], ends: Positions) -> bool:
        """A transaction, if the log grew by it: where its outcome was not told, the log tells it."""
        grown = [(stream, end) for stream, end in ends.items() if end != self._ends.get(stream, 0)]
        self._ends = ends
        for stream, end in grown:
            self._writes += [(change, stream, end) for change in changes]
            self.now |= {(table, key): row for table, key, row in changes}
        return bool(grown)

    def rows(self, positions: Positions) -> State:
        """The rows of each table, with their keys."""
        found: dict[tuple[str, str], Row] = {}
        for (table, key, row), stream, position in self._writes:
            if position <= positions.get(stream, 0):
                found[table, key] = row
        return _state(found)

    @property
    def newest(self) -> State:
        """The rows of each table after all that was written."""
        return _state(self.now)

    def bag(self, name: str, positions: Positions) -> Counter:
        """What a view holds."""
        kind = KINDS[name]
        return bag_of(map(kind.finish, self._ask(kind.asked or kind.query, kind.reads, self.rows(positions))))

    def aside(self, name: str, positions: Positions) -> int:
        """On how many rows an expression of a view fails."""
        return len(self._ask(KINDS[name].aside, (), self.rows(positions)))

    def _ask(self, query: str, sources: Sequence[str], state: State) -> list[tuple]:
        if (query, state) not in self._answers:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[query, state] = self._execute(query, sources, state)
        return self._answers[query, state]

    def _execute(self, query: str, sources: Sequence[str], state: State) -> list[tuple]:
        connection = self._connect()
        for (table, kinds), rows in zip(COLUMNS.items(), state, strict=True):
            columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds.values(), strict=True)]
            connection.register(table, pa.table(dict(zip(kinds, arrays, strict=True))))
        named = [f"{source} AS ({KINDS[source].query})" for source in sources]
        return connection.execute(f"{'WITH ' if named else ''}{', '.join(named)} {query}").fetchall()

    @classmethod
    def _connect(cls) -> duckdb.DuckDBPyConnection:
        if cls._connection is None:
            cls._connection = duckdb.connect(config={"threads": 1})
        return cls._connection


def _state(rows: dict[tuple[str, str], Row]) -> State:
    ordered = [
        (table, key, row) for (table, key), row in sorted(rows.items(), key=lambda item: item[0]) if row is not None
    ]
    return tuple(tuple((key, *row) for named, key, row in ordered if named == table) for table in TABLES)
