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
from viewkeeper.views.settle import differs

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
    """For each record its last event, in no order."""
    events = pa.concat_tables(parts).combine_chunks()
    if len(events) <= _FEW_EVENTS:
        return events.take(_last_of_each(events, _in_order(events)))
    numbered = events.append_column("number", pa.array(np.arange(len(events))))
    chosen = run_sql("SELECT arg_max(number, ord) AS number FROM events GROUP BY key", events=numbered)
    return events.take(chosen["number"])


def last_events_in_order(parts: Sequence[pa.Table], places: int) -> pa.Table:
    """For each record its last event, in the order of places and, in each of them, of keys."""
    events = pa.concat_tables(parts).combine_chunks()
    order = _in_order(events)
    if len(parts) > 1:
        order = _last_of_each(events, order)
    by_key = np.asarray(order)
    at = (np.asarray(events["hash"]) % places).astype(np.min_scalar_type(places))[by_key]
    by_place = by_key[np.argsort(at, kind="stable")]
    return events.take(pa.array(by_place)).combine_chunks()


def _in_order(events: pa.Table) -> pa.Array:
    """The places of events by key and time; few are sorted by Arrow, for a query of DuckDB costs more than that."""
    if len(events) <= _FEW_EVENTS:
        return pc.sort_indices(events, sort_keys=[("key", "ascending"), ("ord", "ascending")])
    numbered = events.append_column("number", pa.array(np.arange(len(events))))
    return run_sql("SELECT number FROM events ORDER BY key, ord", events=numbered)["number"].combine_chunks()


def _last_of_each(events: pa.Table, order: pa.Array) -> pa.Array:
    """Of places in order the last one of each key."""
    keys = events["key"].take(order).combine_chunks()
    return order.filter(pa.array(np.append(differs(keys[:-1], keys[1:]), True)[: len(keys)]))
