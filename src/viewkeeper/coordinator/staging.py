"""Staging: brings the rows that foreign tables had before us into the log; views over them are unreadable until then.

In: the catalog and the epoch record. Out: rows copied to the log, some before each epoch, which reads them like changes.
Always: a view is filled when it has all rows that were there when their copying ended; see `Foreign.staged`.
"""

from __future__ import annotations

from functools import partial

from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.swaps import Held
from viewkeeper.failpoints import failpoint
from viewkeeper.model.positions import Positions
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store

_ROWS_AT_ONCE = 50_000  # some seconds, in which other views wait


def stage_tables(store: Store, held: Held, *, rows_max: int) -> None:
    """Copy about so many rows more of each table that needs it; the last ones are in the log up to its end by now."""
    most = min(rows_max, _ROWS_AT_ONCE)
    for table in held.catalog.tables:
        if table.foreign is not None and table.foreign.staged is None and store.stage(table, rows_max=most):
            failpoint("stage.ready")
            done = partial(Catalog.with_staged, table=table.id, staging=table.foreign.staging, ends=store.ends())
            held.swap_catalog(done)


def tables_staged(store: Store, catalog: Catalog, positions: Positions) -> frozenset[int]:
    """The foreign tables whose staged rows are all in a state at `positions`, as far as that is not known yet."""
    waiting = {
        table.id: dict(table.foreign.staged) for table in catalog.tables if table.foreign and table.foreign.staged
    }
    return frozenset(table for table, ends in waiting.items() if not store.has_changes(positions, ends))


def late_backfills(store: Store, catalog: Catalog, plan: PhysicalPlan, positions: Positions) -> frozenset[int]:
    """The backfills that lack rows of a foreign table in a state at `positions`."""
    pending = {table.id for table in catalog.tables if table.foreign and table.foreign.staged != ()}
    if not pending:
        return frozenset()
    lacking, bases = pending - tables_staged(store, catalog, positions), plan.bases
    return frozenset(node.backfill for node in plan.nodes if not lacking.isdisjoint(bases[node.table]))
