"""γ: contributions to groups, as they travel (`docs/epochs.md`, "γ" and "γ min/max").

In: what rows contribute, then contributions of many managers. Out: one contribution for each group, entry of a
PRE-AGGREGATION and unit of an exact sum. Always: neither order nor partition of the inputs changes a byte (R7); a row
changed twice in an epoch needs no collapse, because its delta rows cancel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.model.varbinary import VarBinary, join
from viewkeeper.operators.duck import as_type
from viewkeeper.operators.exact_sums import consolidate
from viewkeeper.operators.messages import GROUPS, Channel
from viewkeeper.plan.nodes import AggregateNode, Entries


def contribution(node: AggregateNode, keys: Sequence[pa.Array], states: Sequence[pa.Array], count: int) -> pa.Table:
    """The contributions to `count` groups, under their encoded keys."""
    encoded, hashes = encode_keys(node.key, keys, count)
    pairs = enumerate(zip(states, node.state, strict=True))
    given = {f"s{index}": as_type(state, column.type.arrow) for index, (state, column) in pairs}
    return pa.table({"key": encoded, "hash": pa.array(hashes), **given})


def first_contribution(node: AggregateNode) -> pa.Table:
    """What a backfill contributes to a record that exists even over an empty base: nothing, under the empty key."""
    return contribution(node, [], [pa.array([0], column.type.arrow) for column in node.state], 1)


def combine(node: AggregateNode, channel: Channel, parts: Sequence[pa.Table]) -> pa.Table:
    """One contribution for each group, entry or unit of a group, in key order; only a group's may be nothing."""
    if channel == GROUPS:
        return consolidate(parts, [f"s{i}" for i in range(len(node.state))], keep_zeros=True)
    return consolidate(parts, ["n"]) if channel.kind == "entries" else consolidate(parts, ["m"], within="unit")


def entry_changes(
    entries: Entries, groups: pa.Array, hashes: pa.Array, values: Sequence[pa.Array], counts: pa.Array
) -> pa.Table:
    """The changes of entries, whose keys are the key of their group, `size` bytes long, then the values."""
    after, _ = encode_keys(entries.values, values, len(groups))
    whole = VarBinary.from_arrow(groups)
    keys = join([whole, VarBinary.from_arrow(after)]).to_arrow()
    return pa.table({"key": keys, "hash": hashes, "size": pa.array(whole.lengths.astype(np.int32)), "n": counts})
