"""Asides: the lists of rows set aside, as an epoch for them reads and changes them.

In: a request. Out: the keys it is for, as of the epoch before, and events that change their records. Always: a function of
the versions below the epoch, so that a re-run finds the same (R7).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.asides import DROPPED, AsideRequest
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.model.schema import Column
from viewkeeper.ports.records import VersionedTables

_FIRST = -(1 << 63)  # before all rows: one that still fails is listed again after it


def listed_keys(store: VersionedTables, request: AsideRequest, epoch: Inflight) -> pa.Array:
    """The keys of rows that are set aside and asked for: those named, or all but those dropped."""
    asked, found = pa.array(request.keys, pa.binary()), [pa.array([], pa.binary())]
    for partition in range(store.partitions):
        for batch in store.scan_versions(partition, request.table, epoch.epoch - 1, epoch.aborted):
            wanted = (
                pc.is_in(batch["key"], value_set=asked)
                if request.keys
                else pc.not_equal(batch["row"], pa.scalar(DROPPED, pa.binary()))
            )
            found.append(batch["key"].filter(wanted))
    return pa.concat_arrays(found)


def list_events(columns: Sequence[Column], keys: pa.Array, row: bytes | None) -> pa.Table:
    """Events (key, hash, ord, row) that set the records of a list to `row`."""
    hashes = pa.array(hashes_of_keys(columns, keys))
    order, rows = (
        pa.array(np.full(len(keys), _FIRST)),
        pa.array([row], pa.binary()).take(pa.array(np.zeros(len(keys), np.int64))),
    )
    return pa.table({"key": keys, "hash": hashes, "ord": order, "row": rows})
