"""Settle: the only way a view program writes records (`epochs.md`, section 1).

In: for one place and one epoch, the consolidated input of each node. Out: how many records were written. Always: the new
row is computed from the version below the epoch, whether or not the epoch has written the record before; a record at the
epoch already must hold exactly that row, for a view program is a function of its inputs (R6, R7).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.plan.physical import CopyNode, FoldNode, Node
from viewkeeper.ports.store import VersionedTables, VersionWrite
from viewkeeper.views.copy import last_events
from viewkeeper.views.fold import combine, fold


def consolidate(node: Node, parts: Sequence[pa.Table]) -> pa.Table:
    """All of a node's input as one row per record, in key order (R6)."""
    match node:
        case FoldNode():
            return combine(node, parts)
        case CopyNode():
            return last_events(parts)
    raise InvariantBroken(f"no view program for {type(node).__name__}")


def settle_place(
    store: VersionedTables, place: int, inputs: Sequence[tuple[Node, pa.Table]], epoch: Inflight
) -> int:
    """Apply one epoch's consolidated input to the records of a place, in one transaction."""
    failpoint("settle.start")
    store.open_epoch(place, epoch)
    failpoint("settle.purged")
    writes = [_settle(store, place, node, table, epoch) for node, table in inputs]
    failpoint("settle.computed")
    store.write_versions(place, [write for write in writes if len(write.chosen)], epoch)
    failpoint("settle.written")
    return sum(len(write.chosen) for write in writes)


def _settle(store: VersionedTables, place: int, node: Node, table: pa.Table, epoch: Inflight) -> VersionWrite:
    keys = table["key"].combine_chunks()
    found = store.read_versions(place, node.table, keys, epoch)
    failpoint("settle.read")
    rows = fold(node, table, found.rows) if isinstance(node, FoldNode) else table["row"].combine_chunks()
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    if (found.applied & differs(found.now, rows)).any():
        raise InvariantBroken(f"epoch {epoch.epoch} computed another row for table {node.table} than it wrote before")
    chosen = np.flatnonzero(differs(found.rows, rows) & ~found.applied)
    return VersionWrite(node.table, found, chosen, rows.take(pa.array(chosen)))


def differs(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Where two arrays of row bytes differ; NULL equals NULL."""
    same = np.asarray(pc.fill_null(pc.equal(left, right), False))
    if left.null_count and right.null_count:
        same |= np.asarray(left.is_null()) & np.asarray(right.is_null())
    return ~same
