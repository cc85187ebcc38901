"""Spreading: pieces of a store's own work as a Spark job.

In: a function, pieces, the store's URL and incarnation, all as plain values. Out: bytes for each piece. Always: what a piece
raises is told by the task and not by Spark, whose words for it may hold values of rows, and which would try again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from viewkeeper.engine.exchange import give_back_memory
from viewkeeper.errors import ViewKeeperError
from viewkeeper.operators.receipts import Failure, result_from_json, result_to_json
from viewkeeper.ports.spread import Piece
from viewkeeper.ports.store import Store
from viewkeeper.stores.open import open_shared

_TASKS_PER_SLOT = 4  # pieces differ in size
_SCHEMA = "piece int, body binary, failure string"
_FIELDS = pa.schema([("piece", pa.int32()), ("body", pa.binary()), ("failure", pa.string())])


def spread_job(
    session: SparkSession, store: Store, work: Callable[[Any, Piece], bytes], pieces: Sequence[Piece]
) -> list[bytes] | None:
    """What `work` makes of each piece; None if one failed, but not by an error of ours, which is raised."""
    tasks = min(len(pieces), _TASKS_PER_SLOT * session.sparkContext.defaultParallelism)
    numbers = session.range(0, len(pieces), 1, tasks)
    there = SpreadTasks(store.url, store.incarnation, work, tuple(pieces))
    found = {row.piece: row for row in numbers.mapInArrow(there.run, _SCHEMA).collect()}
    for row in found.values():
        if row.failure and isinstance(failure := result_from_json(json.loads(row.failure)), Failure):
            raise failure.error
    if len(found) < len(pieces) or any(row.body is None for row in found.values()):
        return None
    return [bytes(found[number].body) for number in range(len(pieces))]


@dataclass(frozen=True, slots=True)
class SpreadTasks:
    """What travels to executors."""

    url: str
    incarnation: str
    work: Callable[[Any, Any], bytes]
    pieces: tuple[Any, ...]

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Numbers of pieces in; of each the result, the error of ours, or neither out."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch([[value] for value in (number, *self._do(number))], schema=_FIELDS)
        give_back_memory()

    def _do(self, number: int) -> tuple[bytes | None, str | None]:
        try:
            return self.work(open_shared(self.url, self.incarnation), self.pieces[number]), None
        except ViewKeeperError as error:
            return None, json.dumps(result_to_json(Failure(error)))
        except Exception:
            return None, None
