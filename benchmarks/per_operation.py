"""Per operation: the papers' algorithm (paper 5, section V, algorithms 1 to 3), as fast as Python and LMDB allow.

In: a prepared store, whose log is the input. Out: seconds for all changes, and the view's records. Always: every change
is its own read, computation and test-and-set on the old group's record and on the new group's; a record carries the
signature (stream, position) of the last change applied to it; one sync for each 10,000 changes.

What makes it fast: the log is decoded by the product's vectorized decoder before the loop (its time counts), values are
packed structs, the environment is unsynced between the sync points, one process (LMDB has one writer). Three variants:

* `each`: the papers' algorithm. A test-and-set is an operation of the store that others can come between, so a change is a
  transaction: one for both of its groups, which is the faster reading.
* `batched`: beyond the papers. 10,000 changes share one transaction, which nobody else can write beside.
* `fused`: as `batched`, and without the second read by which a test-and-set compares the signature.
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
VARIANTS = ("each", "batched", "fused")
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


def run(store: Path, target: Path, variant: str) -> Run:
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
    apply = _apply_fused if variant == "fused" else _apply_as_written
    size = 1 if variant == "each" else CHANGES_PER_SYNC
    for synced in range(0, len(changes), CHANGES_PER_SYNC):
        for first in range(synced, min(synced + CHANGES_PER_SYNC, len(changes)), size):
            with environment.begin(write=True) as transaction:
                apply(transaction, changes[first : first + size])
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
    """Algorithms 1 to 3: read; unless processed, compute; test-and-set on the signature; again when that fails.

    One loop without helpers: a call for each record made it 8 % slower, and so the comparison too kind to us.
    """
    get, put, delete = transaction.get, transaction.put, transaction.delete
    pack, unpack, key_of = _RECORD.pack, _RECORD.unpack, _KEY.pack
    for position, x_before, y_before, x_after, y_after in changes:
        if x_before == x_after:
            moves = ((x_after, 0, y_after - y_before),)
        elif x_before == _ABSENT:
            moves = ((x_after, 1, y_after),)
        elif x_after == _ABSENT:
            moves = ((x_before, -1, -y_before),)
        else:
            moves = ((x_before, -1, -y_before), (x_after, 1, y_after))
        for x, rows, amount in moves:
            key = key_of(x)
            while True:
                found = get(key)
                if found is None:
                    if put(key, pack(rows, amount, _STREAM, position), overwrite=False):
                        break
                    continue
                n, s, _, processed = unpack(found)
                if processed >= position:
                    break
                now = get(key)  # the test: the record still carries the signature that was read
                if now is None or unpack(now)[3] != processed:
                    continue
                if n + rows:
                    put(key, pack(n + rows, s + amount, _STREAM, position))
                else:
                    delete(key)
                break


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
