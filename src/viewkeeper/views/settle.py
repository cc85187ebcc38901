"""Settle: the only way a view program writes records (`epochs.md`, section 1).

In: for one manager and one epoch, the consolidated input of each node. Out: how many records were written. Always: the new
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
from viewkeeper.ports.store import StoredVersions, VersionedTables, VersionWrite
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


def settle(
    store: VersionedTables, inputs: Sequence[tuple[Node, pa.Table]], owned: frozenset[int], epoch: Inflight
) -> int:
    """Apply one epoch's consolidated input to the records of the owned places, one transaction for each place."""
    failpoint("settle.start")
    placed = [(node, _by_place(store, table, owned)) for node, table in inputs if len(table)]
    touched = sorted({place for _, parts in placed for place, _ in parts})
    for place in touched:
        store.open_epoch(place, epoch)
    failpoint("settle.purged")
    writes: dict[int, list[VersionWrite]] = {place: [] for place in touched}
    for node, parts in placed:
        for place, write in _compute(store, node, parts, epoch):
            writes[place].append(write)
    failpoint("settle.computed")
    for place in touched:
        wanted = [write for write in writes[place] if len(write.chosen)]
        if wanted:
            store.write_versions(place, wanted, epoch)
    failpoint("settle.written")
    return sum(len(write.chosen) for place in touched for write in writes[place])


def _by_place(store: VersionedTables, table: pa.Table, owned: frozenset[int]) -> list[tuple[int, pa.Table]]:
    """The records of a node's input by the place they live in."""
    places = np.asarray(table["hash"]) % store.places
    parts = []
    for place in np.unique(places).tolist():
        if place not in owned:
            raise InvariantBroken(f"a record of place {place} reached a manager that does not own it")
        parts.append((place, table.filter(pa.array(places == place))))
    return parts


def _compute(
    store: VersionedTables, node: Node, parts: Sequence[tuple[int, pa.Table]], epoch: Inflight
) -> list[tuple[int, VersionWrite]]:
    """What to write of a node's records: read place by place, computed for all places at once."""
    found = [store.read_versions(place, node.table, part["key"].combine_chunks(), epoch) for place, part in parts]
    failpoint("settle.read")
    whole = pa.concat_tables([part for _, part in parts])
    if isinstance(node, FoldNode):
        rows = fold(node, whole, pa.concat_arrays([versions.rows for versions in found]))
    else:
        rows = whole["row"].combine_chunks()
    writes, start = [], 0
    for (place, part), versions in zip(parts, found, strict=True):
        writes.append((place, _write_of(node, versions, rows.slice(start, len(part)), epoch)))
        start += len(part)
    return writes


def _write_of(node: Node, found: StoredVersions, rows: pa.Array, epoch: Inflight) -> VersionWrite:
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
