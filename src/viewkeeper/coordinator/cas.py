"""CAS: epoch record and catalog replaced by compare-and-swap, even where a reply gets lost (`docs/epochs.md`, R5).

In: a store, and a function from the current value to the new one. Out: the value now stored. Always: after a swap that
was refused or failed, the store is read again. A swap that was applied is not tried again; one that lost to another
writer is retried on what that writer stored. So a swap may start from a value that was read long ago.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.errors import StoreError
from viewkeeper.model.epochs import EpochRecord, is_same_step
from viewkeeper.ports.store import Store


class StoredState:
    """The epoch record and the catalog of a store, as last read or swapped in from here."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.record = store.read_epoch_record()
        self.catalog = Catalog.from_json(store.read_catalog())

    def look(self) -> EpochRecord:
        """Read both as they are now; returns the record."""
        self.record = self._store.read_epoch_record()
        self.look_at_catalog()
        return self.record

    def look_at_catalog(self) -> Catalog:
        """The catalog as it is now, which is read only if its version is another."""
        if self._store.read_frontier().catalog_version != self.catalog.version:
            self.catalog = Catalog.from_json(self._store.read_catalog())
        return self.catalog

    def swap_record(self, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        self.record = swap_record(self._store, change, known=self.record)
        return self.record

    def swap_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        self.catalog = swap_catalog(self._store, change, known=self.catalog)
        return self.catalog


def swap_record(
    store: Store, change: Callable[[EpochRecord], EpochRecord], *, known: EpochRecord | None = None
) -> EpochRecord:
    """Swap in the epoch record that the owner's `change` returns, durably; `known` is tried first, if given."""
    record = known or store.read_epoch_record()
    while True:
        tried, failure = change(record), None
        try:
            if store.swap_epoch_record(record.version, tried):
                return tried
        except (StoreError, OSError) as error:
            failure = error
        found = store.read_epoch_record()
        if is_same_step(found, tried):
            store.sync()
            return found
        if failure is not None:
            raise failure
        record = found


def swap_catalog(store: Store, change: Callable[[Catalog], Catalog], *, known: Catalog | None = None) -> Catalog:
    """Swap in the catalog that `change` returns, unless it changes nothing; `known` is tried first, if given."""
    nonce, catalog = uuid.uuid4().hex, known or Catalog.from_json(store.read_catalog())
    while True:
        if nonce in catalog.swaps:
            return catalog
        changed = change(catalog)
        if changed == catalog:
            return catalog
        tried, failure = changed.swapped_by(nonce), None
        try:
            if store.swap_catalog(catalog.version, tried.to_json()):
                return tried
        except (StoreError, OSError) as error:
            failure = error
        catalog = Catalog.from_json(store.read_catalog())
        if failure is not None and nonce not in catalog.swaps:
            raise failure
