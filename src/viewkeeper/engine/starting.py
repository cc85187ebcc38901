"""A Spark session that starts while other work goes on.

In: a session of the user's, or nothing. Out: the session that epochs run in. Always: it is started once, in a thread of
its own; until it is ready, callers can see that and do the work in this process. One that nobody waits for runs a job
before it counts as ready: the first job takes as long as a start. Workers of a session that is not ours are tried before the
first job.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from viewkeeper.engine.failures import is_lost, not_started, spark_lost, spark_lost_told
from viewkeeper.engine.fitness import require_fit
from viewkeeper.engine.session import (
    default_session,
    epoch_session,
    is_set_up_by_us,
    let_others_go_first_here,
    require_spark,
    run_first_job,
)
from viewkeeper.errors import ViewKeeperError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StartingSession:
    """A session given, or one of our own that `begin` starts."""

    def __init__(self, given: SparkSession | None, *, view_managers: int) -> None:
        self._managers = view_managers
        self._given = given
        self._session: SparkSession | None = None
        self._epochs: SparkSession | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_waited_for = False
        self._lock = threading.Lock()
        self._waited_seconds = 0.0  # by callers that could not go on without it

    @property
    def is_ready(self) -> bool:
        """Whether `get` and `for_epochs` return at once, or raise."""
        return self.is_up or self._failure is not None

    @property
    def is_up(self) -> bool:
        """Whether `get` and `for_epochs` return at once; but for one task, if the session was given and is not tried yet."""
        return self._session is not None or (self._given is not None and self._thread is None)

    def clock(self) -> float:
        """Seconds, without those spent waiting for Spark: its start belongs to no epoch."""
        return time.monotonic() - self._waited_seconds

    def begin(self) -> None:
        """Start the session, or try the one that was given, unless begun; raises at once where there is no Java for it."""
        with self._lock:
            if self._session is not None or self._thread is not None:
                return
            if self._given is None:
                require_spark()
            # not a daemon: imports in C++ abort an interpreter that ends while they run
            self._thread = threading.Thread(target=self._start, name="viewkeeper-spark-start")
            self._thread.start()

    def get(self) -> SparkSession:
        """The session, once it is ready."""
        self._is_waited_for = True
        self.begin()
        began = time.monotonic()
        self.wait()
        self._waited_seconds += time.monotonic() - began
        if self._failure is not None:
            raise self._failure
        assert self._session is not None
        return self._session

    def for_epochs(self) -> SparkSession:
        """A sibling of the session with the settings that epochs need."""
        if self._epochs is None:
            session = self.get()
            with spark_lost_told(session):
                self._epochs = epoch_session(session)
        return self._epochs

    def require_running(self) -> None:
        """Raise SparkLost if the session is up no more."""
        if self._session is not None and is_lost(self._session):
            raise spark_lost(self._session)

    def lost_told(self) -> AbstractContextManager[None]:
        """Within the block, raise SparkLost where a call fails because the session is up no more."""
        return spark_lost_told(self._session)

    def wait(self) -> None:
        """Return when no start is under way: otherwise it would outlive the process."""
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        let_others_go_first_here()
        try:
            # a slot for each core: managers may be added later
            session = self._given or default_session(os.cpu_count() or 1)
            if self._given is not None or not is_set_up_by_us(session):
                require_fit(session)
            elif not self._is_waited_for:
                run_first_job(epoch_session(session), self._managers)
            self._session = session
        except BaseException as error:  # raised when the session is asked for
            self._failure = error if isinstance(error, ViewKeeperError) else not_started(error)
