"""Pins: how a read that takes many requests keeps the epoch that it reads (`docs/epochs.md`, R4).

In: the epoch. Out: an entry of the epoch record, which the floor does not pass. Always: a pin ends by itself some minutes
after it was last renewed, so a reader that died keeps nothing for ever.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from viewkeeper.errors import StoreUnavailable
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord

_LEASE_SECONDS = 900.0


class Pins(Protocol):
    """The store of which an epoch is pinned."""

    def now(self) -> int: ...

    def change_epoch_record(self, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord: ...


class Pin:
    """Of one read."""

    def __init__(self, store: Pins, epoch: int) -> None:
        self._store, self._epoch = store, epoch
        self._name = uuid.uuid4().hex
        self._taken: float | None = None

    def take(self) -> None:
        """Keep the epoch from here on; StaleRead where it was given up before."""
        now = time.monotonic()
        if self._taken is None or now >= self._taken + _LEASE_SECONDS / 2:
            until = self._store.now() + int(_LEASE_SECONDS * 1e9)
            self._store.change_epoch_record(lambda record: epochs.pin(record, self._name, self._epoch, until))
            self._taken = now

    def end(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            with suppress(StoreUnavailable):
                self._store.change_epoch_record(lambda record: epochs.unpin(record, self._name))
