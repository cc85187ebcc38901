"""Swaps: epoch record and catalog replaced by test-and-set, also where an answer gets lost (`epochs.md`, R5).

In: a store, and a function from what stands there to what shall stand there. Out: what stands there. Always: behind a swap
that was answered with no, or with an error, the store is read again: one that was applied is not tried a second time, and
one that somebody else came before is tried anew on what they left.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import StoreError
from viewkeeper.model.epochs import EpochRecord, is_same_step

if TYPE_CHECKING:
    from viewkeeper.ports.store import Store


def swap_record(store: Store, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
    """Swap in what the owner's `change` makes of the epoch record."""
    while True:
        record = store.read_epoch_record()
        tried, failure = change(record), None
        try:
            if store.swap_epoch_record(record.version, tried):
                return tried
        except (StoreError, OSError) as error:
            failure = error
        found = store.read_epoch_record()
        if is_same_step(found, tried):
            return found
        if failure is not None:
            raise failure


def swap_catalog(store: Store, change: Callable[[Catalog], Catalog]) -> Catalog:
    """Swap in what `change` makes of the catalog, unless it changes nothing."""
    nonce = uuid.uuid4().hex
    while True:
        catalog = Catalog.from_json(store.read_catalog())
        if nonce in catalog.swaps:
            return catalog
        changed = change(catalog)
        if changed == catalog:
            return catalog
        tried = changed.swapped_by(nonce)
        try:
            if store.swap_catalog(catalog.version, tried.to_json()):
                return tried
        except (StoreError, OSError):
            if nonce not in Catalog.from_json(store.read_catalog()).swaps:
                raise
