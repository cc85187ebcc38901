"""Events of records: the form in which new states of records travel to their managers.

In: rows under keys, then events of many managers. Out: events (key, hash, ord, row or NULL), then each record's last
one. Always: an inserted delta row is an event with its row, a deleted one an event without; the last event of a
record's key in log order is its state. So a row that leaves a key and returns in the same epoch needs no collapse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keyorder import last_of_keys
from viewkeeper.model.rowbatches import encode_rows
from viewkeeper.model.schema import Column
from viewkeeper.operators.duck import as_type
from viewkeeper.operators.edges import by_sign

_FEW_EVENTS = 50_000
_SHARE_WORTH_IT = 0.75  # of events that would be left
_SAMPLED = np.uint32(61)  # one hash in so many tells the share


def events(keys: pa.Array, hashes: np.ndarray, passed: pa.Table, row: tuple[Column, ...]) -> pa.Table:
    """An event for each row of `passed` (`ord`, `sign`, `v0…`), under the given keys."""
    inserted, deleted = by_sign(passed)
    values = [as_type(inserted[f"v{i}"], column.type.arrow) for i, column in enumerate(row)]
    rows = pa.concat_arrays([encode_rows(row, values, len(inserted)), pa.nulls(len(deleted), pa.binary())])
    is_inserted = np.asarray(passed["sign"]) > 0
    if not is_inserted[: len(inserted)].all():  # back to the order of the keys
        rows = rows.take(pa.array(np.where(is_inserted, np.cumsum(is_inserted) - 1, len(inserted))))
    return pa.table({"key": keys, "hash": pa.array(hashes), "ord": passed["ord"], "row": rows})


def fewer_events(parts: Sequence[pa.Table]) -> pa.Table:
    """The same events without those that later ones override, where these are many; in no order."""
    events = pa.concat_tables(parts).combine_chunks()
    if len(events) <= _FEW_EVENTS:  # it is faster to move them than to group them
        return events
    keys, hashes = events["key"].combine_chunks(), np.asarray(events["hash"])
    some = keys.filter(pa.array(hashes % _SAMPLED == hashes[0] % _SAMPLED))  # all events of some records
    if pc.count_distinct(some).as_py() > _SHARE_WORTH_IT * len(some):
        return events
    chosen = last_of_keys(keys, np.asarray(events["ord"]), groups=np.zeros(len(keys), np.int64))
    return events.take(pa.array(chosen))


def last_events(parts: Sequence[pa.Table], partitions: int) -> pa.Table:
    """The last event of each record, ordered by partition and, within it, by key."""
    events = pa.concat_tables(parts).combine_chunks()
    at = (np.asarray(events["hash"]) % partitions).astype(np.int64)
    chosen = last_of_keys(events["key"].combine_chunks(), np.asarray(events["ord"]), groups=at)
    return events.take(pa.array(chosen)).combine_chunks()
