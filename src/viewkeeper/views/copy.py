"""σ, π and INDEX: records that are copies of base rows, under a key made of the row (`epochs.md`, "keyed copy").

In: images, then events of many managers. Out: events (key, hash, ord, row or NULL), then the last event of each record.
Always: an image that came is an event with its row, one that went an event without; the last event of a record's key in
log order is its state. A row that leaves a key and comes back in the same epoch is therefore right without a collapse.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.rowbatches import encode_rows
from viewkeeper.plan.physical import CopyNode
from viewkeeper.views.duck import as_type, run_sql
from viewkeeper.views.images import Images


def events_of(node: CopyNode, images: Images) -> list[pa.Table]:
    """The events of images that pass the node's predicate."""
    sides = (_events(node, images.after, came=True), _events(node, images.before, came=False))
    return [side for side in sides if side is not None]


def last_events(parts: Sequence[pa.Table]) -> pa.Table:
    """For each record its last event, in key order."""
    events = pa.concat_tables(parts).combine_chunks()
    numbered = events.select(["key", "ord"]).append_column("number", pa.array(range(len(events)), pa.int64()))
    chosen = run_sql("SELECT arg_max(number, ord) AS number FROM events GROUP BY key ORDER BY key", events=numbered)
    return events.take(chosen["number"])


def _events(node: CopyNode, images: pa.Table, *, came: bool) -> pa.Table | None:
    if not len(images):
        return None
    passed = run_sql(node.project, images=images)
    count = len(passed)
    keys, hashes = encode_keys(node.key, [passed[f"k{i}"] for i in range(len(node.key))], count)
    if came:
        values = [as_type(passed[f"v{i}"], column.type.arrow) for i, column in enumerate(node.row)]
        rows = encode_rows(node.row, values, count)
    else:
        rows = pa.nulls(count, pa.binary())
    return pa.table({"key": keys, "hash": pa.array(hashes), "ord": passed["ord"], "row": rows})
