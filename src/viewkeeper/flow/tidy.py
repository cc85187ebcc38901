"""Tidying: what is behind the committed epoch and needed by nobody goes.

In: the store. Out: a shorter log, no old versions, no records of dropped tables, no pages held for readers that were killed.
Always: bounded work for each call, in bounded transactions, done between epochs and never while one is in flight; a crash in
the middle leaves work for the next call and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from viewkeeper.failpoints import failpoint
from viewkeeper.flow.swaps import swap_catalog
from viewkeeper.plan.catalog import Catalog
from viewkeeper.ports.store import Store

# A check compares with the base as of a committed epoch, for which it needs the log since; this is its time to do so.
LOG_KEPT_SECONDS = 300.0
SECONDS_MAX = 1.0
ENTRIES_MAX = 5_000  # in one transaction


def tidy_fully(store: Store) -> int:
    """Everything that can go, by one who has the store alone; answers how many log entries went."""
    return tidy_up(store, log_kept_seconds=0, seconds_max=math.inf, is_alone=True)


def tidy_up(
    store: Store,
    *,
    log_kept_seconds: float | None = None,
    seconds_max: float = SECONDS_MAX,
    entries_max: int = ENTRIES_MAX,
    is_alone: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Truncate the log behind the committed positions, and remove what was dropped; answers how many entries went.

    The log is truncated until that is done, or for about `seconds_max`: more in a second than writers can write in one.
    """
    store.clear_stale_readers()
    record = store.read_epoch_record()
    if record.inflight is not None:
        return 0
    failpoint("tidy.start")
    kept_seconds = LOG_KEPT_SECONDS if log_kept_seconds is None else log_kept_seconds
    gone_entries, until = 0, clock() + seconds_max
    while count := store.truncate_log(record.positions, older_than_seconds=kept_seconds, entries_max=entries_max):
        gone_entries += count
        if clock() >= until:
            break
    failpoint("tidy.truncated")
    while store.purge(record, records_max=entries_max) and clock() < until:
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
        failpoint("tidy.dropped")
        swap_catalog(store, lambda catalog: catalog.without_dropped(gone))
