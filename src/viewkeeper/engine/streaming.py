"""The streaming loop: one Structured Streaming query that wakes the coordinator.

In: a Spark session that may still be starting, and a coordinator. Out: committed epochs, until stopped. Always: a batch
of the query is only a wake-up call; its handler runs epochs until the store's committed positions cover the batch's end
(R9). A thread looks for changes too: no view waits for Spark to start, and a small epoch is done before a batch has found
its way through the JVM. It goes on when the query ends, and starts another; whatever ends the thread itself is kept, and
raised. Over a store that no other process reaches there is no query. The checkpoint is a temporary directory and may be
deleted at any time.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.spark_errors import is_jvm_gone, spark_lost, translate_spark_lost, unfit_of
from viewkeeper.engine.spark_session import let_others_go_first_here
from viewkeeper.errors import (
    EpochFailed,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReplaced,
    StoreUnavailable,
    ViewKeeperError,
)
from viewkeeper.events import Waiting
from viewkeeper.ports.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_WAKE_SECONDS = 1.0  # of the query, which costs more than a look, and is mostly late
FIRST_RETRY_SECONDS = 0.1
RETRY_SECONDS = 2.0
_LOOKS_AT_QUERY = 40  # one in so many looks at the store is at the query too, which takes longer
_LOOKS_AT_QUERY_MAX = 40 << 8  # as many, after queries that ended one after the other
_PASSES = StoreFull, StoreBusy, StoreUnavailable, OSError  # the last: a store behind a line


class StreamingLoop:
    """Runs from construction to `stop`."""

    def __init__(
        self,
        session: LazySession,
        coordinator: Coordinator,
        store: Store,
        *,
        retry_seconds: float = RETRY_SECONDS,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._session = session
        self._coordinator = coordinator
        self._store = store
        self._rest = store.capabilities.epoch_seconds
        self._begun = -self._rest  # when the last epoch was
        self.failure: ViewKeeperError | None = None  # what ended it
        self._retry_seconds = retry_seconds
        self.trouble: StoreError | None = None  # the error it waits out
        self._checkpoint = tempfile.mkdtemp(prefix="viewkeeper-checkpoint-")
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._working = threading.Lock()  # held while epochs run
        self._opening = threading.Thread(target=self._open, name="viewkeeper-streaming-start", daemon=True)
        self._opening.start()

    def stop(self) -> None:
        """End the query after the current batch, and raise its error."""
        self._stopping.set()
        self._opening.join()
        try:
            if self._query is not None:
                with self._session.translate_lost():
                    self._query.stop()
        finally:
            # Spark does not wait for a running handler, and an interpreter that ended meanwhile would be aborted
            self._working.acquire()
            self._working.release()
            shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._raise_problem()
        if self.trouble is not None:
            raise self.trouble

    def _open(self) -> None:
        """Keep the views fresh from here until Spark is ready, then look for changes beside its query."""
        let_others_go_first_here()
        reaches_store = self._store.capabilities.many_processes
        try:
            self._catch_up_until(lambda: reaches_store and self._session.is_ready)
            if not (self._stopping.is_set() or self.failure):
                self._query = self._start_query()
                self._watch()
        except ViewKeeperError as error:
            self.failure = error
        except Exception as error:
            reason = EpochFailed(f"the pipeline's thread ended: {(str(error).splitlines() or [repr(error)])[0][:300]}")
            self.failure = spark_lost() if is_jvm_gone(error) else reason

    def _catch_up_until(self, is_enough: Callable[[], bool]) -> None:
        while not (is_enough() or self.failure or self._stopping.is_set()):
            self._catch_up()
            self._stopping.wait(self._rest)

    def _watch(self) -> None:
        """Notice what is written sooner than the query does; an idle look costs two small reads."""
        seen: object = None
        looks, until_query = _LOOKS_AT_QUERY, _LOOKS_AT_QUERY
        while not (self.failure or self._stopping.is_set()):
            until_query -= 1
            if not until_query:
                has_ended = self._start_query_again()
                looks = min(2 * looks, _LOOKS_AT_QUERY_MAX) if has_ended else _LOOKS_AT_QUERY
                until_query = looks
            try:
                found: object = self._store.ends(), self._store.read_horizon().catalog_version
            except (StoreError, OSError):
                found = None  # to be told, or waited out, by whoever works with the store
            if found is None or found != seen:
                self._catch_up()
            seen = found
            self._stopping.wait(self._rest)

    def _start_query_again(self) -> bool:
        """Start the query anew if it has ended, by somebody or by something that may pass; whether it had ended."""
        self._raise_what_stays(self._problem())
        with self._session.translate_lost():
            has_ended = self._query is not None and not self._query.isActive
        if has_ended:
            self._query = self._start_query()
        return has_ended

    def _start_query(self) -> StreamingQuery:
        session = self._session.get()
        with translate_spark_lost(session):
            return self._start_query_in(session.newSession())

    def _start_query_in(self, session: SparkSession) -> StreamingQuery:
        from viewkeeper.engine.wakeup import NAME, WakeupSource  # with PySpark

        session.conf.set("spark.sql.streaming.stopTimeout", "60000")
        session.dataSource.register(WakeupSource)
        return (
            session.readStream.format(NAME)
            .option("url", self._store.url)
            .option("incarnation", self._store.incarnation)
            .load()
            .writeStream.foreachBatch(self._wake)
            .option("checkpointLocation", self._checkpoint)
            .trigger(processingTime=f"{max(_WAKE_SECONDS, self._rest)} seconds")
            .start()
        )

    def raise_failure(self) -> None:
        """Raise what ended the query, or that another pipeline took over, which an idle one would not notice.

        What may pass is waited out by the work itself.
        """
        self._raise_problem()
        with suppress(*_PASSES):
            self._coordinator.require_ownership()

    def _raise_problem(self) -> None:
        if self.failure:
            raise self.failure
        self._raise_what_stays(self._problem())

    def _raise_what_stays(self, problem: Exception | None) -> None:
        """Raise what ended the query, unless it may pass: the query only wakes, and another one does as well."""
        if "viewkeeper.errors.StoreReplaced" in str(problem):
            raise StoreReplaced("the store was removed or replaced while its pipeline ran", "connect again")
        if problem is not None and (found := unfit_of(problem)) is not None:
            raise found from problem

    def _problem(self) -> Exception | None:
        """What ended the query, if something did."""
        if self._query is None:
            return None
        self._session.require_running()
        with self._session.translate_lost():
            return self._query.exception()

    def _wake(self, batch: DataFrame, number: int) -> None:
        """The handler of a batch; it may run twice for the same one, and then finds nothing to do."""
        self._catch_up()

    def _catch_up(self) -> None:
        """Run epochs until nothing is left. A failure is kept for `raise_failure`: Spark would only print its stack.

        A full disk, a held lock or a store that does not answer may pass: an epoch stopped by one stays in flight, and is
        run again, after longer and longer breaks.
        """
        breaks = 0
        while not self.failure and not self._stopping.is_set():
            try:
                with self._working:
                    self._coordinator.catch_up(gather=self._gather)
                    self._coordinator.collect_garbage()
                self.trouble = None
                return
            except _PASSES as error:
                self.trouble = _as_store_error(error)
                self._coordinator.tell(Waiting(str(self.trouble)))
                self._wait(min(self._retry_seconds, FIRST_RETRY_SECONDS * 2**breaks))
                breaks = min(breaks + 1, 10)
            except ViewKeeperError as error:
                self.failure = error

    def _gather(self) -> bool:
        """Let changes gather: an epoch costs a store as much for a few as for many. False: it is stopped meanwhile."""
        self._stopping.wait(max(0.0, self._begun + self._rest - time.monotonic()))
        self._begun = time.monotonic()
        return not self._stopping.is_set()


def _as_store_error(error: StoreError | OSError) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return StoreUnavailable(f"the store did not answer: {error.strerror or error}", "it is tried again")
