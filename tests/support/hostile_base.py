"""The base under hostile schedules: a model of two small tables, and what DuckDB says that views over them hold.

In: single changes, and where the log ended after each. Out: the rows of a view as of any positions, as a bag. Always: nothing
of the product is asked; an answer that was given once is given again.
"""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa

from tests.support.hostile_views import COLUMNS, KINDS, TABLES
from tests.support.oracle import bag_of
from viewkeeper.model.positions import Positions

Rows = dict[str, tuple | None]


class Base:
    """The base tables as of any positions, and what views over them hold."""

    _connection: duckdb.DuckDBPyConnection | None = None
    _answers: dict[tuple, Counter] = {}

    def __init__(self) -> None:
        self._writes: list[tuple[str, str, tuple | None, int, int]] = []  # the change, its stream and its position
        self._ends: Positions = {}

    def write(self, table: str, key: str, row: tuple | None, ends: Positions) -> None:
        for stream, end in ends.items():
            if end != self._ends.get(stream, 0):
                self._writes.append((table, key, row, stream, end))
        self._ends = ends

    def has(self, table: str, key: str) -> bool:
        last = next((row for at, of, row, _, _ in reversed(self._writes) if (at, of) == (table, key)), None)
        return last is not None

    def bag(self, name: str, positions: Positions) -> Counter:
        rows: dict[str, Rows] = {table: {} for table in TABLES}
        for table, key, row, stream, position in self._writes:
            if position <= positions.get(stream, 0):
                rows[table][key] = row
        state = tuple(
            tuple((key, *row) for key, row in sorted(rows[table].items()) if row is not None) for table in TABLES
        )
        if (name, state) not in self._answers:
            self._answers[name, state] = self._ask(name, state)
        return self._answers[name, state]

    @classmethod
    def _connect(cls) -> duckdb.DuckDBPyConnection:
        if cls._connection is None:
            cls._connection = duckdb.connect(config={"threads": 1})
        return cls._connection

    def _ask(self, name: str, state: tuple) -> Counter:
        connection = self._connect()
        for table, rows in zip(TABLES, state, strict=True):
            columns = list(zip(*rows, strict=True)) or [(), (), ()]
            kinds = (pa.string(), pa.string(), pa.int32())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            connection.register(table, pa.table(dict(zip(COLUMNS[table], arrays, strict=True))))
        sources = [f"{source} AS ({KINDS[source].query})" for source in KINDS[name].reads]
        text = f"{'WITH ' if sources else ''}{', '.join(sources)} {KINDS[name].query}"
        return bag_of(connection.execute(text).fetchall())
