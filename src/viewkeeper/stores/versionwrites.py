"""Version writes: what an epoch writes to each partition.

In: new rows for records, as found by `read_versions`. Out: chains with the epoch's version in front. Always: chains are
made for all partitions at once, and a partition's share of them is a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.model.epochs import Inflight
from viewkeeper.ports.records import VersionWrite
from viewkeeper.stores.versions import push


@dataclass(frozen=True, slots=True)
class Written:
    """Chains of one table to be stored in one partition, and the keys of those whose newest version is a tombstone.

    `is_indexed`: which records were written is indexed by epoch.
    """

    table: int
    keys: list[bytes]
    chains: list[bytes]
    tombstones: list[bytes]
    is_indexed: bool


def prepare(write: VersionWrite, epoch: Inflight) -> Iterator[tuple[int, Written]]:
    """What a write stores in each partition."""
    if not len(write.chosen):
        return
    found, stored = write.found.raw, write.found.keys
    if len(write.chosen) < len(stored):
        chosen = pa.array(write.chosen)
        found, stored = found.take(chosen), stored.take(chosen)
    chains = push(found, write.rows, epoch.epoch, epoch.floor, epoch.aborted).to_pylist()
    keys = stored.to_pylist()
    gone = np.flatnonzero(np.asarray(write.rows.is_null())) if write.rows.null_count else np.zeros(0, np.int64)
    is_indexed = write.table in epoch.indexed
    for partition, start, stop in runs(write.found.partitions[write.chosen]):
        first, last = gone.searchsorted((start, stop))
        tombstones = [keys[i] for i in gone[first:last].tolist()]
        yield partition, Written(write.table, keys[start:stop], chains[start:stop], tombstones, is_indexed)


def runs(partitions: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(partition, start, stop) of each run of equal partitions."""
    borders = [*np.flatnonzero(np.diff(partitions, prepend=-1)).tolist(), len(partitions)]
    for start, stop in zip(borders, borders[1:], strict=False):
        yield int(partitions[start]), start, stop
