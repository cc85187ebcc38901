"""Per operation: the papers' algorithm (paper 5, section V, algorithms 1 to 3), as fast as Python and LMDB allow.

In: a prepared store, whose log is the input, and an update program. Out: seconds for all changes, and the view's records.
Always: every change is its own reads, computations and test-and-sets; a record carries the signature (stream, position) of
the last change applied to it; one sync for each 10,000 changes.

What makes it fast: the log is decoded by the product's vectorized decoder before the loop (its time counts), values are
packed structs, the environment is unsynced between the sync points, one process (LMDB has one writer). Three variants:

* `each`: the papers' algorithm. A test-and-set is an operation of the store that others can come between, so a change is a
  transaction: one for all of its records, which is the faster reading.
* `batched`: beyond the papers. 10,000 changes share one transaction, which nobody else can write beside.
* `fused`: as `batched`, and without the second read by which a test-and-set compares the signature.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import lmdb
import pyarrow as pa

import viewkeeper as vk
from viewkeeper.model.positions import Position, Stream
from viewkeeper.model.schema import TableSchema

CHANGES_PER_SYNC = 10_000
VARIANTS = ("each", "batched", "fused")
STREAM = 0


class UpdateProgram(Protocol):
    """What is done for each change, and the tables it is done to."""

    def __init__(self, environment: lmdb.Environment) -> None: ...

    def load(self, first: Mapping[str, pa.Table], schemas: Mapping[str, TableSchema], position: int) -> None:
        """The state before the changes, from the rows of each table; not a part of what is measured."""
        ...

    def columns(self, batch: pa.RecordBatch, schema: TableSchema) -> Iterable[list]:
        """What the program needs of a batch of one table's changes, as lists of plain values, the position first."""
        ...

    def apply(self, transaction: lmdb.Transaction, changes: list) -> None:
        """All of `changes`, one after the other."""
        ...

    def records(self) -> pa.Table:
        """The view as it is now."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """What one run took: reading and decoding the log, and the operations with their commits and syncs."""

    decode_seconds: float
    apply_seconds: float
    cpu_seconds: float
    changes: int
    records: pa.Table

    @property
    def seconds(self) -> float:
        return self.decode_seconds + self.apply_seconds


def run(url: str, target: Path, first: Mapping[str, pa.Table], program: type[UpdateProgram], variant: str) -> Run:
    """All changes of the store's log, applied to records in a new environment at `target` that begin as of `first`."""
    settings = {"map_size": 1 << 34, "max_dbs": 4, "sync": False, "metasync": False, "readahead": False}
    with vk.connect(url, read_only=True) as db, lmdb.open(str(target), **settings) as environment:
        record = db.store.read_epoch_record()
        start, stop = record.positions[Stream(str(STREAM))], db.store.ends()[Stream(str(STREAM))]
        schemas, updates = {name: db.table(name).schema for name in first}, program(environment)
        by_id = {schema.id: schema for schema in schemas.values()}
        updates.load(first, schemas, start)
        environment.sync(True)
        began, cpu = time.perf_counter(), time.process_time()
        batches = list(db.store.read_log(Stream(str(STREAM)), start, Position(stop)))
        columns = (updates.columns(batch, by_id[source]) for source, batch in batches)
        changes = [change for lists in columns for change in zip(*lists, strict=True)]
        if len(schemas) > 1:
            changes.sort(key=itemgetter(0))  # batches are by table
        decoded = time.perf_counter()
        _apply(environment, updates, changes, size=1 if variant == "each" else CHANGES_PER_SYNC)
        ended, cpu = time.perf_counter(), time.process_time() - cpu
        return Run(decoded - began, ended - decoded, cpu, len(changes), updates.records())


def _apply(environment: lmdb.Environment, updates: UpdateProgram, changes: list, *, size: int) -> None:
    for synced in range(0, len(changes), CHANGES_PER_SYNC):
        for first in range(synced, min(synced + CHANGES_PER_SYNC, len(changes)), size):
            with environment.begin(write=True) as transaction:
                updates.apply(transaction, changes[first : first + size])
        environment.sync(True)
