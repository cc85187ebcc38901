"""Filling: which rows the next epoch brings into views that are not filled yet (`epochs.md`, R12).

In: the plan and the epoch record. Out: chunks for the begin record. Always: a bounded number of rows for each epoch, so that
base writes and the other views go on; what is committed is never read again, so a fill goes on where a crash cut it.
"""

from __future__ import annotations

from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.fills import START, Chunk, Filling
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store

ROWS_PER_EPOCH_MAX = 1_000_000
_PIECES = 8


def plan_chunks(
    store: Store, plan: PhysicalPlan, record: EpochRecord, *, rows_max: int = ROWS_PER_EPOCH_MAX
) -> tuple[Chunk, ...]:
    """The rows to fill from next; views that have come equally far with a table share a chunk."""
    together: dict[tuple[int, tuple], list[int]] = {}
    for view in plan.views:
        if view in record.filled:
            continue
        filling = record.filling.get(view)
        for source in plan.sources_of(view):
            cursors = None if filling is None else filling.cursors[source]
            if cursors is None or cursors:
                together.setdefault((source, _state(cursors)), []).append(view)
    share = max(1, rows_max // max(1, len(together)))
    return tuple(
        _chunk(store, plan, record.filling.get(views[0]), source, tuple(views), share)
        for (source, _), views in together.items()
    )


def _state(cursors: dict[int, bytes] | None) -> tuple:
    return (None,) if cursors is None else tuple(sorted(cursors.items()))


def _chunk(
    store: Store, plan: PhysicalPlan, filling: Filling | None, source: int, tables: tuple[int, ...], rows_max: int
) -> Chunk:
    delta = next((table.delta for table in plan.deltas if table.id == source), None)
    read = source if delta is None else delta
    parts = sorted(store.ends()) if delta is None else range(store.places)
    cursors = dict.fromkeys(parts, START) if filling is None else filling.cursors[source]
    total = store.count_rows(read) if filling is None else 0
    share = max(1, rows_max // max(1, len(cursors)))
    borders, rows = {}, 0
    for part, cursor in sorted(cursors.items()):
        keys, count = store.row_borders(read, part, cursor, rows_max=share, pieces=max(1, _PIECES // len(cursors)))
        borders[part] = tuple(keys)
        rows += count
    return Chunk(source, tables, borders, rows, total, opens=filling is None)
