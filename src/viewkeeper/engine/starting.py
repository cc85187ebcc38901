"""A Spark session that starts while other work goes on.

In: a session of the user's, or nothing. Out: the session that epochs run in. Always: it is started once, in a thread of
its own; until it is ready, callers can see that and do the work in this process. One that nobody waits for runs a job
before it counts as ready: the first job takes as long as a start.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from viewkeeper.engine.session import (
    default_session,
    epoch_session,
    let_others_go_first_here,
    require_spark,
    run_first_job,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StartingSession:
    """A session given, or one of our own that `begin` starts."""

    def __init__(self, given: SparkSession | None, *, view_managers: int) -> None:
        self._managers = view_managers
        self._session = given
        self._epochs: SparkSession | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_waited_for = False
        self._lock = threading.Lock()
        self._waited_seconds = 0.0  # by callers that could not go on without it

    @property
    def is_ready(self) -> bool:
        """Whether `get` and `for_epochs` return at once, or raise."""
        return self._session is not None or self._failure is not None

    @property
    def is_up(self) -> bool:
        """Whether `get` and `for_epochs` return at once."""
        return self._session is not None

    def clock(self) -> float:
        """Seconds, without those spent waiting for Spark: its start belongs to no epoch."""
        return time.monotonic() - self._waited_seconds

    def begin(self) -> None:
        """Start the session, unless started; raises at once where there is no Java for it."""
        with self._lock:
            if self.is_ready or self._thread is not None:
                return
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
            self._epochs = epoch_session(self.get())
        return self._epochs

    def wait(self) -> None:
        """Return when no start is under way: otherwise it would outlive the process."""
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        let_others_go_first_here()
        try:
            session = default_session(os.cpu_count() or 1)  # a slot for each core: managers may be added later
            if not self._is_waited_for:
                run_first_job(epoch_session(session), self._managers)
            self._session = session
        except BaseException as error:  # raised when the session is asked for
            self._failure = error
