"""σ, π and INDEX: records that are copies of rows, under a key made of the row (`epochs.md`, "keyed copy").

In: rows that passed, then events of many managers. Out: events (key, hash, ord, row or NULL), then each record's last one.
Always: an image that came is an event with its row, one that went an event without; the last event of a record's key in
log order is its state. A row that leaves a key and comes back in the same epoch is therefore right without a collapse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.rowbatches import encode_rows
from viewkeeper.model.schema import Column
from viewkeeper.plan.nodes import CopyNode
from viewkeeper.views.duck import as_type, run_sql

_FEW_EVENTS = 5_000  # are sorted sooner than DuckDB has read the query


def events_of(node: CopyNode, passed: pa.Table) -> pa.Table:
    """The events of rows that passed a feed of the node."""
    keys, hashes = encode_keys(node.key, [passed[f"k{i}"] for i in range(len(node.key))], len(passed))
    return events(keys, hashes, passed, node.row)


def events(keys: pa.Array, hashes: np.ndarray, passed: pa.Table, row: tuple[Column, ...]) -> pa.Table:
    """An event for each row of `passed` (`ord`, `sign`, `v0…`), under the given keys."""
    came = np.asarray(passed["sign"]) > 0
    brought = passed.filter(pa.array(came))
    values = [as_type(brought[f"v{i}"], column.type.arrow) for i, column in enumerate(row)]
    rows = encode_rows(row, values, len(brought)).take(pa.array(np.cumsum(came) - 1, mask=~came))
    return pa.table({"key": keys, "hash": pa.array(hashes), "ord": passed["ord"], "row": rows})


def last_events(parts: Sequence[pa.Table]) -> pa.Table:
    """For each record its last event, in key order."""
    events = pa.concat_tables(parts).combine_chunks()
    if len(events) <= _FEW_EVENTS:
        return events.take(_last_of_few(events))
    numbered = events.select(["key", "ord"]).append_column("number", pa.array(range(len(events)), pa.int64()))
    chosen = run_sql("SELECT arg_max(number, ord) AS number FROM events GROUP BY key ORDER BY key", events=numbered)
    return events.take(chosen["number"])


def _last_of_few(events: pa.Table) -> pa.Array:
    """The places of the last events: sorted, the last of each run of equal keys."""
    order = pc.sort_indices(events, sort_keys=[("key", "ascending"), ("ord", "ascending")])
    keys = events["key"].take(order).combine_chunks()
    last = np.ones(len(keys), bool)
    last[:-1] = np.asarray(pc.not_equal(keys[:-1], keys[1:]))
    return order.filter(pa.array(last))
