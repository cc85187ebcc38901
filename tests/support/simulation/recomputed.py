"""The base under a schedule: a model of two small tables, and what DuckDB says that views over them hold.

In: groups of changes, and where the log ended after each. Out: the rows of a view as of any positions, as a bag. Always:
nothing of the product is asked; an answer that was given once is given again, and a query is planned once.
"""

from __future__ import annotations

import atexit
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

    _oracle: _Oracle | None = None
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
            if Base._oracle is None:
                Base._oracle = _Oracle()
            self._answers[query, state] = Base._oracle.ask(query, sources, state)
        return self._answers[query, state]


def _state(rows: dict[tuple[str, str], Row]) -> State:
    ordered = [
        (table, key, row) for (table, key), row in sorted(rows.items(), key=lambda item: item[0]) if row is not None
    ]
    return tuple(tuple((key, *row) for named, key, row in ordered if named == table) for table in TABLES)


class _Rows:
    """The rows of a table, others at each question; DuckDB reads them anew each time."""

    def __init__(self, columns: dict[str, pa.DataType]) -> None:
        self._schema = pa.schema(columns)
        self._table = self._schema.empty_table()

    def set(self, rows: Sequence[tuple]) -> None:
        columns = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        self._table = pa.table([pa.array(c, t) for c, t in zip(columns, self._schema.types, strict=True)], self._schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class _Oracle:
    """DuckDB, with every query that it was asked prepared."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        atexit.register(self._connection.close)
        self._connection.execute("PRAGMA disable_optimizer")  # it takes longer than so few rows
        self._tables = [_Rows(columns) for columns in COLUMNS.values()]
        for name, rows in zip(COLUMNS, self._tables, strict=True):
            self._connection.register(name, rows)
        self._known: dict[str, int] = {}

    def ask(self, query: str, sources: Sequence[str], state: State) -> list[tuple]:
        for table, rows in zip(self._tables, state, strict=True):
            table.set(rows)
        if query not in self._known:
            named = [f"{source} AS ({KINDS[source].query})" for source in sources]
            number = len(self._known)
            self._connection.execute(f"PREPARE q{number} AS {'WITH ' if named else ''}{', '.join(named)} {query}")
            self._known[query] = number
        return self._connection.execute(f"EXECUTE q{self._known[query]}").fetchall()
