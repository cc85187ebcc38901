"""The pipeline's interface: process what is waiting, keep running, or wait until a request is done.

In: an open database, perhaps a Spark session. Out: fresh views. Always: one pipeline for each store, which claims it;
stopping it at any moment, kill -9 included, loses nothing and doubles nothing. It is closed with its database, and at
the latest when the interpreter ends; one that nothing refers to, and that does not run in the background, gives up its
claim. A request is done by the pipeline that runs; without one, this process runs it for as long as that takes.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from weakref import WeakSet, finalize, ref

from viewkeeper.client.connection import TIMEOUT_SECONDS, Connection, take_token, wait_for
from viewkeeper.client.fill_progress import ProgressNotes
from viewkeeper.coordinator.coordinator import Committed, Coordinator
from viewkeeper.coordinator.standby import PATIENCE, Heartbeats, Patience, own_in_turn, own_now
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.streaming import StreamingLoop
from viewkeeper.errors import InputError, PipelineRunning, StaleRead, StoreError
from viewkeeper.events import EventSink
from viewkeeper.model.positions import Token
from viewkeeper.ports.meta import Claim
from viewkeeper.settings import EpochLimits, ManagerBounds

if TYPE_CHECKING:
    from viewkeeper.engine.spark_session import SparkSession
    from viewkeeper.ports.store import Store


class Pipeline:
    """Keeps the views of a database fresh; use it in a `with` block, or `close` it."""

    def __init__(
        self,
        database: Connection,
        *,
        view_managers: int | tuple[int, int],
        spark: SparkSession | None,
        take_over: bool,
        changes_per_epoch: int | None,
        events: EventSink | None = None,
        standby: bool = False,
        patience: Patience = PATIENCE,
    ) -> None:
        if standby and take_over:
            raise InputError("a standby waits, and take_over does not", "pass one of them")
        if changes_per_epoch is not None:
            _require_count("changes_per_epoch", changes_per_epoch)
        bounds = ManagerBounds.of(view_managers)
        self._database = database
        self._store = database.store
        self._process = os.getpid()
        self._session = LazySession(spark, view_managers=bounds.most)
        tell = events or (lambda event: None)
        self._runner = runner = SparkRunner(
            self._store, self._session, view_managers=bounds.least, tell=ProgressNotes(self._store, tell)
        )
        self._loop: StreamingLoop | None = None
        self._turn = threading.RLock()  # requests of other threads are done between its own runs
        self._is_at_work = self._is_closed = False
        limits = EpochLimits() if changes_per_epoch is None else EpochLimits(changes=changes_per_epoch)

        clock = self._session.clock  # nothing made here refers to the pipeline: it ends with the last reference to it

        def own(claim: Claim) -> Coordinator:
            return Coordinator(
                database.store,
                runner,
                limits=limits,
                events=events,
                clock=clock,
                managers=bounds,
                claim=claim,
                inherits=standby,
            )

        if standby:
            self._claim, self._coordinator = own_in_turn(database.store, own, patience, tell)
        else:
            self._claim, self._coordinator = own_now(database.store.claim(take_over=take_over), own)
        known = ref(self)
        heartbeats = Heartbeats(self._claim, waits=lambda: "" if (one := known()) is None else one._waits())
        self._heartbeats = heartbeats
        self._store.use_executor(runner.spread)
        self._giving_up = finalize(self, _give_up, self._store, heartbeats)
        self._giving_up.atexit = False  # by then it is closed
        _ALL.add(self)
        database.ends_with_it(heartbeats)  # they outlive a pipeline that gives up, until the claim is released
        database.ends_with_it(self)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def view_managers(self) -> int:
        """How many there are now."""
        return self._runner.view_managers

    def scale(self, *, view_managers: int | tuple[int, int]) -> None:
        """Have so many view managers from the next epoch on; `(1, 4)`: as many as the backlog calls for."""
        self._coordinator.scale(ManagerBounds.of(view_managers))

    def run_available(self) -> list[Committed]:
        """Bring all views up to what was written before the call; returns the epochs committed for it."""
        with self._turn:
            self._require_open()
            if self._loop:
                raise InputError("the pipeline is running already", "wait_for(token), or stop() it first")
            self._is_at_work = True
            try:
                done = self._coordinator.catch_up()
            finally:
                self._is_at_work = False
            self._coordinator.collect_garbage()
        return done

    def _require_open(self) -> None:
        if self._is_closed:
            raise InputError("the pipeline is closed", "open another: db.pipeline()")

    def run_if_idle(self) -> bool:
        """The same if nothing runs it, neither in the background nor in a thread; whether that was so."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            is_idle = self._loop is None and not self._is_at_work and self._claim.is_held
            if is_idle:
                self.run_available()
            return is_idle
        finally:
            self._turn.release()

    def start(self) -> None:
        """Keep running in the background until `stop`, woken by a thread and by Spark Structured Streaming.

        A store that only this process reaches needs no Spark: a thread polls for changes.
        """
        with self._turn:
            self._require_open()
            if self._loop is None:
                if self._store.capabilities.many_processes:
                    self._session.begin()
                self._loop = StreamingLoop(self._session, self._coordinator, self._store)
                _RUNNING.add(self)

    def stop(self) -> None:
        """Stop after the current epoch."""
        if self._loop:
            loop, self._loop = self._loop, None
            _RUNNING.discard(self)
            loop.stop()

    def wait_for(self, token: Token | str, timeout: float = TIMEOUT_SECONDS) -> None:
        """Return once all views include the token's write."""
        if self._loop:
            self._loop.raise_failure()
        try:
            wait_for(self._database.store, take_token(token), timeout, self._raise_end)
        except StaleRead as error:
            if self._loop and self._loop.trouble:
                raise self._loop.trouble from error
            raise

    def _raise_end(self) -> None:
        """Raise what ended the background run, as far as this process knows: it asks neither Spark nor the store."""
        if self._loop and self._loop.failure:
            raise self._loop.failure

    def raise_failure(self) -> None:
        """Raise what stopped the background run, if something did."""
        if self._loop:
            self._loop.raise_failure()
            with suppress(OSError, StoreError):  # then others see no sign of life
                self._claim.beat(self._waits())

    def _waits(self) -> str:
        trouble = self._loop.trouble if self._loop else None
        return "" if trouble is None else str(trouble)

    def close(self) -> None:
        """Stop, and release the store; the Spark session stays for the process, given or not."""
        if self._process != os.getpid():
            return  # in a forked child: it is the parent's
        self._is_closed = True  # before its turn comes: who runs it in a loop would not let us in
        with self._turn, ExitStack() as ends:
            _ALL.discard(self)
            if self._giving_up.detach():
                ends.callback(self._heartbeats.close)
                ends.callback(self._store.use_executor, None)
                self.stop()
                if self._claim.is_held:
                    self._coordinator.close()


def _give_up(store: Store, heartbeats: Heartbeats) -> None:
    """The end of a pipeline that nobody can close any more."""
    store.use_executor(None)
    heartbeats.give_up()


_ALL: WeakSet[Pipeline] = WeakSet()  # those that are open in this process
_RUNNING: set[Pipeline] = set()  # those in the background, which need no reference
os.register_at_fork(after_in_child=_ALL.clear)


@atexit.register
def _close_all() -> None:
    """Threads that Python would leave in mid-step keep alive what they use, and DuckDB tells of that at length."""
    for pipeline in list(_ALL):
        with suppress(Exception):  # a failure that nobody asked for: the next pipeline takes up what was begun
            pipeline.close()


def pipeline_here(database: Connection) -> Pipeline | None:
    """The pipeline over the same store that is open in this process."""
    incarnation = database.store.incarnation
    return next((one for one in list(_ALL) if one._store.incarnation == incarnation), None)


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}={value!r} is not a number of them", "use 1 or more")


_POLL_SECONDS = 0.02
_STUCK_SECONDS = 300.0  # without a step of the pipeline


def await_request(database: Connection, is_pending: Callable[[], bool], spark: SparkSession | None) -> None:
    """Return once nothing is pending."""
    seen, since = None, time.monotonic()
    while is_pending():
        own = pipeline_here(database)
        if own is not None and own.run_if_idle():
            continue
        if database.store.claimed_by() is None:
            try:
                with Pipeline(
                    database, view_managers=2, spark=spark, take_over=False, changes_per_epoch=None
                ) as pipeline:
                    pipeline.run_available()
                continue
            except PipelineRunning:
                pass  # another one was faster
        record = database.store.read_epoch_record()
        if (progress := (record.last, record.committed)) != seen:
            seen, since = progress, time.monotonic()
        if time.monotonic() > since + _STUCK_SECONDS:
            raise StaleRead("the pipeline of this store does not go on", "start it: the request waits for it")
        time.sleep(_POLL_SECONDS)
