"""The streaming loop: one Structured Streaming query that wakes the coordinator.

In: a Spark session and a coordinator. Out: committed epochs, until stopped. Always: a batch of the query is only a wake-up
call; its handler runs epochs until the store's committed positions cover the batch's end (R9). The checkpoint is a
temporary directory and may be deleted at any time.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING

from viewkeeper.engine.wakeup import NAME, WakeupSource
from viewkeeper.errors import EpochFailed, ViewKeeperError
from viewkeeper.flow.coordinator import Coordinator
from viewkeeper.flow.tidy import tidy_up
from viewkeeper.ports.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL = "50 milliseconds"


class StreamingLoop:
    """Runs from construction to `stop`."""

    def __init__(self, url: str, spark: SparkSession, coordinator: Coordinator, store: Store) -> None:
        self._coordinator = coordinator
        self._store = store
        self._failure: ViewKeeperError | None = None
        self._checkpoint = tempfile.mkdtemp(prefix="viewkeeper-checkpoint-")
        session = spark.newSession()
        session.conf.set("spark.sql.streaming.stopTimeout", "60000")
        session.dataSource.register(WakeupSource)
        self._query = (
            session.readStream.format(NAME)
            .option("url", url)
            .load()
            .writeStream.foreachBatch(self._wake)
            .option("checkpointLocation", self._checkpoint)
            .trigger(processingTime=POLL)
            .start()
        )

    def stop(self) -> None:
        """End the query after the batch that is under way, and raise what it failed of."""
        try:
            self._query.stop()
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what ended the query, if something did."""
        if self._failure:
            raise self._failure
        problem = self._query.exception()
        if problem is not None:
            raise EpochFailed(f"the streaming query ended: {str(problem).splitlines()[0][:300]}")

    def _wake(self, batch: DataFrame, number: int) -> None:
        """The handler of a batch; it may run twice for the same one, and then finds nothing to do.

        A failure is kept for `raise_failure`; raising it here would only make Spark print its own stack as well.
        """
        if self._failure:
            return
        try:
            self._coordinator.catch_up()
            tidy_up(self._store)
        except ViewKeeperError as error:
            self._failure = error
