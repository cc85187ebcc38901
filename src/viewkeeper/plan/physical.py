"""Physical plan: what an epoch runs, complete in itself.

In: nothing but this value (it is stored in the epoch record at begin, `epochs.md` R9). Out: nodes whose work is DuckDB
SQL text plus the layout of the records they write. Always: a re-run needs no catalog, no parser and no planner, and two
processes write the same JSON for the same plan.

Base images reach the SQL as Arrow relations whose columns are called `c0`, `c1`, … by the column's position in its table.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.model.schema import Column, TableId, TableSchema


@dataclass(frozen=True, slots=True)
class Shown:
    """One visible column of a view: where in the record its value stands."""

    column: Column
    part: str  # "key" or "row"
    index: int  # place in the node's `key` or `row`


@dataclass(frozen=True, slots=True)
class CopyNode:
    """σ, π and INDEX: one record for each base row that passes, under a key made of that row.

    `project` reads the relation `images` (columns `ord` BIGINT and the `c…` of `columns`) and returns `ord`, the key
    columns `k0…` and the row columns `v0…`, for the images that pass and whose expressions do not fail.
    """

    table: TableId
    source: TableId
    columns: tuple[int, ...]
    key: tuple[Column, ...]
    row: tuple[Column, ...]
    project: str


@dataclass(frozen=True, slots=True)
class FoldNode:
    """γ: one record for each group, holding exact accumulators and the values shown.

    `contribute` reads the relation `images` (the `c…` of `columns`) and returns the key columns `k0…` and the state
    columns `s0…` grouped by key, all as positive contributions; the caller runs it on after- and before-images and
    subtracts. `s0` is always the row count. `finish` reads the relation `states` (`s0…`) and returns the values `v0…`
    that are shown and not already a state column. A record's row is the states followed by those values. `always`:
    the record stays when its row count is 0 (aggregates without GROUP BY).
    """

    table: TableId
    source: TableId
    columns: tuple[int, ...]
    key: tuple[Column, ...]
    state: tuple[Column, ...]
    values: tuple[Column, ...]
    contribute: str
    finish: str
    always: bool

    @property
    def row(self) -> tuple[Column, ...]:
        return self.state + self.values


Node = CopyNode | FoldNode


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """All nodes of one epoch, and the base tables they read."""

    tables: tuple[TableSchema, ...]
    nodes: tuple[Node, ...]

    def table(self, table_id: TableId) -> TableSchema:
        return next(table for table in self.tables if table.id == table_id)
