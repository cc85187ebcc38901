"""Starting anew: the way out where the log lacks changes that no epoch has applied.

In: a store that no pipeline runs on. Out: the same base, and views to be filled from it, all of them: which ones the lost
changes were for is not known. Always: one swap of the epoch record decides; before it only entries were added to the log,
after it the next epoch removes what earlier ones wrote, so that a crash leaves the store before or after.
"""

from __future__ import annotations

from collections.abc import Iterator

from viewkeeper.coordinator.swaps import swap_catalog, swap_record
from viewkeeper.failpoints import failpoint
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.writes import RowWrites
from viewkeeper.ports.store import Store

_ROWS, _BYTES = 1_000, 8 << 20  # of a transaction, about


def start_views_anew(store: Store) -> EpochRecord:
    """Give up the epoch in flight and all that waits in the log; views are filled from the base, by the next epochs.

    A DELTA is made from the log alone, so every row of a table that has one is logged again; foreign tables are staged.
    """
    start = store.skip_log(store.read_epoch_record().positions)
    # after the cut: it has every table that has a row before the cut
    catalog = swap_catalog(store, lambda catalog: catalog.with_staging_anew())
    stored = [table for table in catalog.tables if table.delta is not None and table.foreign is None]
    for table in stored:
        for keys in _keys(store, table.id):
            for chosen in store.together(keys):
                store.write([RowWrites(table.id, [keys[i] for i in chosen], lambda rows: rows, repeats=True)])
    failpoint("anew.logged")
    rebuilt = store.ends() if stored else {}
    checksums = store.checksums(start.positions)
    record = swap_record(store, lambda record: epochs.start_anew(record, start, checksums, rebuilt))
    store.sync_epoch_record()
    failpoint("anew.swapped")
    return record


def _keys(store: Store, table: int) -> Iterator[list[bytes]]:
    """The keys of a table, as many as one transaction writes."""
    keys, size = list[bytes](), 0
    for key, row in store.scan(table, b"", None):
        keys.append(key)
        size += len(row)
        if len(keys) == _ROWS or size > _BYTES:
            yield keys
            keys, size = [], 0
    if keys:
        yield keys
