"""σ, π and INDEX: records that are copies of rows, under a key made of the row (`epochs.md`, "keyed copy").

In: rows that passed an edge. Out: one record for each. Always: the last event of a record's key is its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.plan.nodes import CopyNode
from viewkeeper.views.blame import blamed
from viewkeeper.views.channels import ROWS, Channel
from viewkeeper.views.images import Images
from viewkeeper.views.operator import Operator
from viewkeeper.views.record_events import events
from viewkeeper.views.settle import Changes, Settling

if TYPE_CHECKING:
    from viewkeeper.views.inputs import Gathering


class ProjectOperator(Operator[CopyNode]):
    """A record for each row that passes."""

    def read(self, readers: Sequence[tuple[CopyNode, int]], delta: Images, out: Gathering) -> None:
        for node, number in readers:
            with blamed(node.table):
                out.add(node.table, ROWS, events_of(node, out.passing(node, number, delta)))

    def apply(
        self, settling: Settling, node: CopyNode, inputs: Mapping[Channel, pa.Table]
    ) -> Iterator[Images | Changes]:
        if ROWS in inputs:
            yield settling.put_events(node.table, inputs[ROWS])


def events_of(node: CopyNode, passed: pa.Table) -> pa.Table:
    """The events of rows that passed an edge of the node."""
    keys, hashes = encode_keys(node.key, [passed[f"k{i}"] for i in range(len(node.key))], len(passed))
    return events(keys, hashes, passed, node.row)
