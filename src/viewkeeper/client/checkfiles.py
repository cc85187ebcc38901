"""Check files: what a check compares, as Parquet files in a directory that only the user can read.

In: a snapshot of a store, and which columns of which base tables are asked for. Out: base tables as of the snapshot's
epoch, from the base with later changes undone, or from DELTA where the log has no before-images; the records of views;
and, where there is a DELTA, its rows beside those of the base. Always: only one batch at a time is in memory.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from viewkeeper.catalog.catalog import ViewDefinition
from viewkeeper.errors import InputError
from viewkeeper.model.images import image_batch
from viewkeeper.model.positions import Position, Positions
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.tablebatches import decode_columns

if TYPE_CHECKING:
    from viewkeeper.client.session import Snapshot
    from viewkeeper.ports.store import Store

_BATCH_ROWS = 50_000


class CheckFiles:
    """The files below `folder`; `stop` ends a write that is under way."""

    def __init__(self, folder: Path, store: Store, snapshot: Snapshot) -> None:
        self._folder = folder
        self._store = store
        self._snapshot = snapshot
        self._is_stopped = False
        self.scratch = self._directory("scratch")
        self.table_bytes = 0

    def stop(self) -> None:
        self._is_stopped = True

    def table(self, table: TableSchema) -> Path:
        return self._folder / f"table-{table.id}.parquet"

    def found(self, view: ViewDefinition) -> Path:
        return self._folder / f"found-{view.id}"

    def expected(self, view: ViewDefinition) -> Path:
        return self._folder / f"expected-{view.id}"

    def changed(self, table: TableSchema) -> Path:
        return self._folder / f"changed-{table.id}.parquet"

    def touched(self, view: ViewDefinition) -> Path:
        return self._folder / f"touched-{view.id}"

    def sides_of_delta(self, table: TableSchema) -> tuple[Path, Path]:
        """The rows of the base, and those of DELTA."""
        return self._folder / f"base-{table.id}", self._folder / f"delta-{table.id}"

    def write(
        self,
        views: Iterable[ViewDefinition],
        tables: Iterable[tuple[TableSchema, Sequence[Column]]],
        deltas: Iterable[TableSchema],
    ) -> None:
        """Write all files; of a table that views of different ages read, the columns of the youngest."""
        for view in views:
            self._write_found(view)
        for table, columns in sorted(tables, key=lambda pair: len(pair[1])):
            schema = _schema(columns)
            self._write(self.table(table), _decoded(table, columns, self._rows(table), schema), schema)
            self.table_bytes += self.table(table).stat().st_size
        for table in deltas:
            self._write_delta(table)

    def write_changed(self, table: TableSchema, columns: Sequence[Column], start: Positions) -> int:
        """Write the rows that changed after `start`, as they were and as they became; returns how many changes there are."""
        count = 0

        def images() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in self._changes(table, start, self._snapshot.horizon.positions):
                count += len(batch)
                for image in ("before", "after"):
                    there = batch.filter(batch[image].is_valid())
                    yield pa.record_batch([there["key"], there[image]], names=["key", "row"])

        schema = _schema(columns)
        self._write(self.changed(table), _decoded(table, columns, images(), schema), schema)
        return count

    def _write_delta(self, table: TableSchema) -> None:
        """Both sides, without the rows that changed since the snapshot's epoch: the base no longer has those."""
        base = self._base_rows(table)
        first = next(base)  # the base is held: its later changes are in the log when that is read
        changed = self._changed_keys(table)
        schema = pa.schema([(f"c{place}", column.type.arrow) for place, column in enumerate(table.columns)])
        sides = (itertools.chain([first], base), self._rows(table))
        for target, rows in zip(self.sides_of_delta(table), sides, strict=True):
            kept = (batch.filter(pc.invert(pc.is_in(batch["key"], value_set=changed))) for batch in rows)
            self._write(
                self._directory(target.name) / "0.parquet", _decoded(table, table.columns, kept, schema), schema
            )

    def _write_found(self, view: ViewDefinition) -> None:
        columns = [*(item.column for item in view.shown), *view.node.key]
        schema = pa.schema([(f"c{place}", column.type.arrow) for place, column in enumerate(columns)])
        batches = (table.cast(schema) for table in self._snapshot.view(view.name).keys_and_values())
        self._write(self._directory(self.found(view).name) / "0.parquet", batches, schema)

    def _rows(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        """Batches of (key, row) as of the snapshot's epoch."""
        horizon = self._snapshot.horizon
        if table.delta is None:
            for part in self._store.parts(table.id):
                yield from self._store.scan_as_of(table.id, part, horizon.positions)
        else:
            for partition in range(self._store.partitions):
                rows = self._store.scan_versions(partition, table.delta, self._snapshot.epoch, horizon.aborted)
                yield from map(partial(image_batch, table), rows) if table.foreign else rows

    def _base_rows(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        """Batches of (key, row) as they are now, at least one."""
        pairs = self._store.scan(table.id, b"", None)
        while True:
            part = list(itertools.islice(pairs, _BATCH_ROWS))
            arrays = [pa.array([pair[place] for pair in part], pa.binary()) for place in (0, 1)]
            yield pa.record_batch(arrays, names=["key", "row"])
            if len(part) < _BATCH_ROWS:
                return

    def _changed_keys(self, table: TableSchema) -> pa.Array:
        changes = self._changes(table, self._snapshot.horizon.positions, self._store.last_entries())
        return pa.chunked_array([pa.array([], pa.binary()), *(batch["key"] for batch in changes)]).unique()

    def _changes(self, table: TableSchema, start: Positions, stop: Positions) -> Iterator[pa.RecordBatch]:
        for stream, end in stop.items():
            changes = self._store.read_log(stream, start.get(stream, Position(0)), end)
            yield from (batch for changed, batch in changes if changed == table.id)

    def _write(self, target: Path, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema) -> None:
        try:
            with pq.ParquetWriter(target, schema, compression="lz4") as writer:
                for batch in batches:
                    if self._is_stopped:
                        return
                    writer.write(batch)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            fact = f"{self._folder.parent} has no space for what a check compares"
            raise InputError(fact, "set TMPDIR to a directory that has") from error

    def _directory(self, name: str) -> Path:
        path = self._folder / name
        path.mkdir(exist_ok=True)
        return path


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([(column.name, _aware(column)) for column in columns])


def _aware(column: Column) -> pa.DataType:
    """The type of a column as Spark reads it: a TIMESTAMP is an instant."""
    return pa.timestamp("us", "UTC") if column.type.kind == "TIMESTAMP" else column.type.arrow


def _decoded(
    table: TableSchema, columns: Sequence[Column], batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    names = [column.name for column in columns]
    for batch in batches:
        arrays = decode_columns(table, names, batch["key"], batch["row"])
        yield pa.record_batch(
            [array.cast(part.type) for array, part in zip(arrays, schema, strict=True)], schema=schema
        )
