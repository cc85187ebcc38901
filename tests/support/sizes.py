"""Sizes: what epochs counted, against a walk over all records.

In: a store of which an epoch is committed. Out: nothing, or an AssertionError. Always: every record of every table that the
catalog knows is read, one by one, as a reader of the committed epoch sees it.
"""

from __future__ import annotations

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.work_stats import Size
from viewkeeper.ports.store import Store


def walked(store: Store) -> dict[int, Size]:
    """The size of each table that has records."""
    record, found = store.read_epoch_record(), dict[int, Size]()
    for table in _known_tables(store):
        for partition in range(store.partitions):
            for batch in store.scan_versions(partition, table, record.committed, record.aborted):
                for key, row in zip(batch["key"].to_pylist(), batch["row"].to_pylist(), strict=True):
                    found[table] = found.get(table, Size()).plus(Size(1, len(key) + len(row)))
    return found


def counted(store: Store) -> dict[int, Size]:
    """What epochs counted; a table that was dropped since the last one is not looked at."""
    tables, sizes = _known_tables(store), store.read_epoch_record().sizes
    assert sizes is not None
    return {table: size for table, size in sizes.items() if table in tables}


def require_right_sizes(store: Store) -> None:
    assert counted(store) == walked(store)


def _known_tables(store: Store) -> set[int]:
    catalog = Catalog.from_json(store.read_catalog())
    own = {number for node in catalog.nodes for number in node.tables}
    return own | {number for table in catalog.tables for number in table.tables if number != table.id}
