"""Swaps: epoch record and catalog replaced by test-and-set, even where a reply gets lost (`docs/epochs.md`, R5).

In: a store, and a function from the current value to the new one. Out: the value now stored. Always: after a swap that
was refused or failed, the store is read again. A swap that was applied is not tried again; one that lost to another
writer is retried on what that writer stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import StoreError
from viewkeeper.model.epochs import EpochRecord, is_same_step
from viewkeeper.ports.store import Store


def swap_record(store: Store, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
    """Swap in the epoch record that the owner's `change` returns."""
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
    """Swap in the catalog that `change` returns, unless it changes nothing."""
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
