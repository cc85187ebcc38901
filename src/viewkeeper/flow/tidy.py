"""Tidying: what is behind the committed epoch and needed by nobody goes.

In: the store. Out: a shorter log, and no records of dropped tables. Always: bounded work for each call, done between epochs
and never while one is in flight; a crash in the middle leaves work for the next call and nothing else.
"""

from __future__ import annotations

from viewkeeper.failpoints import failpoint
from viewkeeper.flow.swaps import swap_catalog
from viewkeeper.plan.catalog import Catalog
from viewkeeper.ports.store import Store

# A check compares with the base as of a committed epoch, for which it needs the log since; this is its time to do so.
LOG_KEPT_SECONDS = 300.0


def tidy_fully(store: Store) -> int:
    """Everything that can go, by one who has the store alone; answers how many log entries went."""
    gone = 0
    while count := tidy_up(store, log_kept_seconds=0):
        gone += count
    return gone


def tidy_up(store: Store, *, log_kept_seconds: float | None = None) -> int:
    """Truncate the log behind the committed positions, and remove what was dropped; answers how many entries went."""
    record = store.read_epoch_record()
    if record.inflight is not None:
        return 0
    failpoint("tidy.start")
    kept_seconds = LOG_KEPT_SECONDS if log_kept_seconds is None else log_kept_seconds
    gone_entries = store.truncate_log(record.positions, older_than_seconds=kept_seconds)
    failpoint("tidy.truncated")
    catalog = Catalog.from_json(store.read_catalog())
    if catalog.dropped:
        gone = [table for table, _ in catalog.dropped]
        for table in gone:
            store.drop_records(table)
            store.drop_rows(table)
        failpoint("tidy.dropped")
        swap_catalog(store, lambda catalog: catalog.without_dropped(gone))
    return gone_entries
