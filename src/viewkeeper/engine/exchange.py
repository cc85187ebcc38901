"""The exchange of Spark: each task in an executor's Python worker, and a shuffle between stages.

In: an epoch's program, the store's URL and incarnation, all as plain values. Out: the receipts of its tasks. Always:
the work itself is `operators.program`; this module only carries its messages in and out of Spark.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from viewkeeper.operators.duck import forget_relations
from viewkeeper.operators.messages import Message, decode, encode, from_batch, in_pieces, to_batch
from viewkeeper.operators.program import EpochProgram
from viewkeeper.operators.receipts import Failure, Receipt
from viewkeeper.ports.store import Store
from viewkeeper.stores.open import open_shared

_BATCH_BYTES = 4 << 20  # small messages travel together, because Spark's cost is per batch
_SCHEMA = "manager int, kind string, table int, channel string, body binary"


class SparkExchange:
    """One job for each epoch, with a task for each manager in every stage."""

    def __init__(self, session: SparkSession, store: Store) -> None:
        self._session = session
        self._store = store

    def run(self, program: EpochProgram) -> Iterator[Receipt | Failure]:
        managers, splits = program.managers, len(program.splits)
        work = ExecutorTasks(self._store.url, self._store.incarnation, program)
        numbers = self._session.range(0, splits, 1, max(1, min(splits, self._readers(managers))))
        sent = numbers.mapInArrow(work.read, _SCHEMA)
        for stage in range(1, len(program.stages) + 1):
            sent = sent.repartitionById(managers, "manager").mapInArrow(partial(work.apply, stage), _SCHEMA)
        for body in (decode(row.asDict()).body for row in sent.collect()):
            if isinstance(body, (Receipt, Failure)):
                yield body

    def _readers(self, managers: int) -> int:
        """How many tasks read: two for each manager even out what they read, where no more than managers run at once."""
        return 2 * managers if managers >= self._session.sparkContext.defaultParallelism else managers


@dataclass(frozen=True, slots=True)
class ExecutorTasks:
    """What travels to executors."""

    url: str
    incarnation: str
    program: EpochProgram

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of splits in, messages out."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batched(self.program.read(self._open, self.program.splits[number]))
                give_back_memory()

    def apply(self, stage: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Messages in, messages out."""
        manager = TaskContext.get().partitionId()
        messages = (message for batch in batches for message in from_batch(batch))
        yield from _batched(self.program.apply(self._open, stage, manager, messages))
        give_back_memory()

    def _open(self) -> Store:
        return open_shared(self.url, self.incarnation)


def _batched(messages: Iterator[Message]) -> Iterator[pa.RecordBatch]:
    rows: list[tuple] = []
    size = 0
    for piece in (piece for message in messages for piece in in_pieces(message)):
        rows.append(encode(piece))
        size += len(rows[-1][-1])
        if size >= _BATCH_BYTES:
            yield to_batch(rows)
            rows, size = [], 0
    if rows:
        yield to_batch(rows)


def give_back_memory() -> None:
    """At the end of a task: a worker lives through many epochs, and what its allocators keep for later would add up."""
    forget_relations()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in glibc
    if trim is not None:
        trim(0)
