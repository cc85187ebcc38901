"""Table sizes: how many records each table of a node has as of the committed epoch, and how many bytes.

In: the sizes before an epoch, and what its tasks counted. Out: the sizes after it. Always: exactly what a reader of
that epoch would count; added with the commit, so an epoch counts once, however often it runs, and an aborted one does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow.compute as pc

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.work_stats import Counts, Size
from viewkeeper.ports.records import VersionedTables


def stored_tables(catalog: Catalog) -> frozenset[int]:
    """All tables that epochs write: those of nodes, DELTA, and the lists of rows that do not decode."""
    own = {number for node in catalog.nodes for number in node.tables}
    return frozenset(own.union(*(table.tables[1:] for table in catalog.tables)))


def sizes_after(before: Mapping[int, Size], counts: Counts, tables: Collection[int]) -> dict[int, Size]:
    """The sizes of the tables that still exist; one without records is left out."""
    sizes = dict(before) | counts.found
    for table, work in counts.tables.items():
        sizes[table] = sizes.get(table, Size()).plus(work.grown)
    return {table: size for table, size in sizes.items() if size.records and table in tables}


def sizes_of(store: VersionedTables, catalog: Catalog, record: EpochRecord) -> Mapping[int, Size]:
    """The sizes that the record has, else those of all tables, walked."""
    return walked_sizes(store, stored_tables(catalog), record) if record.sizes is None else record.sizes


def walked_sizes(store: VersionedTables, tables: Collection[int], record: EpochRecord) -> dict[int, Size]:
    """The sizes as of the committed epoch, from all records."""
    found: dict[int, Size] = {}
    for table in tables:
        for partition in range(store.partitions):
            for batch in store.scan_versions(partition, table, record.committed, record.aborted):
                if len(batch):
                    size = sum(pc.sum(pc.binary_length(batch[name])).as_py() for name in ("key", "row"))
                    found[table] = found.get(table, Size()).plus(Size(len(batch), size))
    return found
