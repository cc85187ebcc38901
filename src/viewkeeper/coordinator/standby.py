"""Standby: the right to run the pipeline, once nobody else uses it; and the heartbeats of the one who has it.

In: a store. Out: a claim. Always: a holder that shows signs of life keeps its claim, unless its epoch takes longer than
the standby allows. After a death the claim is free at once; a holder that is stopped, or cannot reach the store, loses it
after some seconds without a heartbeat, and is fenced off by the epoch record. Only time between two looks that are close
together counts, because a standby may be stopped too; clocks are not compared, but by a store's own claim over HBase.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from viewkeeper.errors import (
    Fenced,
    InputError,
    PipelineRunning,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from viewkeeper.events import EventSink, StandingBy, Waiting
from viewkeeper.ports.meta import Claim, Holder
from viewkeeper.ports.store import Store

LOOK_SECONDS = 0.25
_GAP_SECONDS_MAX = 1.0  # of two looks


@dataclass(frozen=True, slots=True)
class Watch:
    """The holder as last seen, since when it looked the same, and its work: the record's generation, the epoch in flight."""

    holder: Holder | None
    looked_at: float
    silent_seconds: float = 0.0
    work: tuple[int, int] | None = None
    work_seconds: float = 0.0

    def looked(self, holder: Holder | None, now: float, work: tuple[int, int] | None = None) -> Watch:
        """The watch after another look."""
        passed = min(now - self.looked_at, _GAP_SECONDS_MAX)
        silent = self.silent_seconds + passed if holder == self.holder else 0.0
        same = self.work_seconds + passed if work is not None and work == self.work else 0.0
        return Watch(holder, now, silent, work, same)


HEARTBEAT_SECONDS = 1.0
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long a holder may be silent, and for how long at one epoch; without `hang_seconds`, for as long as it likes."""

    seconds: float = PATIENCE_SECONDS
    hang_seconds: float | None = None

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise InputError(f"patience_seconds must be 0 or more, not {self.seconds}")
        if self.hang_seconds is not None and not self.hang_seconds > 0:
            raise InputError(
                f"hang_seconds must be more than 0, not {self.hang_seconds}",
                "use far more than the longest epoch takes",
            )

    def is_over(self, watch: Watch) -> bool:
        hangs = self.hang_seconds is not None and watch.work_seconds >= self.hang_seconds
        return watch.silent_seconds >= self.seconds or hangs


PATIENCE = Patience()

Owned = TypeVar("Owned")
Own = Callable[[Claim], Owned]


def own_now(claim: Claim, own: Own[Owned]) -> tuple[Claim, Owned]:
    """The claim, and what `own` makes of it; the claim is released if that fails."""
    try:
        return claim, own(claim)
    except BaseException:
        claim.release()
        raise


def own_in_turn(
    store: Store,
    own: Own[Owned],
    patience: Patience,
    tell: EventSink,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> tuple[Claim, Owned]:
    """The same, once the store may be claimed and does what it is asked.

    A holder that was stopped while it wrote may keep others from writing; and a store that does not answer brings down the
    one who ran the pipeline, not the one who stands by. Its swap may be done later, so it owns the store anew.
    """
    while True:
        try:
            return own_now(claim_in_turn(store, patience=patience, tell=tell), own)
        except (StoreFull, StoreBusy, StoreUnavailable, Fenced) as error:
            tell(Waiting(str(error)))
            wait(LOOK_SECONDS)


def claim_in_turn(
    store: Store,
    *,
    patience: Patience,
    tell: EventSink,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Claim:
    """The right to run the pipeline, once none runs or the one that does is silent or hangs; `tell` may raise to stop."""
    watch = Watch(store.holder(), clock())
    while True:
        with suppress(PipelineRunning):
            return store.claim(take_over=False)
        work = None
        if patience.hang_seconds is not None and (record := store.read_epoch_record()).inflight is not None:
            work = record.generation, record.inflight.epoch
        watch = watch.looked(store.holder(), clock(), work)
        if watch.holder is not None and patience.is_over(watch):
            with suppress(PipelineRunning):  # it goes on, or beats just now, or another standby was first
                return store.claim(take_over=True, instead_of=watch.holder)
        tell(StandingBy(watch.holder.pid if watch.holder else None, watch.silent_seconds))
        wait(LOOK_SECONDS)


class Heartbeats:
    """Beats of a claim, from construction to `close`, in a thread of their own: an epoch may take long.

    The thread releases the claim at the end: `give_up`, which a garbage collector may call at any moment, takes no lock and
    waits for nothing. `waits`: what the pipeline waits for, if it does.
    """

    def __init__(
        self, claim: Claim, *, seconds: float = HEARTBEAT_SECONDS, waits: Callable[[], str] = lambda: ""
    ) -> None:
        self._claim = claim
        self._waits = waits
        self._seconds = seconds
        self._stops: SimpleQueue[None] = SimpleQueue()  # safe to put into at any moment, unlike an Event
        self._thread = threading.Thread(target=self._run, name="viewkeeper-beats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and return when the claim is released."""
        self.give_up()
        self._thread.join()
        self._claim.release()

    def give_up(self) -> None:
        """Stop soon."""
        self._stops.put(None)

    def _run(self) -> None:
        while True:
            with suppress(Empty):
                self._stops.get(timeout=self._seconds)
                break
            try:
                self._claim.beat(self._waits())
            except Fenced:
                return  # it is another's by now
            except (OSError, StoreError):
                continue  # one who cannot reach the store shows no sign of life
        self._claim.release()
