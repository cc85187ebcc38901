"""Standing by: the right to run the pipeline, once nobody else uses it; and the beats of one who does.

In: a store. Out: a claim. Always: one who shows signs of life is never taken over from. After a death the claim is free at
once; a holder that is stopped, or cannot reach the store, loses it after some seconds without a beat, and is fenced off by
the epoch record when it goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from viewkeeper.coordinator.standby import LOOK_SECONDS, Watch
from viewkeeper.errors import Fenced, PipelineRunning, StoreBusy, StoreError
from viewkeeper.events import EventSink, StandingBy, Waiting
from viewkeeper.ports.meta import Claim
from viewkeeper.ports.store import Store

BEAT_SECONDS = 1.0
PATIENCE_SECONDS = 10.0


Owned = TypeVar("Owned")
Own = Callable[[Claim], Owned]


def own_now(claim: Claim, own: Own[Owned]) -> tuple[Claim, Owned]:
    """The claim, and what `own` makes of it; the claim is released if that fails."""
    try:
        return claim, own(claim)
    except BaseException:
        claim.release()
        raise


def own_in_turn(store: Store, own: Own[Owned], patience_seconds: float, tell: EventSink) -> tuple[Claim, Owned]:
    """The same, once the store may be claimed; a holder that was stopped while it wrote may keep others from writing."""
    while True:
        claim = claim_in_turn(store, patience_seconds=patience_seconds, tell=tell)
        try:
            return own_now(claim, own)
        except (StoreBusy, Fenced) as error:
            tell(Waiting(str(error)))


def claim_in_turn(
    store: Store,
    *,
    patience_seconds: float,
    tell: EventSink,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Claim:
    """Wait until no pipeline runs, or the one that does is silent for so long; returns the right to run one.

    `tell` gets an event with every look, and may raise to stop waiting.
    """
    watch = Watch(store.holder(), clock())
    while True:
        with suppress(PipelineRunning):
            return store.claim(take_over=False)
        watch = watch.looked(store.holder(), clock())
        if watch.holder is not None and watch.silent_seconds >= patience_seconds:
            with suppress(PipelineRunning):  # it goes on, or another standby was first
                return store.claim(take_over=True, instead_of=watch.holder)
        tell(StandingBy(watch.holder.pid if watch.holder else None, watch.silent_seconds))
        wait(LOOK_SECONDS)


class Beats:
    """Beats of a claim, from construction to `stop`, in a thread of their own: an epoch may take long.

    `waits`: what the pipeline waits for, if it does.
    """

    def __init__(self, claim: Claim, *, seconds: float = BEAT_SECONDS, waits: Callable[[], str] = lambda: "") -> None:
        self._claim = claim
        self._waits = waits
        self._seconds = seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="viewkeeper-beats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                self._claim.beat(self._waits())
            except Fenced:
                return
            except (OSError, StoreError):
                continue  # one who cannot reach the store shows no sign of life
