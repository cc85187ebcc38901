"""Check files: what a check compares, as Parquet files in a directory that only the user can read.

In: a snapshot of a store, and which columns of which base tables are asked for. Out: base tables as of the snapshot's
epoch, from the base with later changes undone, or from DELTA where the log has no before-images; the sound records of
views, and a fault for each that a reader does not find, finds twice or cannot read; and the rows of a DELTA beside those
of the base. Always: only one batch at a time is in memory, and no damage ends the check. The directory is deleted with
its check; after kill -9 the next check deletes it, because a check that lives holds a lock in its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from viewkeeper.catalog.catalog import ViewDefinition
from viewkeeper.check.compare import FINDINGS_MAX
from viewkeeper.check.report import Finding
from viewkeeper.client.arguments import key_values
from viewkeeper.client.arrow import keys_and_values
from viewkeeper.client.session import Snapshot
from viewkeeper.client.views import present_records, record_of
from viewkeeper.errors import CorruptStore, StoreFull, ViewKeeperError
from viewkeeper.model.foreign_rows import foreign_row_batch
from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.model.positions import Position, Positions
from viewkeeper.model.rowbatches import decode_columns
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.soundness import DAMAGE, Columns, sound_keys, sound_rows, whole_rows
from viewkeeper.ports.base_rows import scan_rows
from viewkeeper.ports.store import Store

_PREFIX, _LOCK = "viewkeeper-check-", "lock"


@contextlib.contextmanager
def check_folder() -> Iterator[Path]:
    """A new directory, for as long as the block lasts."""
    _remove_left()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:  # its mode is 0700
        new = Path(name, "new")
        with new.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(Path(name, _LOCK))  # under its name it is always held, or its check is dead
            yield Path(name)


def _remove_left() -> None:
    """Remove the directories of this user's checks that were killed; those of others, and half-made ones, stay."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it lives (BlockingIOError), or somebody else removes it
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with (folder / _LOCK).open("r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


What = Literal["table", "changed", "base", "delta", "found", "expected", "touched"]
UNREADABLE, MISPLACED = "unreadable", "misplaced"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a record under `key`; `row` is there where it can be read."""

    key: bytes
    kind: str
    why: str
    row: bytes | None = None


def _chosen(flags: np.ndarray, keys: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    return (keys, rows) if flags.all() else (keys.filter(pa.array(flags)), rows.filter(pa.array(flags)))


def shown_key(columns: Columns, key: bytes) -> tuple[object, ...]:
    """The key of a record or row; its bytes where they are none."""
    try:
        return key_values(columns, key)
    except DAMAGE:
        return (key,)


_BATCH_ROWS = 50_000
_PAIRS = pa.schema([("key", pa.binary()), ("row", pa.binary())])


class CheckFiles:
    """The files below `folder`; `stop` ends a write that is under way."""

    def __init__(self, folder: Path, store: Store, snapshot: Snapshot) -> None:
        self._folder = folder
        self._store = store
        self._snapshot = snapshot
        self._last = store.read_epoch_record().last  # no record that the snapshot holds is of a later epoch
        self._is_stopped = False
        self._faults: dict[int, dict[object, Finding]] = {}  # by view or DELTA, and by record
        self.unread: dict[int, ViewKeeperError] = {}  # by view or table: why it could not be read
        self.scratch = self._directory(folder / "scratch")
        self.table_bytes = 0

    def stop(self) -> None:
        self._is_stopped = True

    def path(self, what: What, of: TableSchema | ViewDefinition) -> Path:
        """Where rows, records or keys are: a file for a table, a directory for a view or a side of a DELTA."""
        return self._folder / f"{what}-{of.id}"

    def write(
        self,
        views: Iterable[tuple[ViewDefinition, bool]],
        tables: Iterable[tuple[TableSchema, Sequence[Column]]],
        deltas: Iterable[TableSchema],
    ) -> None:
        """Write all files; of a table that views of different ages read, the columns of the youngest.

        `views`: each with whether it is checked as a whole.
        """
        for view, is_whole in views:
            with self._noted(view.id):
                self._write_found(view, is_whole=is_whole)
        for table, columns in sorted(tables, key=lambda pair: len(pair[1])):
            schema = _schema(columns)
            with self._noted(table.id):
                self._write(self.path("table", table), _decoded(table, columns, self._rows(table), schema), schema)
            self.table_bytes += self.path("table", table).stat().st_size
        for table in deltas:
            with self._noted(table.id):
                self._write_delta(table)

    def unread_by(self, view: ViewDefinition, tables: Iterable[TableSchema]) -> ViewKeeperError | None:
        """Why a view over these tables cannot be judged: its records, or rows of one of them, cannot be read."""
        read = (view.id, *(table.id for table in tables))
        return next((self.unread[one] for one in read if one in self.unread), None)

    def faults(self, view_or_delta: int) -> list[Finding]:
        """The records that are damaged or out of place; of a view by its id, of a DELTA by its own."""
        return list(itertools.islice(self._faults.get(view_or_delta, {}).values(), FINDINGS_MAX))

    @contextlib.contextmanager
    def _noted(self, read: int) -> Iterator[None]:
        """What is damaged ends what is done with it, and nothing else."""
        try:
            yield
        except CorruptStore as error:
            self.unread[read] = error

    def write_changed(self, table: TableSchema, columns: Sequence[Column], start: Positions) -> int:
        """Write the rows that changed after `start`, as they were and as they became; returns how many changes there are."""
        count = 0

        def images() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for stream, end in self._snapshot.frontier.positions.items():
                for changed, batch in self._store.read_log(stream, start.get(stream, Position(0)), end):
                    if changed != table.id:
                        continue
                    count += len(batch)
                    for image in ("before", "after"):
                        there = batch.filter(batch[image].is_valid())
                        yield pa.record_batch([there["key"], there[image]], names=["key", "row"])

        schema = _schema(columns)
        self._write(self.path("changed", table), _decoded(table, columns, images(), schema), schema)
        return count

    def _write_delta(self, table: TableSchema) -> None:
        """Both sides, without the rows that changed since the snapshot's epoch: the base no longer has those."""
        # Whatever is read of the base is in the log when that is read: the base is held, or was read to its end.
        base = self._base_rows(table)
        if self._store.capabilities.held_reads:
            base = itertools.chain([next(base)], base)
        else:
            whole = self.scratch / "base.parquet"
            self._write(whole, base, _PAIRS)
            base = pq.ParquetFile(whole).iter_batches(_BATCH_ROWS)
        keys = self._store.changed_keys(table.id, self._snapshot.frontier.positions)
        changed = pa.chunked_array([pa.array([], pa.binary()), *keys]).unique()
        schema = pa.schema([(f"c{index}", column.type.arrow) for index, column in enumerate(table.columns)])
        sides: tuple[tuple[What, Iterator[pa.RecordBatch]], ...] = (("base", base), ("delta", self._rows(table)))
        for side, rows in sides:
            kept = (batch.filter(pc.invert(pc.is_in(batch["key"], value_set=changed))) for batch in rows)
            rows = _decoded(table, table.columns, kept, schema)
            self._write(self._directory(self.path(side, table)) / "0.parquet", rows, schema)

    def _write_found(self, view: ViewDefinition, *, is_whole: bool) -> None:
        columns = [*(item.column for item in view.shown), *view.node.key]
        schema = pa.schema([(f"c{index}", column.type.arrow) for index, column in enumerate(columns)])
        batches = (table.cast(schema) for table in self._sound_records(view))
        self._write(self._directory(self.path("found", view)) / "0.parquet", batches, schema)
        if is_whole and self._store.capabilities.held_reads:  # where versions are cells, no record is without form
            self._faults[view.id] |= self._damaged_beside(view)

    def _sound_records(self, view: ViewDefinition) -> Iterator[pa.Table]:
        """The records of a view; those that are damaged or out of place are noted."""
        faults = self._faults.setdefault(view.id, {})
        for partition in range(self._store.partitions):
            for keys, rows, wrong in self._inspected(partition, view.node.table, view.node.key, view.node.row):
                for fault in wrong:
                    record = None if fault.row is None else record_of(view, fault.key, fault.row)
                    if fault.row is None or record is not None:  # else it is one of other views alone
                        key = shown_key(view.node.key, fault.key)
                        faults[fault.key, partition] = Finding(view.name, key, fault.kind, None, record, fault.why)
                yield keys_and_values(view, *present_records(view, keys, rows))

    def _inspected(
        self, partition: int, table: int, key: Columns, row: Columns
    ) -> Iterator[tuple[pa.Array, pa.Array, list[Fault]]]:
        """Keys and rows of sound records that belong into a partition, and what is wrong with the others; in batches."""
        for keys, rows, damaged in self._snapshot.stored(partition, table, self._last):
            faults = [Fault(at, UNREADABLE, why) for at, why in damaged]
            is_key = sound_keys(key, keys)
            is_sound = is_key & sound_rows(row, rows)
            for at in np.flatnonzero(~is_sound).tolist():
                what = "row" if is_key[at] else "key"
                faults.append(Fault(keys[at].as_py(), UNREADABLE, f"the bytes of its {what} are damaged"))
            keys, rows = _chosen(is_sound, keys, rows)
            is_here = hashes_of_keys(key, keys) % self._store.partitions == partition if len(keys) else np.ones(0, bool)
            for at in np.flatnonzero(~is_here).tolist():
                why = f"it is in partition {partition}, where a scan finds it and a get does not"
                faults.append(Fault(keys[at].as_py(), MISPLACED, why, rows[at].as_py()))
            yield *_chosen(is_here, keys, rows), faults

    def _damaged_beside(self, view: ViewDefinition) -> dict[object, Finding]:
        """The records of the view's auxiliary tables whose versions cannot be read."""
        found: dict[object, Finding] = {}
        tables = {table for node in self._snapshot.catalog.stored(view) for table in node.tables} - {view.node.table}
        for table, partition in itertools.product(sorted(tables), range(self._store.partitions)):
            for *_, damaged in self._snapshot.stored(partition, table, self._last):
                for key, why in damaged:
                    why = f"in auxiliary table {table}: {why}"
                    found[table, key, partition] = Finding(view.name, (key,), UNREADABLE, None, None, why)
        return found

    def _rows(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        """Batches of (key, row) as of the snapshot's epoch."""
        frontier = self._snapshot.frontier
        if table.delta is None:
            for part in self._store.parts(table.id):
                yield from self._store.scan_as_of(table.id, part, frontier.positions)
        else:
            for partition in range(self._store.partitions):
                yield from self._rows_of_delta(table, table.delta, partition)

    def _rows_of_delta(self, table: TableSchema, delta: int, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows that DELTA has in a partition; those that are damaged or out of place are noted."""
        if table.foreign:
            for keys, rows, _ in self._snapshot.stored(partition, delta, self._last):
                yield foreign_row_batch(table, pa.record_batch([keys, rows], names=["key", "row"]))
            return
        faults = self._faults.setdefault(delta, {})
        for keys, rows, found in self._inspected(partition, delta, table.key_columns, table.value_columns):
            for fault in found:
                key = shown_key(table.key_columns, fault.key)
                faults[fault.key, partition] = Finding(delta_label(table), key, fault.kind, None, None, fault.why)
            yield pa.record_batch([keys, rows], names=["key", "row"])

    def _base_rows(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        """Batches of (key, row) as they are now, at least one."""
        pairs = scan_rows(self._store, table.id, b"", None)
        while True:
            part = list(itertools.islice(pairs, _BATCH_ROWS))
            yield pa.record_batch([pa.array([pair[index] for pair in part], pa.binary()) for index in (0, 1)], _PAIRS)
            if len(part) < _BATCH_ROWS:
                return

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
            fact = f"{self._folder.parent} has no space for the rows that a check compares"
            raise StoreFull(fact, "set TMPDIR to a directory that has") from error

    def _directory(self, path: Path) -> Path:
        path.mkdir(exist_ok=True)
        return path


def delta_label(table: TableSchema) -> str:
    """What findings call the DELTA of a table."""
    return f"DELTA({table.name})"


def require_whole(table: TableSchema, keys: pa.Array, rows: pa.Array) -> None:
    """Raise where a row of a table is damaged, and name it."""
    is_sound = sound_keys(table.key_columns, keys) & whole_rows(table.value_columns, rows, tails=True)
    if not is_sound.all():
        key = keys.take(pa.array((~is_sound).nonzero()[0][:1]))[0].as_py()
        fact = f"a row of table {table.name} is damaged, that with the key {shown_key(table.key_columns, key)}"
        raise CorruptStore(fact, "restore a backup, or load the table anew")


def _schema(columns: Sequence[Column]) -> pa.Schema:
    """The columns as Spark reads them: a TIMESTAMP is an instant."""
    instant = pa.timestamp("us", "UTC")
    return pa.schema([(one.name, instant if one.type.kind == "TIMESTAMP" else one.type.arrow) for one in columns])


def _decoded(
    table: TableSchema, columns: Sequence[Column], batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    names = [column.name for column in columns]
    for batch in batches:
        require_whole(table, batch["key"], batch["row"])
        arrays = decode_columns(table, names, batch["key"], batch["row"])
        cast = [array.cast(part.type) for array, part in zip(arrays, schema, strict=True)]
        yield pa.record_batch(cast, schema=schema)
