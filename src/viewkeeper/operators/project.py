"""σ, π and INDEX: records that are copies of rows, under a key made of the row (`docs/epochs.md`, "keyed copy").

In: rows that passed an edge. Out: one record for each. Always: the last event of a record's key is its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from viewkeeper.model.keybatches import encode_keys
from viewkeeper.operators.apply import Applier, Changes
from viewkeeper.operators.channels import ROWS, Channel
from viewkeeper.operators.operator import EdgeOperator
from viewkeeper.operators.record_events import events
from viewkeeper.plan.nodes import ProjectNode


class ProjectOperator(EdgeOperator[ProjectNode]):
    """A record for each row that passes."""

    def input_of(self, node: ProjectNode, number: int, rows: pa.Table) -> Iterator[tuple[Channel, pa.Table]]:
        keys, hashes = encode_keys(node.key, [rows[f"k{i}"] for i in range(len(node.key))], len(rows))
        yield ROWS, events(keys, hashes, rows, node.row)

    def apply(self, applier: Applier, node: ProjectNode, inputs: Mapping[Channel, pa.Table]) -> Iterator[Changes]:
        if ROWS in inputs:
            yield applier.put_events(node.table, inputs[ROWS])
