"""σ, π and INDEX: records that are copies of base rows, under a key made of the row (`epochs.md`, "keyed copy").

In: images, then events of many managers. Out: events (key, hash, ord, row or NULL), then the last event of each record.
Always: an image that came is an event with its row, one that went an event without; the last event of a record's key in
log order is its state. A row that leaves a key and comes back in the same epoch is therefore right without a collapse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.rowbatches import encode_rows
from viewkeeper.plan.physical import CopyNode
from viewkeeper.views.aside import aside_events, without_failing
from viewkeeper.views.duck import as_type, run_sql
from viewkeeper.views.images import Images
from viewkeeper.views.parts import ASIDE, MAIN


def events_of(node: CopyNode, images: Images) -> Iterator[tuple[int, pa.Table]]:
    """The events of images that pass the node's predicate, and those of rows set aside, each with its part."""
    passed = run_sql(node.project, images=images.relation)
    if node.aside is not None:
        aside = aside_events(images, passed)
        if aside is not None:
            yield ASIDE, aside
            passed = without_failing(passed)
    yield MAIN, _events(node, passed)


def last_events(parts: Sequence[pa.Table]) -> pa.Table:
    """For each record its last event, in key order."""
    events = pa.concat_tables(parts).combine_chunks()
    numbered = events.select(["key", "ord"]).append_column("number", pa.array(range(len(events)), pa.int64()))
    chosen = run_sql("SELECT arg_max(number, ord) AS number FROM events GROUP BY key ORDER BY key", events=numbered)
    return events.take(chosen["number"])


def _events(node: CopyNode, passed: pa.Table) -> pa.Table:
    keys, hashes = encode_keys(node.key, [passed[f"k{i}"] for i in range(len(node.key))], len(passed))
    came = np.asarray(passed["sign"]) > 0
    brought = passed.filter(pa.array(came))
    values = [as_type(brought[f"v{i}"], column.type.arrow) for i, column in enumerate(node.row)]
    rows = encode_rows(node.row, values, len(brought)).take(pa.array(np.cumsum(came) - 1, mask=~came))
    return pa.table({"key": keys, "hash": pa.array(hashes), "ord": passed["ord"], "row": rows})
