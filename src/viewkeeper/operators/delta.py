"""δ over a log without before-images: DELTA holds the old rows (`docs/epochs.md`, "δ").

In: the last change of each row in the epoch. Out: deltas old → new for the readers of the table. Always: a delta is
taken from the version of DELTA below the epoch, so that a re-run emits what the first run emitted (plain replay would
not); two changes of one row in an epoch are one delta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.operators.apply import Applier, Changes
from viewkeeper.operators.channels import ROWS, Channel
from viewkeeper.operators.operator import Operator
from viewkeeper.plan.nodes import DeltaNode


class DeltaOperator(Operator[DeltaNode]):
    """A record for each row of the base table."""

    def apply(self, applier: Applier, node: DeltaNode, inputs: Mapping[Channel, pa.Table]) -> Iterator[Changes]:
        yield applier.put_events(node.table, inputs[ROWS])


def log_events(node: DeltaNode, changes: pa.RecordBatch) -> pa.Table:
    """The events that log changes mean for DELTA."""
    hashes = pa.array(hashes_of_keys(node.source.key_columns, changes["key"]))
    return pa.table({"key": changes["key"], "hash": hashes, "ord": changes["position"], "row": changes["after"]})
