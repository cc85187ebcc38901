"""Backfill: which rows the next epoch brings into views that are not filled yet (`docs/epochs.md`, R12).

In: the plan and the epoch record. Out: chunks for the begin record. Always: each epoch reads a bounded number of rows,
so base writes and the other views go on; committed rows are never read again, so a backfill resumes where a crash cut
it.
"""

from __future__ import annotations

from dataclasses import replace

from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.fills import START, Chunk
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.settings import EpochLimits

_PIECES = 8


def plan_chunks(store: Store, plan: PhysicalPlan, record: EpochRecord, limits: EpochLimits) -> tuple[Chunk, ...]:
    """The rows to fill from next; backfills at the same cursor of a source share a chunk."""
    together: dict[tuple[int, tuple], list[int]] = {}
    for backfill in plan.backfills:
        if backfill in record.filled:
            continue
        filling = record.filling.get(backfill)
        for source in plan.sources_of(backfill, record.filled) if filling is None else filling.cursors:
            cursors = None if filling is None else filling.cursors[source]
            if cursors is None or cursors:
                reached = (None,) if cursors is None else tuple(sorted(cursors.items()))
                together.setdefault((source, reached), []).append(backfill)

    def chunk(key: tuple[int, tuple], shares: tuple[int, int]) -> Chunk:
        backfills = together[key]
        return _chunk(store, plan, record, key[0], tuple(backfills), *shares)

    chunks: dict[tuple[int, tuple], Chunk] = {}
    left = limits.rows, limits.bytes
    for place, key in enumerate(together):  # what small tables leave over goes to the larger ones after them
        chunks[key] = chunk(key, _shares(*left, len(together) - place))
        left = left[0] - chunks[key].rows, left[1] - chunks[key].bytes
    larger = [key for key, one in chunks.items() if not _reaches_the_end(one)]
    if larger and left[0] > limits.rows // 2 and left[1] > limits.bytes // 2:  # or before them
        more = _shares(*left, len(larger))
        chunks |= {key: chunk(key, (chunks[key].rows + more[0], chunks[key].bytes + more[1])) for key in larger}
    return tuple(chunks.values())


def _ended(keys: tuple[bytes | None, ...]) -> tuple[bytes | None, ...]:
    """Borders of a key range; none follows the empty key (that of a total), because it would be taken for the start."""
    return (START, None) if keys[-1] == START else keys


def _reaches_the_end(chunk: Chunk) -> bool:
    return all(keys[-1] is None for keys in chunk.borders.values())


def _shares(rows_max: int, bytes_max: int, among: int) -> tuple[int, int]:
    return max(1, rows_max // max(1, among)), max(1, bytes_max // max(1, among))


def _chunk(
    store: Store,
    plan: PhysicalPlan,
    record: EpochRecord,
    source: int,
    tables: tuple[int, ...],
    rows_max: int,
    bytes_max: int,
) -> Chunk:
    """The next rows of a source: base rows by key range, DELTA or node rows by partition."""
    stored, filling = plan.stored_in(source), record.filling.get(tables[0])
    read = source if stored is None else stored
    if stored is None:
        parts, borders_of = store.parts(source), store.row_borders
    else:
        parts, borders_of = range(store.partitions), store.record_borders
    cursors = dict.fromkeys(parts, START) if filling is None else filling.cursors[source]
    rows_share, bytes_share = _shares(rows_max, bytes_max, len(cursors))
    pieces = max(1, _PIECES // len(cursors))
    found = {
        part: borders_of(read, part, cursor, rows_max=rows_share, bytes_max=bytes_share, pieces=pieces)
        for part, cursor in sorted(cursors.items())
    }
    rows, size = (sum(getattr(borders, name) for borders in found.values()) for name in ("rows", "bytes"))
    borders = {part: _ended(one.keys) for part, one in found.items()}
    chunk = Chunk(source, tables, borders, rows, size, 0, filling is None)
    if filling is not None:
        return chunk
    if _reaches_the_end(chunk):
        return replace(chunk, total=rows)
    return replace(chunk, total=store.count_rows(source) if stored is None else record.size(stored).records)
