"""Per operation: the papers' algorithm (paper 5, section V, algorithms 1 to 3), as fast as Python and LMDB allow.

In: a prepared store, whose log is the input. Out: seconds for all changes, and the view's records. Always: every change
is its own read, computation and test-and-set on the old group's record and on the new group's; a record carries the
signature (stream, position) of the last change applied to it; one transaction and one sync for each 10,000 changes.

What makes it fast: the log is decoded by the product's vectorized decoder before the loop (its time counts), values are
packed structs, the environment is unsynced between the sync points, one process (LMDB has one writer). `fused` leaves
out what a single writer inside one transaction may: the second read by which a test-and-set compares the signature.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa

import viewkeeper as vk
from viewkeeper.model.positions import Position, Stream
from viewkeeper.model.rowbatches import decode_rows

CHANGES_PER_SYNC = 10_000
_KEY = struct.Struct(">i")
_RECORD = struct.Struct("<qqIQ")  # rows, sum, then the signature: stream, position
_STREAM = 0
_ABSENT = -1  # x of an image that is not there
Change = tuple[int, int, int, int, int]  # position, x and y before, x and y after


@dataclass(frozen=True, slots=True)
class Run:
    """What one run took: reading and decoding the log, and the operations with their commits and syncs."""

    decode_seconds: float
    apply_seconds: float
    cpu_seconds: float
    changes: int

    @property
    def seconds(self) -> float:
        return self.decode_seconds + self.apply_seconds


def run(store: Path, target: Path, *, fused: bool) -> Run:
    """All changes of the store's log, applied to records in a new environment at `target`."""
    environment = lmdb.open(str(target), map_size=1 << 32, sync=False, metasync=False, readahead=False)
    with vk.connect(f"embedded:{store}", read_only=True) as db:
        record = db.store.read_epoch_record()
        start, stop = record.positions[Stream(_STREAM)], db.store.ends()[Stream(_STREAM)]
        _load(environment, db.view("v1").to_arrow(), start)
        began, cpu = time.perf_counter(), time.process_time()
        values = db.table("r").schema.value_columns
        columns = [_columns(batch, values) for _, batch in db.store.read_log(Stream(_STREAM), start, Position(stop))]
    changes = [change for batch in columns for change in zip(*batch, strict=True)]
    decoded = time.perf_counter()
    apply = _apply_fused if fused else _apply_as_written
    for first in range(0, len(changes), CHANGES_PER_SYNC):
        with environment.begin(write=True) as transaction:
            apply(transaction, changes[first : first + CHANGES_PER_SYNC])
        environment.sync(True)
    ended, cpu = time.perf_counter(), time.process_time() - cpu
    environment.close()
    return Run(decoded - began, ended - decoded, cpu, len(changes))


def read_records(target: Path) -> pa.Table:
    """The view as a run left it."""
    with lmdb.open(str(target), map_size=1 << 32, readonly=True) as environment, environment.begin() as transaction:
        rows = [(*_KEY.unpack(key), *_RECORD.unpack(value)[:2]) for key, value in transaction.cursor()]
    return pa.table(list(np.array(rows, np.int64).T), names=["x", "n", "s"])


def _load(environment: lmdb.Environment, view: pa.Table, position: int) -> None:
    """The records before the changes; not a part of what is measured."""
    columns = (view["x"].to_pylist(), view["n"].to_pylist(), view["s"].cast(pa.int64()).to_pylist())
    with environment.begin(write=True) as transaction:
        for x, n, s in zip(*columns, strict=True):
            transaction.put(_KEY.pack(x), _RECORD.pack(n, s, _STREAM, position))
    environment.sync(True)


def _columns(batch: pa.RecordBatch, values: tuple) -> Iterator[list[int]]:
    """Position, x and y before, x and y after of a batch of changes, as lists of numbers."""
    yield batch["position"].to_pylist()
    for side in ("before", "after"):
        x, y = decode_rows(values, batch[side])
        yield x.fill_null(_ABSENT).to_pylist()
        yield y.fill_null(0).to_pylist()


def _apply_as_written(transaction: lmdb.Transaction, changes: list[Change]) -> None:
    """Algorithms 1 to 3: read; unless processed, compute; test-and-set on the signature; again when that fails."""
    for position, x_before, y_before, x_after, y_after in changes:
        if x_before == x_after:
            _propagate(transaction, x_after, 0, y_after - y_before, position)
            continue
        if x_before != _ABSENT:
            _propagate(transaction, x_before, -1, -y_before, position)
        if x_after != _ABSENT:
            _propagate(transaction, x_after, 1, y_after, position)


def _propagate(
    transaction: lmdb.Transaction,
    x: int,
    rows: int,
    amount: int,
    position: int,
    *,
    pack: object = _RECORD.pack,
    unpack: object = _RECORD.unpack,
    key_of: object = _KEY.pack,
) -> None:
    key = key_of(x)
    get = transaction.get
    while True:
        found = get(key)
        if found is None:
            if transaction.put(key, pack(rows, amount, _STREAM, position), overwrite=False):
                return
            continue
        n, s, _, processed = unpack(found)
        if processed >= position:
            return
        now = get(key)  # the test: the record still carries the signature that was read
        if now is None or unpack(now)[3] != processed:
            continue
        if n + rows:
            transaction.put(key, pack(n + rows, s + amount, _STREAM, position))
        else:
            transaction.delete(key)
        return


def _apply_fused(transaction: lmdb.Transaction, changes: list[Change]) -> None:
    """The same with all that a single writer may leave out: the read inside the transaction is the test."""
    get, put, delete = transaction.get, transaction.put, transaction.delete
    pack, unpack, key_of = _RECORD.pack, _RECORD.unpack, _KEY.pack
    for position, x_before, y_before, x_after, y_after in changes:
        moves = x_before != x_after
        if moves and x_before != _ABSENT:
            key = key_of(x_before)
            n, s, _, processed = unpack(get(key))
            if processed < position:
                if n > 1:
                    put(key, pack(n - 1, s - y_before, _STREAM, position))
                else:
                    delete(key)
        if x_after != _ABSENT:
            key = key_of(x_after)
            found = get(key)
            n, s, _, processed = unpack(found) if found else (0, 0, 0, 0)
            if processed < position:
                rows, amount = (1, y_after) if moves else (0, y_after - y_before)
                put(key, pack(n + rows, s + amount, _STREAM, position))
