"""Backfill: which rows fill the views that are not filled yet (`docs/epochs.md`, R12).

In: the plan, the catalog and the epoch record. Out: chunks of rows for the begin record; rows of foreign tables copied;
and, where the log lacks changes that no epoch has applied, a reset of all views. Always: each epoch reads a bounded
number of rows, so base writes and other views go on; committed rows are never read again, so a backfill resumes where a
crash cut it. One swap of the epoch record decides a reset: before it only log entries were added, after it the next epoch
removes what earlier ones wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.cas import StoredState, swap_catalog, swap_record
from viewkeeper.failpoints import failpoint
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.positions import START, Chunk, Positions
from viewkeeper.model.stored_rows import RowWrites
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.base_rows import scan_rows
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

    def chunk(key: tuple[int, tuple], most: tuple[int, int]) -> Chunk:
        return _chunk(store, plan, record, key[0], tuple(together[key]), most)

    chunks: dict[tuple[int, tuple], Chunk] = {}
    left = limits.rows, limits.bytes
    for index, key in enumerate(together):  # what small tables leave over goes to the larger ones after them
        chunks[key] = chunk(key, _shares(*left, len(together) - index))
        left = left[0] - chunks[key].rows, left[1] - chunks[key].bytes
    larger = [key for key, one in chunks.items() if not _reaches_the_end(one)]
    if larger and left[0] > limits.rows // 2 and left[1] > limits.bytes // 2:  # or before them
        more = _shares(*left, len(larger))
        chunks |= {key: chunk(key, (chunks[key].rows + more[0], chunks[key].bytes + more[1])) for key in larger}
    return tuple(chunks.values())


def _reaches_the_end(chunk: Chunk) -> bool:
    return all(keys[-1] is None for keys in chunk.borders.values())


def _shares(rows_max: int, bytes_max: int, among: int) -> tuple[int, int]:
    return max(1, rows_max // max(1, among)), max(1, bytes_max // max(1, among))


def _chunk(
    store: Store, plan: PhysicalPlan, record: EpochRecord, source: int, tables: tuple[int, ...], most: tuple[int, int]
) -> Chunk:
    """The next rows of a source: base rows by key range, DELTA or node rows by partition."""
    stored, filling = plan.stored_in(source), record.filling.get(tables[0])
    read = source if stored is None else stored
    if stored is None:
        parts, borders_of = store.parts(source), store.row_borders
    else:
        parts, borders_of = dict.fromkeys(range(store.partitions), 0), store.record_borders
    cursors = dict.fromkeys(parts, START) if filling is None else filling.cursors[source]
    rows_share, bytes_share = _shares(*most, len(cursors))
    pieces = max(1, _PIECES // len(cursors))
    found = {
        part: borders_of(read, part, cursor, rows_max=rows_share, bytes_max=bytes_share, pieces=pieces)
        for part, cursor in sorted(cursors.items())
    }
    rows, size = (sum(getattr(borders, name) for borders in found.values()) for name in ("rows", "bytes"))
    # no border follows the empty key (that of a total), because it would be taken for the start
    borders = {part: (START, None) if one.keys[-1] == START else one.keys for part, one in found.items()}
    chunk = Chunk(source, tables, borders, rows, size, 0, filling is None)
    if filling is not None:
        return chunk
    if _reaches_the_end(chunk):
        return replace(chunk, total=rows)
    return replace(chunk, total=sum(parts.values()) if stored is None else record.size(stored).records)


_ROWS_AT_ONCE = 50_000  # some seconds, in which other views wait


def stage_tables(store: Store, held: StoredState, *, rows_max: int) -> None:
    """Copy about so many rows more of each table that needs it; what came meanwhile is in the log up to its end by now."""
    most = min(rows_max, _ROWS_AT_ONCE)
    for table in held.catalog.tables:
        if table.foreign is not None and table.foreign.staged is None and store.stage(table, rows_max=most):
            failpoint("stage.ready")
            done = partial(Catalog.with_staged, table=table.id, staging=table.foreign.staging, ends=store.ends())
            held.swap_catalog(done)


def tables_staged(store: Store, catalog: Catalog, positions: Positions, taken: Sequence[str]) -> frozenset[int]:
    """The foreign tables all of whose copied rows are in a state at `positions`; its epoch took in the chunks `taken`."""
    ends = {table.id: dict(table.foreign.staged) for table in catalog.tables if table.foreign and table.foreign.staged}
    lacking = {table for chunk, table in store.staged().items() if chunk not in taken} if ends else set()
    return frozenset(
        table for table, end in ends.items() if table not in lacking and not store.describe(positions, end).has_changes
    )


def late_backfills(
    store: Store, catalog: Catalog, plan: PhysicalPlan, positions: Positions, taken: Sequence[str]
) -> frozenset[int]:
    """The backfills that lack rows of a foreign table in a state; see `tables_staged`."""
    pending = {table.id for table in catalog.tables if table.foreign and table.foreign.staged != ()}
    if not pending:
        return frozenset()
    lacking, bases = pending - tables_staged(store, catalog, positions, taken), plan.bases
    return frozenset(node.backfill for node in plan.nodes if not lacking.isdisjoint(bases[node.table]))


_ROWS, _BYTES = 1_000, 8 << 20  # of a transaction, about


def reset_views(store: Store) -> EpochRecord:
    """Give up the epoch in flight and all that waits in the log; views are filled from the base, by the next epochs.

    A DELTA is made from the log alone, so every row of a table that has one is logged again; foreign tables are staged.
    """
    start = store.cut(store.read_epoch_record().positions, skips=True)
    # after the cut: it has every table that has a row before the cut
    catalog = swap_catalog(store, lambda catalog: catalog.with_staging_reset())
    stored = [table for table in catalog.tables if table.delta is not None and table.foreign is None]
    for table in stored:
        for keys in _keys(store, table.id):
            for chosen in store.together(keys):
                store.write([RowWrites(table.id, [keys[i] for i in chosen], lambda rows: rows, repeats=True)])
    failpoint("anew.logged")
    rebuilt = store.ends() if stored else {}
    checksums = store.checksums(start.positions)
    record = swap_record(store, lambda record: epochs.rebuild_from(record, start, checksums, rebuilt))
    failpoint("anew.swapped")
    return record


def _keys(store: Store, table: int) -> Iterator[list[bytes]]:
    """The keys of a table, as many as one transaction writes."""
    keys, size = list[bytes](), 0
    for key, row in scan_rows(store, table, b"", None):
        keys.append(key)
        size += len(row)
        if len(keys) == _ROWS or size > _BYTES:
            yield keys
            keys, size = [], 0
    if keys:
        yield keys
