"""The pipeline's interface: process what is waiting, keep running, or wait until a request is done.

In: an open database, perhaps a Spark session. Out: fresh views. Always: one pipeline for each store, which claims it;
stopping it at any moment, kill -9 included, loses nothing and doubles nothing. It is closed with its database, and at
the latest when the interpreter ends; one that nothing refers to, and that is not running, gives up its claim. A request
is done by the pipeline that runs; without one, by this process.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from weakref import WeakSet, finalize, ref

from viewkeeper.client.connection import TIMEOUT_SECONDS, Connection, take_token, wait_for
from viewkeeper.client.fill_progress import ProgressNotes
from viewkeeper.coordinator.coordinator import Committed, Coordinator
from viewkeeper.coordinator.standby import PATIENCE, Heartbeats, Patience, own_in_turn, own_now
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.loop import EpochLoop
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_session import require_spark
from viewkeeper.errors import InputError, NotOffered, PipelineRunning, StaleRead, StoreError
from viewkeeper.events import EventSink
from viewkeeper.model.positions import Token
from viewkeeper.model.wording import shown
from viewkeeper.ports.meta import Claim, live_holder
from viewkeeper.settings import Engine, EngineSettings, EpochLimits, ManagerBounds

if TYPE_CHECKING:
    from viewkeeper.engine.spark_session import SparkSession
    from viewkeeper.ports.store import Store


class Pipeline:
    """Keeps the views of a database fresh; use it in a `with` block, or `close` it."""

    def __init__(
        self,
        database: Connection,
        *,
        view_managers: int | tuple[int, int] = 2,
        spark: SparkSession | None = None,
        take_over: bool = False,
        changes_per_epoch: int | None = None,
        events: EventSink | None = None,
        standby: bool = False,
        patience: Patience = PATIENCE,
        engine: Engine = Engine.AUTO,
        settings: EngineSettings | None = None,
    ) -> None:
        if standby and take_over:
            raise InputError("a standby waits, and take_over does not", "pass one of them")
        if events is not None and not callable(events):
            raise InputError(f"events is a function that is called with each event, not {shown(events)}")
        bounds, limits = ManagerBounds.of(view_managers), _limits_of(changes_per_epoch)
        self._database = database
        self._store = database.store
        self._process = os.getpid()
        self._session = session = LazySession(spark, view_managers=bounds.most)
        tell = events or (lambda event: None)
        notes = ProgressNotes(self._store, tell)
        self._runner = runner = SparkRunner(
            self._store, session, view_managers=bounds.least, engine=engine, settings=settings, tell=notes
        )
        self._engine = engine
        self._loop: EpochLoop | None = None
        self._turn = threading.RLock()  # requests of other threads are done between its own runs
        self._is_at_work = self._is_closed = False
        owner = uuid.uuid4().hex  # of all tries: who tries again is no other pipeline

        def own(claim: Claim) -> Coordinator:  # which refers to no pipeline: one ends with the last reference to it
            return Coordinator(
                database.store,
                runner,
                limits=limits,
                events=notes,
                clock=session.clock,
                managers=bounds,
                claim=claim,
                inherits=standby,
                owner=owner,
                where=lambda: runner.where,
            )

        if standby:
            self._claim, self._coordinator = own_in_turn(database.store, own, patience, tell)
        else:
            self._claim, self._coordinator = own_now(database.store.claim(take_over=take_over), own)
        known = ref(self)
        self._heartbeats = Heartbeats(self._claim, waits=lambda: "" if (one := known()) is None else one._waits())
        self._store.use_executor(runner.spread)
        self._giving_up = finalize(self, _give_up, self._store, self._heartbeats)
        self._giving_up.atexit = False  # by then it is closed
        _ALL.add(self)
        database.ends_with_it(self._heartbeats)  # they outlive a pipeline that gives up, until the claim is released
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
                done = self._catch_up()
            finally:
                self._is_at_work = False
            self._coordinator.collect_garbage()
        return done

    def _catch_up(self) -> list[Committed]:
        if self._engine is not Engine.SPARK:
            return self._coordinator.catch_up()
        from viewkeeper.engine.epoch_query import run_in_one_batch  # with PySpark

        session = self._session.get()
        with self._session.translate_lost():
            return run_in_one_batch(session, self._store, self._coordinator.catch_up)

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
        """Keep running in the background until `stop`, in a thread, or in a query of Spark Structured Streaming."""
        with self._turn:
            self._require_open()
            if self._loop is None:
                spark = self._session if self._engine is Engine.SPARK else None
                self._loop = EpochLoop(self._coordinator, self._store, spark=spark)
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
        if self._loop:
            self._loop.begin_stop()
        self._session.close()
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


def take_engine(name: object, store: Store, spark: object, settings: object) -> Engine:
    """The engine that a caller names; raises where this machine, the store or what else was passed does not allow it."""
    engine = Engine.of(name)
    if not isinstance(settings, EngineSettings | None):
        raise InputError(f"settings={settings!r} are no settings of an engine", "pass viewkeeper.EngineSettings(…)")
    if engine is Engine.DRIVER and spark is not None:
        raise InputError("the engine driver uses no Spark session", "leave out spark=, or engine=")
    is_shared = store.capabilities.many_processes
    if engine is Engine.SPARK and not is_shared:
        raise NotOffered("Spark's workers do not reach a store in the memory of this process", "leave out engine=")
    if engine is not Engine.DRIVER and is_shared:
        require_spark()
    return engine


_POLL_SECONDS = 0.02
_CHANGES_MAX = 2**31 - 1  # of an epoch
_STUCK_SECONDS = 300.0  # without a step of the pipeline


def _limits_of(changes: int | None) -> EpochLimits:
    """The limits of epochs, with those changes at most, if that is given."""
    given: object = changes
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= _CHANGES_MAX):
        raise InputError(f"changes_per_epoch must be a whole number from 1 to {_CHANGES_MAX:,}, not {shown(given)}")
    return EpochLimits() if changes is None else EpochLimits(changes=changes)


def await_request(database: Connection, is_pending: Callable[[], bool], spark: SparkSession | None) -> None:
    """Return once nothing is pending."""
    seen, since, incarnation = None, time.monotonic(), database.store.incarnation
    while is_pending():
        own = next((one for one in list(_ALL) if one._store.incarnation == incarnation), None)
        if own is not None and own.run_if_idle() and not is_pending():
            return
        if live_holder(database.store) is None:
            try:
                with Pipeline(database, spark=spark) as pipeline:
                    pipeline.run_available()
                continue
            except PipelineRunning:
                pass  # another one was faster
        record = database.store.read_epoch_record()
        if (progress := (record.last, record.committed)) != seen:
            seen, since = progress, time.monotonic()
        if time.monotonic() > since + _STUCK_SECONDS:
            raise StaleRead(f"the pipeline made no step for {_STUCK_SECONDS:g} s", "viewkeeper status URL may tell why")
        time.sleep(_POLL_SECONDS)
