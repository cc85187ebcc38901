"""Garbage collection: what lies before the committed epoch and nobody needs is removed.

In: the store. Out: a shorter log, no old versions, no records of dropped tables, no pages held for readers that were killed.
Always: bounded work for each call, in bounded transactions, done between epochs and never while one is in flight; a crash in
the middle leaves work for the next call and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.swaps import swap_catalog
from viewkeeper.failpoints import failpoint
from viewkeeper.ports.store import Store
from viewkeeper.settings import GcSettings


def collect_all_garbage(store: Store) -> int:
    """Everything that can go, by one who has the store alone; returns how many log entries went."""
    return collect_garbage(store, GcSettings(log_kept_seconds=0, seconds_max=math.inf), is_alone=True)


def collect_garbage(
    store: Store,
    settings: GcSettings | None = None,
    *,
    is_alone: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Truncate the log behind the committed positions, and remove what was dropped; returns how many entries went.

    The log is truncated until that is done, or for about as long as is set: more in a second than writers can write in one.
    """
    store.clear_stale_readers()
    record = store.read_epoch_record()
    if record.inflight is not None:
        return 0
    failpoint("gc.start")
    settings = settings or GcSettings()
    gone_entries, until = 0, clock() + settings.seconds_max
    kept, most = settings.log_kept_seconds, settings.entries_max
    while count := store.truncate_log(record.positions, older_than_seconds=kept, entries_max=most):
        gone_entries += count
        if clock() >= until:
            break
    failpoint("gc.truncated")
    while store.purge(record, records_max=most) and clock() < until:
        pass
    at_once = is_alone or store.capabilities.held_reads
    _remove_dropped(store, math.inf if at_once else record.floor)
    return gone_entries


def _remove_dropped(store: Store, floor: float) -> None:
    """Remove tables that were dropped before the floor: a reader of an older epoch may be at their records (R4)."""
    catalog = Catalog.from_json(store.read_catalog())
    gone = [table for table, epoch in catalog.dropped if epoch < floor]
    for table in gone:
        store.drop_records(table)
        store.drop_rows(table)
    if gone:
        failpoint("gc.dropped")
        swap_catalog(store, lambda catalog: catalog.without_dropped(gone))
