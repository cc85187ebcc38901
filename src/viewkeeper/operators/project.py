"""σ, π and INDEX: records that are copies of rows, under a key made of the row (`docs/epochs.md`, "keyed copy").

In: rows that passed an edge. Out: one record for each. Always: the last event of a record's key is its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.operators.apply import Applier, Changes
from viewkeeper.operators.blame import blamed
from viewkeeper.operators.channels import ROWS, Channel
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.operator import Operator
from viewkeeper.operators.record_events import events
from viewkeeper.plan.nodes import ProjectNode

if TYPE_CHECKING:
    from viewkeeper.operators.inputs import DeltaCollector


class ProjectOperator(Operator[ProjectNode]):
    """A record for each row that passes."""

    def read(self, readers: Sequence[tuple[ProjectNode, int]], delta: Delta, out: DeltaCollector) -> None:
        for node, number in readers:
            with blamed(node.table):
                out.add(node.table, ROWS, events_of(node, out.passing(node, number, delta)))

    def apply(
        self, applier: Applier, node: ProjectNode, inputs: Mapping[Channel, pa.Table]
    ) -> Iterator[Delta | Changes]:
        if ROWS in inputs:
            yield applier.put_events(node.table, inputs[ROWS])


def events_of(node: ProjectNode, passed: pa.Table) -> pa.Table:
    """The events of rows that passed an edge of the node."""
    keys, hashes = encode_keys(node.key, [passed[f"k{i}"] for i in range(len(node.key))], len(passed))
    return events(keys, hashes, passed, node.row)
