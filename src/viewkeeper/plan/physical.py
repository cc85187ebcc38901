"""Physical plan: what an epoch runs, complete in itself.

In: nothing but this value (it is stored in the epoch record at begin, `epochs.md` R9). Out: nodes whose work is DuckDB
SQL text plus the layout of the records they write. Always: a re-run needs no catalog, no parser and no planner, and two
processes write the same JSON for the same plan.

Base images reach the SQL as Arrow relations whose columns are called `c0`, `c1`, … by the column's position in its
table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from viewkeeper.model.fills import Chunk
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, BINARY


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

    `project` reads the relation `images` (columns `ord`, `sign` and the `c…` of `columns`) and returns `ord`, `sign`, the key
    columns `k0…` and the row columns `v0…`, for the images that pass. Where an expression can fail, it also returns `fails`
    for each of them, and `aside` is the table that lists the base keys of rows set aside.
    """

    table: TableId
    source: TableId
    columns: tuple[int, ...]
    key: tuple[Column, ...]
    row: tuple[Column, ...]
    project: str
    aside: TableId | None

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Every table that the node writes, the view's own first."""
        return (self.table,) if self.aside is None else (self.table, self.aside)

    def to_json(self) -> dict[str, object]:
        return {"node": "copy"} | _to_json(self)

    @staticmethod
    def from_json(value: dict) -> CopyNode:
        return CopyNode(
            **_plain(value) | {"key": _columns_from_json(value["key"]), "row": _columns_from_json(value["row"])}
        )


@dataclass(frozen=True, slots=True)
class Entries:
    """PRE-AGGREGATION: a record (group key, values) → multiplicity for each distinct value, in a table of its own.

    `contribute` reads the relation `rows` and returns `k0…`, the values `e0…` (none of them NULL) and by how much their
    number changes, `n`, which is not 0. The group's record keeps what it is asked for: how many entries there are, the
    first value, the last one.
    """

    table: TableId
    values: tuple[Column, ...]
    contribute: str
    counted: bool
    first: bool
    last: bool

    @property
    def kept(self) -> tuple[Column, ...]:
        """The columns of the group's record that come from these entries."""
        text = ", ".join(column.name for column in self.values)
        counted = (Column(f"count(distinct {text})", BIGINT, nullable=False),) if self.counted else ()
        ends = [name for name, wanted in (("min", self.first), ("max", self.last)) if wanted]
        return counted + tuple(Column(f"{name}({text})", self.values[0].type, nullable=True) for name in ends)

    def to_json(self) -> dict[str, object]:
        return _to_json(self)

    @staticmethod
    def from_json(value: dict) -> Entries:
        return Entries(**value | {"values": _columns_from_json(value["values"])})


@dataclass(frozen=True, slots=True)
class Rollup:
    """How a γ can do with counted rows in place of images, which several views then share.

    Counted rows are images grouped by the columns of `grain`, which alone decide what passes, where it belongs and whether
    it fails: `ord` and `sign` (never NULL, without meaning), the `c…` of the grain, `n` images, and for each column of
    `summed` how many of its values are there, `n…`, and their sum, `t…`. `contribute` reads them as `images` and returns
    what the node's own `contribute` would; where an expression can fail also `failed`, whether one did in a group.
    """

    grain: tuple[int, ...]
    summed: tuple[int, ...]
    contribute: str

    def to_json(self) -> dict[str, object]:
        return _to_json(self)

    @staticmethod
    def from_json(value: dict) -> Rollup:
        return Rollup(tuple(value["grain"]), tuple(value["summed"]), value["contribute"])


@dataclass(frozen=True, slots=True)
class FoldNode:
    """γ: one record for each group, holding exact accumulators and the values shown.

    `rows` reads the relation `images` (`ord`, `sign` and the `c…` of `columns`) and returns `ord`, `sign`, the group key
    `k0…` and the aggregates' arguments `a0…` of the images that pass; where an expression can fail, also `fails`, and
    then `aside` is the table of the base keys set aside. `contribute` reads `rows` and returns `k0…` and the state
    columns `s0…` grouped by key, all as positive contributions; the caller runs it on what came and on what went, and
    subtracts. Without GROUP BY it returns exactly one row, of zeros when no image passes. States are never NULL; `s0` is
    always the row count.
    `doubles` are the arguments (places among `a0…`) of which an exact sum of DOUBLE is kept. `rollup`: the same from
    counted rows, where that can be.

    `finish` reads the relation `states`: `s0…`, the rounded sums of DOUBLE `t0…`, of the entries `d0…` (how many), `lo0…`
    and `hi0…`, with the record's `k0…` when `finish_reads_key`. It returns the values `v0…` in the order of its input;
    with `having` also `shown`, and where a value can fail `fails`: such groups are listed in the table `degraded`. A
    group's record is the states, sums, entries' facts and values. With `having` the groups stand in the table `groups`,
    and the view has a record of the values alone for each group that is shown. `always`: the group stays when its row
    count is 0 (aggregates without GROUP BY).
    """

    table: TableId
    source: TableId
    columns: tuple[int, ...]
    key: tuple[Column, ...]
    rows: str
    contribute: str
    state: tuple[Column, ...]
    doubles: tuple[int, ...]
    entries: tuple[Entries, ...]
    values: tuple[Column, ...]
    finish: str
    having: bool
    always: bool
    groups: TableId | None
    aside: TableId | None
    degraded: TableId | None
    rollup: Rollup | None

    @property
    def group_table(self) -> TableId:
        return self.table if self.groups is None else self.groups

    @property
    def group_row(self) -> tuple[Column, ...]:
        """What a group's record holds."""
        sums = tuple(Column(f"sum(a{argument})", BINARY, nullable=False) for argument in self.doubles)
        return self.state + sums + self.kept + (() if self.having else self.values)

    @property
    def kept(self) -> tuple[Column, ...]:
        """What a group's record keeps of all its entries."""
        return tuple(column for entries in self.entries for column in entries.kept)

    @property
    def row(self) -> tuple[Column, ...]:
        """What a record of the view holds."""
        return self.values if self.having else self.group_row

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Every table that the node writes, the view's own first."""
        others = [self.groups, self.aside, self.degraded, *(entries.table for entries in self.entries)]
        return (self.table, *(table for table in others if table is not None))

    @property
    def finish_reads_key(self) -> bool:
        """Whether `finish` names a `k…`; most do not, and then `states` need not carry them."""
        return any(re.search(rf"\bk{place}\b", self.finish) for place in range(len(self.key)))

    def to_json(self) -> dict[str, object]:
        return {"node": "fold"} | _to_json(self)

    @staticmethod
    def from_json(value: dict) -> FoldNode:
        columns = {name: _columns_from_json(value[name]) for name in ("key", "state", "values")}
        entries = tuple(Entries.from_json(item) for item in value["entries"])
        rollup = Rollup.from_json(value["rollup"]) if value["rollup"] else None
        parts = {"doubles": tuple(value["doubles"]), "entries": entries, "rollup": rollup}
        return FoldNode(**_plain(value) | columns | parts)


Node = CopyNode | FoldNode


def node_from_json(value: dict) -> Node:
    return CopyNode.from_json(value) if value["node"] == "copy" else FoldNode.from_json(value)


def _to_json(node: CopyNode | FoldNode | Entries | Rollup) -> dict[str, object]:
    return {field.name: _value_to_json(getattr(node, field.name)) for field in fields(node)}


def _value_to_json(value: object) -> object:
    if isinstance(value, tuple):
        return [_value_to_json(item) for item in value]
    return value.to_json() if isinstance(value, (Column, Entries, Rollup)) else value


def _plain(value: dict) -> dict:
    return {name: part for name, part in value.items() if name != "node"} | {"columns": tuple(value["columns"])}


def _columns_from_json(value: list) -> tuple[Column, ...]:
    return tuple(Column.from_json(column) for column in value)


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """All nodes of one epoch, and the base tables they read.

    δ needs no node: a table that has a DELTA goes through it first, the log of any other says both images of a row.
    """

    tables: tuple[TableSchema, ...]
    nodes: tuple[Node, ...]

    @property
    def deltas(self) -> tuple[TableSchema, ...]:
        """The tables that go through a stored DELTA."""
        return tuple(table for table in self.tables if table.delta is not None)

    def reads_log(self, chunks: tuple[Chunk, ...]) -> bool:
        """Whether a change can matter: not when all views are only about to be filled, and no DELTA is kept."""
        waiting = {table for chunk in chunks if chunk.opens for table in chunk.tables}
        return bool(self.deltas) or any(node.table not in waiting for node in self.nodes)

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
