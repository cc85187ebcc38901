"""Pins: keep an epoch that a long read needs readable (`docs/epochs.md`, R4).

In: a store and an epoch. Out: nothing; inside the block no version that the epoch needs is dropped. Always: a pin is
leased, so that a dead reader does not hold anything back for ever.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from viewkeeper.errors import StaleRead
from viewkeeper.model import epochs

if TYPE_CHECKING:
    from viewkeeper.ports.store import Store

LEASE_SECONDS = 900.0


@contextmanager
def pinned(store: Store, epoch: int) -> Iterator[None]:
    """Keep `epoch` readable, unless nothing can change; for reads of versions in the store, not held ones."""
    if not store.is_writable:
        yield
        return
    name = uuid.uuid4().hex
    until = store.now() + int(LEASE_SECONDS * 1e9)
    store.change_epoch_record(lambda record: epochs.pin(record, name, epoch, until))
    try:
        yield
    finally:
        store.change_epoch_record(lambda record: epochs.unpin(record, name))
    if store.read_horizon().floor > epoch:
        raise StaleRead(f"epoch {epoch} was dropped while it was read", "run it again")
