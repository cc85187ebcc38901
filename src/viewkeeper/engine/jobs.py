"""Spark jobs: the tasks of an epoch with a shuffle between stages, and pieces of a store's own work.

In: an epoch's program, or a function and pieces; the store's URL and incarnation, all as plain values. Out: the receipts
of the epoch's tasks, or bytes for each piece. Always: the work itself is done elsewhere (`operators.program`, the store).
What a piece raises is returned as a value: Spark's own text for an error may hold values of rows, and Spark would try
again.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from viewkeeper.errors import ViewKeeperError
from viewkeeper.operators.duck import forget_relations
from viewkeeper.operators.messages import Message, decode, encode, from_batch, in_pieces, to_batch
from viewkeeper.operators.program import EpochProgram
from viewkeeper.operators.receipts import Failure, Receipt, result_from_json, result_to_json
from viewkeeper.ports.store import Piece, Store
from viewkeeper.stores.open import open_shared

_BATCH_BYTES = 4 << 20  # small messages travel together, because Spark's cost is per batch
_MESSAGE_SCHEMA = "manager int, kind string, table int, channel string, body binary"


class SparkExchange:
    """One job for each epoch, with a task for each manager in every stage."""

    def __init__(self, session: SparkSession, store: Store) -> None:
        self._session = session
        self._store = store

    def run(self, program: EpochProgram) -> Iterator[Receipt | Failure]:
        managers, splits = program.managers, len(program.splits)
        work = ExecutorTasks(self._store.url, self._store.incarnation, program)
        # two readers for each manager even out what they read, where no more than managers run at once
        is_narrow = managers >= self._session.sparkContext.defaultParallelism
        readers = 2 * managers if is_narrow else managers
        numbers = self._session.range(0, splits, 1, max(1, min(splits, readers)))
        sent = numbers.mapInArrow(work.read, _MESSAGE_SCHEMA)
        for stage in range(1, len(program.stages) + 1):
            sent = sent.repartitionById(managers, "manager").mapInArrow(partial(work.apply, stage), _MESSAGE_SCHEMA)
        for body in (decode(row.asDict()).body for row in sent.collect()):
            if isinstance(body, (Receipt, Failure)):
                yield body


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


_TASKS_PER_SLOT = 4  # pieces differ in size
_PIECE_SCHEMA = "piece int, body binary, failure string"
_PIECE_FIELDS = pa.schema([("piece", pa.int32()), ("body", pa.binary()), ("failure", pa.string())])


def run_pieces(
    session: SparkSession, store: Store, work: Callable[[Any, Piece], bytes], pieces: Sequence[Piece]
) -> list[bytes] | None:
    """What `work` makes of each piece; None if one failed, but not by an error of ours, which is raised."""
    tasks = min(len(pieces), _TASKS_PER_SLOT * session.sparkContext.defaultParallelism)
    numbers = session.range(0, len(pieces), 1, tasks)
    there = partial(_do_pieces, store.url, store.incarnation, work, tuple(pieces))
    found = {row.piece: row for row in numbers.mapInArrow(there, _PIECE_SCHEMA).collect()}
    for row in found.values():
        if row.failure and isinstance(failure := result_from_json(json.loads(row.failure)), Failure):
            raise failure.error
    if len(found) < len(pieces) or any(row.body is None for row in found.values()):
        return None
    return [bytes(found[number].body) for number in range(len(pieces))]


def _do_pieces(
    url: str, incarnation: str, work: Callable[[Any, Any], bytes], pieces: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Numbers of pieces in; of each the result, the error of ours, or neither out."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            body = failure = None
            with suppress(Exception):
                try:
                    body = work(open_shared(url, incarnation), pieces[number])
                except ViewKeeperError as error:
                    failure = json.dumps(result_to_json(Failure(error)))
            yield pa.record_batch([[number], [body], [failure]], schema=_PIECE_FIELDS)
    give_back_memory()
