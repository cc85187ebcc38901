"""Physical plan: what an epoch runs, complete in itself.

In: nothing but this value (it is stored in the epoch record at begin, `epochs.md` R9). Out: nodes whose work is DuckDB
SQL text plus the layout of the records they write. Always: a re-run needs no catalog, no parser and no planner, and two
processes write the same JSON for the same plan.

Base images reach the SQL as Arrow relations whose columns are called `c0`, `c1`, … by the column's position in its
table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from viewkeeper.model.schema import Column, TableId, TableSchema


@dataclass(frozen=True, slots=True)
class Shown:
    """One visible column of a view: where in the record its value stands."""

    column: Column
    part: str  # "key" or "row"
    index: int  # place in the node's `key` or `row`

    def to_json(self) -> list[object]:
        return [self.column.to_json(), self.part, self.index]

    @staticmethod
    def from_json(value: list) -> Shown:
        return Shown(Column.from_json(value[0]), value[1], value[2])


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

    def to_json(self) -> dict[str, object]:
        return {
            "node": "copy",
            "table": self.table,
            "source": self.source,
            "columns": list(self.columns),
            "key": _columns_to_json(self.key),
            "row": _columns_to_json(self.row),
            "project": self.project,
        }

    @staticmethod
    def from_json(value: dict) -> CopyNode:
        return CopyNode(
            TableId(value["table"]),
            TableId(value["source"]),
            tuple(value["columns"]),
            _columns_from_json(value["key"]),
            _columns_from_json(value["row"]),
            value["project"],
        )


@dataclass(frozen=True, slots=True)
class FoldNode:
    """γ: one record for each group, holding exact accumulators and the values shown.

    `contribute` reads the relation `images` (`ord` and the `c…` of `columns`) and returns the key columns `k0…` and the state
    columns `s0…` grouped by key, all as positive contributions; the caller runs it on after- and before-images and
    subtracts. Without GROUP BY it returns exactly one row, of zeros when no image passes. States are never NULL. `s0`
    is always the row count. `finish` reads the relation `states` (`s0…`, with the record's `k0…` when
    `finish_reads_key`) and returns the values `v0…` that are shown and not already a state column, in the order of
    its input. A record's row is the states followed by those values. `always`: the record stays when its row count is
    0 (aggregates without GROUP BY).
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

    @property
    def finish_reads_key(self) -> bool:
        """Whether `finish` names a `k…`; most do not, and then `states` need not carry them."""
        return any(re.search(rf"\bk{place}\b", self.finish) for place in range(len(self.key)))

    def to_json(self) -> dict[str, object]:
        return {
            "node": "fold",
            "table": self.table,
            "source": self.source,
            "columns": list(self.columns),
            "key": _columns_to_json(self.key),
            "state": _columns_to_json(self.state),
            "values": _columns_to_json(self.values),
            "contribute": self.contribute,
            "finish": self.finish,
            "always": self.always,
        }

    @staticmethod
    def from_json(value: dict) -> FoldNode:
        return FoldNode(
            TableId(value["table"]),
            TableId(value["source"]),
            tuple(value["columns"]),
            _columns_from_json(value["key"]),
            _columns_from_json(value["state"]),
            _columns_from_json(value["values"]),
            value["contribute"],
            value["finish"],
            value["always"],
        )


Node = CopyNode | FoldNode


def node_from_json(value: dict) -> Node:
    return CopyNode.from_json(value) if value["node"] == "copy" else FoldNode.from_json(value)


def _columns_to_json(columns: tuple[Column, ...]) -> list[list[object]]:
    return [column.to_json() for column in columns]


def _columns_from_json(value: list) -> tuple[Column, ...]:
    return tuple(Column.from_json(column) for column in value)


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """All nodes of one epoch, and the base tables they read."""

    tables: tuple[TableSchema, ...]
    nodes: tuple[Node, ...]

    def table(self, table_id: TableId) -> TableSchema:
        return next(table for table in self.tables if table.id == table_id)

    def to_json(self) -> dict[str, object]:
        return {
            "tables": [table.to_json() for table in self.tables],
            "nodes": [node.to_json() for node in self.nodes],
        }

    @staticmethod
    def from_json(value: dict) -> PhysicalPlan:
        tables = tuple(TableSchema.from_json(table) for table in value["tables"])
        return PhysicalPlan(tables, tuple(node_from_json(node) for node in value["nodes"]))
