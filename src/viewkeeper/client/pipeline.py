"""The pipeline's interface: process what is waiting, or keep running.

In: an open database, perhaps a Spark session. Out: fresh views. Always: one pipeline for each store, which claims it;
stopping it at any moment, kill -9 included, loses nothing and doubles nothing.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

from viewkeeper.client.connection import Connection
from viewkeeper.client.filling import Worked
from viewkeeper.client.reading import TIMEOUT_SECONDS, take_token, wait_for
from viewkeeper.client.standby import PATIENCE, Beats, Patience, own_in_turn, own_now
from viewkeeper.coordinator.coordinator import Committed, Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.starting import StartingSession
from viewkeeper.engine.streaming import StreamingLoop
from viewkeeper.errors import InputError, StaleRead, StoreError
from viewkeeper.events import EventSink
from viewkeeper.model.managers import ManagerBounds
from viewkeeper.model.token import Token
from viewkeeper.ports.meta import Claim
from viewkeeper.settings import EpochLimits

if TYPE_CHECKING:
    from viewkeeper.engine.session import SparkSession


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
        self._session = StartingSession(spark, view_managers=bounds.most)
        tell = events or (lambda event: None)
        self._runner = SparkRunner(
            database.store, self._session, view_managers=bounds.least, tell=Worked(database.store, tell)
        )
        self._loop: StreamingLoop | None = None
        self._turn = threading.RLock()  # requests of other threads are done between its own runs
        self._is_at_work = False
        limits = EpochLimits() if changes_per_epoch is None else EpochLimits(changes=changes_per_epoch)

        def own(claim: Claim) -> Coordinator:
            return Coordinator(
                database.store,
                self._runner,
                limits=limits,
                events=events,
                clock=self._clock,
                managers=bounds,
                claim=claim,
                inherits=standby,
            )

        if standby:
            self._claim, self._coordinator = own_in_turn(database.store, own, patience, tell)
        else:
            self._claim, self._coordinator = own_now(database.store.claim(take_over=take_over), own)
        self._beats = Beats(self._claim, waits=self._waits)
        database.store.lend(self._runner.spread)
        _ALL.add(self)

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
            if self._loop:
                raise InputError("the pipeline is running already", "wait_for(token), or stop() it first")
            self._is_at_work = True
            try:
                done = self._coordinator.catch_up()
            finally:
                self._is_at_work = False
            collect_garbage(self._database.store)
        return done

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
            if self._loop is None:
                if self._database.store.capabilities.many_processes:
                    self._session.begin()
                self._loop = StreamingLoop(self._session, self._coordinator, self._database.store)

    def stop(self) -> None:
        """Stop after the current epoch."""
        if self._loop:
            loop, self._loop = self._loop, None
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

    def _clock(self) -> float:
        """Seconds, without those spent waiting for Spark: its start belongs to no epoch."""
        return time.monotonic() - self._session.waited_seconds

    def close(self) -> None:
        """Stop, and release the store; the Spark session stays for the process, given or not."""
        with self._turn:
            _ALL.discard(self)
            try:
                self.stop()
                if self._claim.is_held:
                    self._coordinator.close()
            finally:
                self._database.store.lend(None)
                self._beats.stop()
                self._claim.release()


_ALL: WeakSet[Pipeline] = WeakSet()  # those that are open in this process


def pipeline_here(database: Connection) -> Pipeline | None:
    """The pipeline over the same store that is open in this process."""
    incarnation = database.store.incarnation
    return next((one for one in list(_ALL) if one._database.store.incarnation == incarnation), None)


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}={value!r} is not a number of them", "use 1 or more")
