"""The loop: keeps the views fresh in the background.

In: a coordinator and its store; a Spark session, where a streaming query is to carry epochs. Out: committed epochs, until
stopped. Always: one thread. Without a session it looks for changes and runs epochs. With one, each batch of the query
runs epochs until its end is covered (R9), and the thread starts another query when one ends. A condition that may pass is
waited out; whatever else ends the loop is kept, and raised.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.spark_errors import is_jvm_gone, spark_lost, unfit_of
from viewkeeper.engine.spark_session import let_others_go_first_here
from viewkeeper.errors import (
    EpochFailed,
    SparkLost,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    ViewKeeperError,
)
from viewkeeper.events import Waiting
from viewkeeper.ports.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST_RETRY_SECONDS = 0.1
RETRY_SECONDS = 2.0
_QUERY_LOOK_SECONDS = 1.0
_PASSES = StoreFull, StoreBusy, StoreUnavailable, OSError  # the last: a store behind a line


class EpochLoop:
    """Runs from construction to `stop`."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: Store,
        *,
        spark: LazySession | None = None,
        retry_seconds: float = RETRY_SECONDS,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._store = store
        self._rest = store.capabilities.epoch_seconds
        self._begun = -self._rest  # when the last epoch was
        self.failure: ViewKeeperError | None = None  # what ended it
        self._retry_seconds = retry_seconds
        self.trouble: StoreError | None = None  # the error it waits out
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._working = threading.Lock()  # held while epochs run
        work = self._follow_log if spark is None else lambda: self._keep_query(spark)
        self._thread = threading.Thread(target=self._run, args=(work,), name="viewkeeper-loop", daemon=True)
        self._thread.start()

    def begin_stop(self) -> None:
        """End after the epochs under way; that Spark is lost from here on is no failure."""
        self._stopping.set()

    def stop(self) -> None:
        """The same, and return when it has ended, or raise its error."""
        self.begin_stop()
        self._thread.join()
        if error := self.failure or self.trouble:
            raise error

    def raise_failure(self) -> None:
        """Raise what ended the loop, or that another pipeline took over, which an idle one would not notice."""
        if self.failure:
            raise self.failure
        with suppress(*_PASSES):  # waited out by the work itself
            self._coordinator.require_ownership()

    def _run(self, work: Callable[[], None]) -> None:
        let_others_go_first_here()
        try:
            work()
        except ViewKeeperError as error:
            self._keep(error)
        except Exception as error:
            first_line = (str(error).splitlines() or [repr(error)])[0][:300]
            reason = EpochFailed(
                f"the pipeline stopped because of an unexpected error: {first_line}",
                "run it again; if it recurs, report it",
            )
            self.failure = spark_lost() if is_jvm_gone(error) else reason

    def _keep(self, error: ViewKeeperError) -> None:
        if not (isinstance(error, SparkLost) and self._stopping.is_set()):
            self.failure = error

    @property
    def _is_over(self) -> bool:
        return self.failure is not None or self._stopping.is_set()

    def _follow_log(self) -> None:
        """Run epochs whenever something was written; an idle look costs two small reads."""
        seen: object = None
        while not self._is_over:
            try:
                found: object = self._store.ends(), self._store.read_frontier().catalog_version
            except (StoreError, OSError):
                found = None  # met, and waited out, by whoever works with the store
            if found is None or found != seen:
                self._catch_up()
            seen = found
            self._stopping.wait(self._rest)

    def _keep_query(self, spark: LazySession) -> None:
        """Have a query that carries epochs; one that somebody, or something that may pass, has ended has a successor."""
        from viewkeeper.engine.epoch_query import epoch_query  # with PySpark

        def batch(rows: DataFrame, number: int) -> None:
            self._run(self._catch_up)  # twice for the same batch, it finds nothing to do

        breaks = 0
        while not self._is_over:
            session = spark.get()
            with spark.translate_lost(), epoch_query(session, self._store, batch, self._rest) as query:
                try:
                    while query.isActive and not self._is_over:
                        self._stopping.wait(_QUERY_LOOK_SECONDS)
                    problem = query.exception()
                finally:  # Spark does not wait for a handler, and an interpreter that ended meanwhile would be aborted
                    with self._working:
                        pass
            if not self._is_over:
                self._raise_what_stays(spark, problem)
                self._stopping.wait(min(RETRY_SECONDS, FIRST_RETRY_SECONDS * 2**breaks))
                breaks = min(breaks + 1, 10)

    def _raise_what_stays(self, spark: LazySession, problem: Exception | None) -> None:
        """Raise what ended a query, if another one would end of it too."""
        spark.require_running()
        if problem is not None and (found := unfit_of(problem)) is not None:
            raise found from problem
        with suppress(*_PASSES):
            self._coordinator.require_ownership()

    def _catch_up(self) -> None:
        """Run epochs until nothing is left. A failure is kept for `raise_failure`: Spark would only print its stack.

        A full disk, a held lock or a store that does not answer may pass: an epoch stopped by one stays in flight, and is
        run again, after longer and longer breaks.
        """
        breaks = 0
        while not self._is_over:
            try:
                with self._working:
                    self._coordinator.catch_up(gather=self._gather)
                    self._coordinator.collect_garbage()
                self.trouble = None
                return
            except _PASSES as error:
                if isinstance(error, StoreError):
                    self.trouble = error
                else:
                    unheard = f"the store did not answer: {error.strerror or error}"
                    self.trouble = StoreUnavailable(unheard, "it is tried again")
                self._coordinator.tell(Waiting(str(self.trouble)))
                self._wait(min(self._retry_seconds, FIRST_RETRY_SECONDS * 2**breaks))
                breaks = min(breaks + 1, 10)
            except ViewKeeperError as error:
                self._keep(error)

    def _gather(self) -> bool:
        """Let changes gather: an epoch costs a store as much for a few as for many. False: it is stopped meanwhile."""
        self._stopping.wait(max(0.0, self._begun + self._rest - time.monotonic()))
        self._begun = time.monotonic()
        return not self._stopping.is_set()
