"""Garbage collection: removes what lies before the committed epoch and is no longer needed.

In: the store. Out: a shorter log, no old versions, no records of dropped tables, no pages held for killed readers.
Always: bounded work for each call, in bounded transactions, between epochs and never while one is in flight; a crash in
the middle only leaves work for the next call.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from viewkeeper.coordinator.cas import StoredState
from viewkeeper.failpoints import failpoint
from viewkeeper.ports.store import Store
from viewkeeper.settings import GcSettings


def collect_all_garbage(store: Store) -> int:
    """Remove everything removable; the caller has the store alone. Returns how many log entries were deleted."""
    return collect_garbage(store, GcSettings(log_kept_seconds=0, seconds_max=math.inf), is_alone=True)


def collect_garbage(
    store: Store,
    settings: GcSettings | None = None,
    *,
    is_alone: bool = False,
    held: StoredState | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Truncate the log up to the committed positions, and remove dropped tables; returns how many entries were deleted.

    `held`: what a pipeline goes by since its last step, so that nothing is read; what could go then can go now.
    """
    held = held or StoredState(store)
    record = held.record
    if record.inflight is not None:
        return 0
    failpoint("gc.start")
    settings = settings or GcSettings()
    deleted_entries, until = 0, clock() + settings.seconds_max
    kept, most = settings.log_kept_seconds, settings.entries_max
    if not is_alone:  # changes that an operator keeps are those of the base too: a check since the last one reads them
        kept = max(kept, record.keeping.seconds)
    # it deletes more in a second than writers can write in one, so that the log stays short
    while count := store.truncate_log(record.positions, older_than_seconds=kept, entries_max=most):
        deleted_entries += count
        if clock() >= until:
            break
    failpoint("gc.truncated")
    while store.purge(record, records_max=most) and clock() < until:
        pass
    at_once = is_alone or store.capabilities.held_reads
    # tables dropped at the floor or later may still be read at an older epoch (R4)
    gone = [table for table, epoch in held.catalog.dropped if at_once or epoch < record.floor]
    for table in gone:
        store.drop(table)
    if gone:
        failpoint("gc.dropped")
        held.swap_catalog(lambda catalog: catalog.without_dropped(gone))
    return deleted_entries
