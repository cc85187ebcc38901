"""A lazy session: a Spark session that starts while other work goes on, and is tried before the first job.

In: what a caller passed as a session, or nothing. Out: the session that epochs run in, or the error that names what is
wrong with it. Always: it is started once, in a thread of its own; until it is ready, callers can work in this process. A
session that nobody waits for runs a job before it counts as ready: the first job takes as long as a start. The Python
workers of a session that is not ours are tried once for each application of Spark. What a loaded machine fails at is no
fault of the session.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from viewkeeper.engine.spark_errors import is_lost, not_started, spark_lost, translate_spark_lost, unfit, unfit_of
from viewkeeper.engine.spark_session import (
    default_session,
    end_launches,
    epoch_session,
    is_set_up_by_us,
    launch_known,
    let_others_go_first_here,
    require_spark,
    run_first_job,
)
from viewkeeper.errors import InputError, NotOffered, SparkLost, ViewKeeperError
from viewkeeper.settings import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_tried: set[str] = set()  # applications of Spark whose workers fit


def take_session(given: object) -> SparkSession | None:
    """The session that a caller passed, or None; raises where no work can begin with it."""
    if given is None:
        return None
    if type(given).__module__.startswith("pyspark.sql.connect"):
        raise NotOffered(
            "a session of Spark Connect cannot run epochs: it reaches no executor's store",
            "pass a session with a SparkContext, as SparkSession.builder.master(…) makes it, or none",
        )
    with contextlib.suppress(ImportError):
        from pyspark.sql import SparkSession

        if isinstance(given, SparkSession):
            if is_lost(given) and given.sparkContext._jsc is None:
                raise InputError("the Spark session that was passed is stopped", "pass one that runs, or leave it out")
            if is_lost(given):
                raise spark_lost(given)
            return given
    raise InputError(
        f"spark is a SparkSession, not {type(given).__name__}",
        "pass SparkSession.builder.master(…).getOrCreate(), or leave it out",
    )


def require_fit(session: SparkSession) -> None:
    """Raise SparkUnfit where the session's Python workers cannot run our tasks."""
    context = session.sparkContext
    try:
        with translate_spark_lost(session):
            if (application := context.applicationId) in _tried:
                return
            told = context.parallelize([0], 1).mapPartitions(_describing()).collect()[0]
    except SparkLost:
        raise
    except Exception as error:
        if (found := unfit_of(error)) is None:
            return  # it may be the machine's load; a job that fails of it tells
        raise found from error
    facts = json.loads(told)
    if "lacks" in facts:
        raise unfit(f"{facts['python']} has no module {facts['lacks']}")
    if facts["viewkeeper"] != VERSION:
        raise unfit(f"{facts['python']} has viewkeeper {facts['viewkeeper']}, and this process {VERSION}")
    _tried.add(application)


def _describing() -> Callable[[Iterable[int]], list[str]]:
    """A function that tells what a worker has. It is nested so that it travels as code: the worker may lack this module."""

    def describe(numbers: Iterable[int]) -> list[str]:
        import json
        import sys

        facts = {"python": sys.executable}
        try:
            import viewkeeper.engine.jobs  # noqa: F401 - a worker needs it
            from viewkeeper.settings import VERSION
            from viewkeeper.stores.open import import_for_workers

            facts["viewkeeper"] = VERSION
            import_for_workers()
        except ImportError as error:
            facts["lacks"] = error.name or "viewkeeper"
        return [json.dumps(facts)]

    return describe


_starting: set[threading.Thread] = set()


@atexit.register
def _end_starts() -> None:
    """End what is being started: imports in C++ abort an interpreter that ends while they run."""
    end_launches()
    for thread in list(_starting):
        thread.join()


class LazySession:
    """A session given, or one of our own that `begin` starts."""

    def __init__(self, given: SparkSession | None, *, view_managers: int) -> None:
        self._managers = view_managers
        self._given = given
        self._session: SparkSession | None = None
        self._epochs: SparkSession | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._is_waited_for = False
        self._is_over = threading.Event()  # the start, or the wait for it
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
            self._thread = threading.Thread(target=self._start, name="viewkeeper-spark-start", daemon=True)
            _starting.add(self._thread)
            self._thread.start()

    def get(self) -> SparkSession:
        """The session, once it is ready."""
        self._is_waited_for = True
        self.begin()
        began = time.monotonic()
        self._is_over.wait()
        self._waited_seconds += time.monotonic() - began
        if self._session is not None:
            return self._session
        raise self._failure or SparkLost("the pipeline was closed while it waited for Spark", "nothing is lost")

    def close(self) -> None:
        """Let nobody wait for the session any more; a start that is under way goes on, for pipelines that come."""
        self._is_over.set()

    def for_epochs(self) -> SparkSession:
        """A sibling of the session with the settings that epochs need."""
        if self._epochs is None:
            session = self.get()
            with translate_spark_lost(session):
                self._epochs = epoch_session(session)
        return self._epochs

    def require_running(self) -> None:
        """Raise SparkLost if the session is up no more."""
        if self._session is not None and is_lost(self._session):
            raise spark_lost(self._session)

    def translate_lost(self) -> AbstractContextManager[None]:
        """Within the block, raise SparkLost where a call fails because the session is up no more."""
        return translate_spark_lost(self._session)

    def _start(self) -> None:
        let_others_go_first_here()
        try:
            if self._given is not None:
                require_fit(self._given)
            self._session = self._given or self._start_ours()
        except BaseException as error:  # raised when the session is asked for
            self._failure = error if isinstance(error, ViewKeeperError) else not_started(error)
        finally:
            self._is_over.set()
            _starting.discard(threading.current_thread())

    def _start_ours(self) -> SparkSession:
        with launch_known():
            session = default_session(os.cpu_count() or 1)  # a slot for each core: managers may be added later
            if not is_set_up_by_us(session):
                require_fit(session)
            elif not self._is_waited_for:
                run_first_job(epoch_session(session), self._managers)
        return session
