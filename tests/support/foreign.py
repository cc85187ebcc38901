"""Foreign tables over base tables in memory: clients who know nothing of views write cells, and the log tells of them.

In: an open store without before-images, whose base tables are in memory. Out: tables whose log has cells. Always: the
cells of a row come over several streams, so their order is lost; stamps are the clients' own and often tie. What rows
there are is computed here, plainly.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

import viewkeeper as vk
from tests.support.oracle import bag_of
from viewkeeper.model.foreign_rows import CELLS_SCHEMA, HIDE, PUT
from viewkeeper.model.keys import encode_key
from viewkeeper.model.positions import Position, Positions, Stream
from viewkeeper.model.schema import Cell, Foreign, TableId, TableSchema
from viewkeeper.model.stored_rows import RowWrites


@dataclass(frozen=True, slots=True)
class Write:
    """A cell as a client writes it: `text` is its value; None hides all values up to the stamp."""

    key: str
    column: int
    stamp: int
    order: int
    text: str | None


class ForeignTables:
    """Tables of one database that others write to."""

    def __init__(self, db: vk.Database) -> None:
        self._db, self._numbers = db, itertools.count(1)
        self._written: dict[int, list[tuple[Write, Stream, Position]]] = {}
        self._read_log = db.store.read_log
        db.store.read_log = self._read_cells  # what an adapter of a foreign store does
        db.store.stage = lambda table, *, rows_max: True  # none was there before

    def create(self, ddl: str, name: str) -> TableSchema:
        """A table whose value columns are text in cells of their own names."""
        self._db.execute(ddl)
        self._db.change_catalog(
            lambda catalog: replace(
                catalog,
                version=catalog.version + 1,
                next_id=catalog.next_id + 1,
                tables=tuple(
                    _mapped(table, TableId(catalog.next_id)) if table.name == name else table
                    for table in catalog.tables
                ),
            )
        )
        table = self._db.catalog().table(name)
        self._written[table.id] = []
        return table

    def write(self, table: TableSchema, key: str, column: int, stamp: int, text: str | None) -> None:
        """One cell; the log's entry has a key of its own, so that any stream may get it."""
        order = next(self._numbers)
        row = json.dumps([key, column, stamp, order, text]).encode()
        group = RowWrites(table.id, [order.to_bytes(8, "big")], lambda _: [row])
        ((stream, position),) = self._db.store.write([group]).items()
        self._written[table.id].append((Write(key, column, stamp, order, text), stream, position))

    def rows(self, table: TableSchema, positions: Positions) -> list[tuple[str | None, ...]]:
        """The rows that cells up to some positions make, all columns as text."""
        told = [write for write, stream, position in self._written[table.id] if position <= positions.get(stream, 0)]
        found = []
        for key in sorted({write.key for write in told}):
            row = [_seen([w for w in told if (w.key, w.column) == (key, at)]) for at in range(len(table.value_columns))]
            if any(text is not None for text in row):
                found.append((key, *row))
        return found

    def _read_cells(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        for table, batch in self._read_log(stream, start, stop):
            yield (table, self._cells(table, batch)) if table in self._written else (table, batch)

    def _cells(self, table: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        (schema,) = [known for known in self._db.catalog().tables if known.id == table]
        rows = []
        for position, after in zip(batch["position"].to_pylist(), batch["after"].to_pylist(), strict=True):
            key, column, stamp, order, text = json.loads(after)
            rows.append(
                {
                    "position": position,
                    "key": encode_key(schema.key_columns, (key,)),
                    "column": column,
                    "kind": HIDE if text is None else PUT,
                    "stamp": stamp,
                    "order": order,
                    "value": None if text is None else text.encode(),
                }
            )
        return pa.RecordBatch.from_pylist(rows, CELLS_SCHEMA)


def _mapped(table: TableSchema, aside: TableId) -> TableSchema:
    cells = tuple(Cell("f", column.name, "text") for column in table.value_columns)
    return replace(table, foreign=Foreign(table.name, cells, aside=aside))


def _seen(writes: list[Write]) -> str | None:
    hidden = max((write.stamp for write in writes if write.text is None), default=0)
    shown = [write for write in writes if write.text is not None and write.stamp > hidden]
    return max(shown, key=lambda write: (write.stamp, write.order)).text if shown else None


def recomputed(text: str, tables: dict[str, list[tuple[str | None, ...]]]) -> Counter:
    """What DuckDB makes of the rows of tables (k, g, x)."""
    with duckdb.connect() as judge:
        for name, rows in tables.items():
            judge.execute(f"CREATE TABLE {name} (k VARCHAR, g VARCHAR, x INT)")
            if rows:
                judge.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        return bag_of(judge.execute(text).fetchall())
