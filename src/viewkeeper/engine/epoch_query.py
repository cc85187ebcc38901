"""The streaming query that carries epochs: its offsets are positions in the store's log, and its batches run epochs.

In: a Spark session, a store, and what a batch is to do. Out: a query of Structured Streaming, whose progress shows from
which positions to which each batch went. Always: the epoch record is the truth, the query's checkpoint is temporary.
Batches carry no rows, because an epoch reads the ranges that it has stored, straight into Arrow (R9). The catalog's
version is a part of the offset: a new view is work too.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from viewkeeper.engine.spark_errors import unfit_of
from viewkeeper.errors import EpochFailed, StoreError
from viewkeeper.events import Committed
from viewkeeper.model.positions import Positions, positions_to_json
from viewkeeper.ports.store import Store
from viewkeeper.stores.open import open_shared

_TRIGGER_SECONDS_MIN = 0.1


@contextmanager
def epoch_query(
    session: SparkSession, store: Store, work: Callable[[DataFrame, int], None], seconds: float | None
) -> Iterator[StreamingQuery]:
    """A query that runs within the block, and does `work` for each batch; `seconds` None: one batch, then it ends."""
    session.dataSource.register(LogSource)
    source = session.readStream.format(LogSource.name())
    batches = source.option("url", store.url).option("incarnation", store.incarnation).load().writeStream
    if seconds is None:
        batches = batches.trigger(availableNow=True)
    else:
        batches = batches.trigger(processingTime=f"{int(1000 * max(_TRIGGER_SECONDS_MIN, seconds))} milliseconds")
    with tempfile.TemporaryDirectory(prefix="viewkeeper-checkpoint-", ignore_cleanup_errors=True) as checkpoint:
        named = batches.foreachBatch(work).queryName(f"viewkeeper {store.url}")
        query = named.option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


def run_in_one_batch(session: SparkSession, store: Store, run_epochs: Callable[[], list[Committed]]) -> list[Committed]:
    """What `run_epochs` returns, or raises, in the only batch of a query."""
    outcome: Future[list[Committed]] = Future()

    def work(batch: DataFrame, number: int) -> None:
        try:
            outcome.set_result(run_epochs())
        except BaseException as error:
            outcome.set_exception(error)

    with epoch_query(session, store, work, None) as query:
        with suppress(StreamingQueryException):
            query.awaitTermination()
        problem = query.exception()
    if outcome.done():
        return outcome.result()
    ended = EpochFailed(
        "Spark's streaming query ended before it ran the epoch", "nothing is lost: run the pipeline again"
    )
    raise (problem and unfit_of(problem)) or ended from problem


class LogSource(DataSource):
    """The options `url` and `incarnation` name the store."""

    @classmethod
    def name(cls) -> str:
        return "viewkeeper_log"

    def schema(self) -> str:
        return "nothing binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return LogReader(self.options["url"], self.options["incarnation"])


class LogReader(DataSourceStreamReader):
    """Polled by Spark in a process of its own; an error of the store is an offset too, which the batch meets itself."""

    def __init__(self, url: str, incarnation: str) -> None:
        self._url = url
        self._incarnation = incarnation

    def initialOffset(self) -> dict:
        try:
            return _offset(open_shared(self._url, self._incarnation).read_epoch_record().positions, 0)
        except (StoreError, OSError):
            return _offset({}, 0)

    def latestOffset(self, start: dict | None = None, limit: object = None) -> dict:
        try:
            store = open_shared(self._url, self._incarnation)
            return _offset(store.ends(), store.read_frontier().catalog_version)
        except (StoreError, OSError) as error:
            return {**(start or {}), "error": type(error).__name__, "at": time.time_ns()}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


def _offset(positions: Positions, catalog_version: int) -> dict:
    return {"positions": positions_to_json(positions), "catalog": catalog_version}
