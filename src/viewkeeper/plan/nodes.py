"""Nodes: what an epoch runs to maintain views, each self-contained.

In: nothing but these values. Out: DuckDB SQL text plus the layout of the records that a node writes. Always: a node
reads base tables, or the output of nodes before it; it is identified by its table, which no other node writes
(`docs/epochs.md`, R6).

The delta rows of a source reach the SQL as Arrow relations with the columns `ord`, `sign` and `c0`, `c1`, … by the
position of a column in its table, or in a node's output. Every source has a row key, and at any time one row under each
key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, BINARY, INT


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """One column of a record: where in it the value is."""

    column: Column
    part: str  # "key" or "row"
    index: int  # index in the node's `key` or `row`

    def to_json(self) -> list[object]:
        return [self.column.to_json(), self.part, self.index]

    @staticmethod
    def from_json(value: list) -> OutputColumn:
        return OutputColumn(Column.from_json(value[0]), value[1], value[2])


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of the plan: what the delta rows of a source mean for a node.

    `rows` reads the relation `delta` (the `c…` of `columns`) and returns `ord`, `sign` and what the node asks for, of
    the delta rows that pass. Where an expression can fail, it also returns `fails`, and then `aside` is the table that
    lists the keys (columns `key`) of the source's rows that are set aside.
    """

    source: TableId
    columns: tuple[int, ...]
    key: tuple[Column, ...]
    rows: str
    aside: TableId | None


@dataclass(frozen=True, slots=True)
class StatefulNode:
    """A node with records, in a table of its own. `backfill` is that of its stored node, once it has one."""

    table: TableId
    backfill: TableId = field(default=TableId(0), kw_only=True)

    @property
    def gives(self) -> TableId:
        """The source id that its readers use."""
        return self.table


@dataclass(frozen=True, slots=True)
class ProjectNode(StatefulNode):
    """σ, π and INDEX: one record for each row that passes, under a key made of that row.

    Its edges return the key columns `k0…` and the row columns `v0…`.
    """

    edges: tuple[Edge, ...]
    key: tuple[Column, ...]
    row: tuple[Column, ...]

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Every table that the node writes, its own first."""
        return _tables(self.table, self.edges)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the group's record keeps of a PRE-AGGREGATION: how many entries there are, the first value, the last one, and
    exact sums over the values: of integers, and of DOUBLE by their kind."""

    counted: bool = False
    first: bool = False
    last: bool = False
    sums: tuple[Column, ...] = ()
    exact_sums: tuple[str, ...] = ()

    @property
    def ends(self) -> tuple[bool, ...]:
        """False for the first value, True for the last."""
        return tuple(is_last for is_last, is_kept in ((False, self.first), (True, self.last)) if is_kept)

    def named(self, number: int, values: tuple[Column, ...]) -> dict[str, Column]:
        """The columns, by the names that they have in `states`, of the PRE-AGGREGATION over `values` at `number`."""
        text, type_ = ", ".join(column.name for column in values), values[0].type
        named = {}
        if self.counted:
            named[f"d{number}"] = Column(f"count(distinct {text})", BIGINT, nullable=False)
        if self.first:
            named[f"lo{number}"] = Column(f"min({text})", type_, nullable=True)
        if self.last:
            named[f"hi{number}"] = Column(f"max({text})", type_, nullable=True)
        named |= {f"x{number}_{place}": column for place, column in enumerate(self.sums)}
        exact_sums = [Column(f"{kind}(distinct {text})", BINARY, nullable=False) for kind in self.exact_sums]
        return named | {f"y{number}_{place}": column for place, column in enumerate(exact_sums)}


@dataclass(frozen=True, slots=True)
class Entries:
    """PRE-AGGREGATION: the distinct values of each group with their multiplicities. Entries of one type share a table, and
    stand one after the other.

    `contribute` reads the relation `rows` and returns `k0…`, the values `e0…` (none of them NULL) and by how much their
    number changes, `n`, which is not 0. `add` reads the relation `changed`: of entries that came into being (`sign` 1) or
    went (−1) the place of their group, `owner`, and their values `e0…`. It returns by `owner` how the sums of the facts
    change, `s0…`.
    """

    table: TableId
    values: tuple[Column, ...]
    contribute: str
    add: str
    facts: Facts


@dataclass(frozen=True, slots=True)
class Direct:
    """What each delta row contributes to a γ, as expressions over the delta's columns.

    So the expressions of all nodes that read the same delta can be one statement, in which each stands once. `passes`: the
    row counts at all, as every row does where there is no SQL of it; `keys` are its group key. A state is a number, 1 where
    there is no SQL of it, and the index in `filters` of the one that must be true for it, if any; `is_whole`: no number has
    more than 64 bits, but sums of another γ, and NULL is 0. `values` are those of each of the entries, with such an index;
    `arguments` those of exact sums, by their place among `a0…`. `risky` are the expressions that can fail: a delta in which
    one does must be read by the edge.
    """

    passes: str | None
    keys: tuple[str, ...]
    filters: tuple[str, ...]
    states: tuple[tuple[str | None, int | None], ...]
    arguments: tuple[tuple[int, str], ...]
    values: tuple[tuple[tuple[str, ...], int | None], ...]
    risky: tuple[str, ...]
    is_whole: bool

    @property
    def expressions(self) -> tuple[str, ...]:
        values = (sql for sqls, _ in self.values for sql in sqls)
        states, arguments = (sql for sql, _ in self.states if sql is not None), (sql for _, sql in self.arguments)
        passes = () if self.passes is None else (self.passes,)
        return (*passes, *self.keys, *self.filters, *states, *arguments, *values)


@dataclass(frozen=True, slots=True)
class DoubleSum:
    """An exact sum over DOUBLEs: the argument's place among `a0…`, and what is summed of it."""

    argument: int
    kind: str


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that SQL cannot compute: a function of `operators.udfs`, over columns of `states` and whole numbers."""

    function: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AggregateNode(StatefulNode):
    """γ: one record for each group, holding exact accumulators and the values shown.

    Its edges return the group key `k0…` and the aggregates' arguments `a0…`. `contribute` reads such `rows` and returns
    `k0…` and the state columns `s0…` grouped by key, all as positive contributions; the caller runs it on what came and on
    what went, and subtracts. Without GROUP BY it returns exactly one row, of zeros when no delta row passes. States are never
    NULL; `s0` is always the row count. `contribute_each` returns the same for each of `rows` by itself: `sign`, `k0…`,
    `s0…`, the arguments `a…` of `exact_sums`, and the values of each of the entries, `e0_0…`. `exact_sums` are those
    of DOUBLE that are kept. `direct`: the same over the delta itself, where that can be.

    `finish` reads the relation `states`: `s0…`, the facts of the entries as these name them, then `p0…`, what is `computed`
    from all of these and from the exact sums `t0…`, and the record's `k0…`; only those in `finish_reads`. It returns the
    values `v0…` in the order of its input; with `having` also `shown`, and where a value can fail `fails`: such groups are
    listed in the table `degraded`. A group's record is the states, sums, entries' facts and values. With `having` the groups
    stand in the table `groups`, and the view has a record of the values alone for each group that is shown. `always`: the
    group stays when its row count is 0 (aggregates without GROUP BY).
    """

    edges: tuple[Edge, ...]
    key: tuple[Column, ...]
    contribute: str
    contribute_each: str
    state: tuple[Column, ...]
    exact_sums: tuple[DoubleSum, ...]
    computed: tuple[Computed, ...]
    entries: tuple[Entries, ...]
    values: tuple[Column, ...]
    finish: str
    having: bool
    always: bool
    groups: TableId | None
    degraded: TableId | None
    direct: Direct | None

    @property
    def group_table(self) -> TableId:
        return self.table if self.groups is None else self.groups

    @property
    def group_row(self) -> tuple[Column, ...]:
        """What a group's record holds."""
        sums = tuple(Column(f"{one.kind}(a{one.argument})", BINARY, nullable=False) for one in self.exact_sums)
        return self.state + sums + tuple(self.facts.values()) + (() if self.having else self.values)

    @property
    def slots(self) -> dict[TableId, list[int]]:
        """The entries that share a table, by their numbers."""
        found: dict[TableId, list[int]] = {}
        for number, one in enumerate(self.entries):
            found.setdefault(one.table, []).append(number)
        return found

    @property
    def facts(self) -> dict[str, Column]:
        """What a group's record keeps of all its entries, by the names in `states`."""
        return {k: v for number, one in enumerate(self.entries) for k, v in one.facts.named(number, one.values).items()}

    @property
    def row(self) -> tuple[Column, ...]:
        """What a record of the node's table holds."""
        return self.values if self.having else self.group_row

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Every table that the node writes, its own first."""
        return _tables(self.table, self.edges, self.groups, self.degraded, *self.slots)

    @property
    def finish_reads(self) -> frozenset[str]:
        """The columns of `states` that `finish` names, and perhaps more."""
        return _words(self.finish)


SIDE = Column("side", INT, nullable=False)


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join. Its edges return the join key `j0…`, the row key `k0…` and the columns kept, `v0…`.

    `places` are the positions of the `v…` in the join's output, `key_places` those of the `k…`. A column that is in the
    entry's key is not stored again: `key_copies` and `on_copies` are the positions of such columns, each with its index
    in the row key or in the join key. A side that is looked up, because its row key is in the join key, has no `key`.
    `preserved`: each of its rows is in the result, matched or not. Only a preserved side has NULLs in the join key.
    """

    edges: tuple[Edge, ...]
    key: tuple[Column, ...]
    row: tuple[Column, ...]
    places: tuple[int, ...]
    key_places: tuple[int, ...]
    key_copies: tuple[tuple[int, int], ...]
    on_copies: tuple[tuple[int, int], ...]
    preserved: bool


@dataclass(frozen=True, slots=True)
class JoinNode(StatefulNode):
    """⋈: its table is the REVERSE-JOIN, a record (join key, side, row key) → row for each row of each side; a side that is
    looked up has no row key there, nor in the row key of the output.

    `on` are the columns of the join key. `kind` is that of `algebra.relations.Join`. `residual` is a further condition for
    a match, over the `c…` of the join's output. To know which rows have no match, a join that is not inner keeps the
    number of rows of each side under a join key, in the table `counts`, or, with a `residual`, the number of matches of
    each row of a preserved side, in the table `matches`. `tag_place`: the position of a column of the row key that
    shows which sides a row has (0: all, 1: only the first, 2: only the second), where two rows without a partner could
    otherwise share a key.
    """

    kind: str
    on: tuple[Column, ...]
    sides: tuple[Side, ...]
    residual: str | None
    counts: TableId | None
    matches: TableId | None
    tag_place: int | None

    @property
    def edges(self) -> tuple[Edge, ...]:
        return tuple(edge for side in self.sides for edge in side.edges)

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Every table that the node writes, its own first."""
        return _tables(self.table, self.edges, self.counts, self.matches)

    @property
    def shown_sides(self) -> tuple[Side, ...]:
        """The sides whose columns are in the result."""
        return self.sides[:1] if self.kind in ("semi", "anti") else self.sides

    @property
    def given(self) -> dict[int, Column]:
        """The join's output columns, by position."""
        columns = {
            place: column
            for side in range(len(self.shown_sides))
            for place, (_, column) in self.columns_from_side(side).items()
        }
        return columns if self.tag_place is None else columns | {self.tag_place: SIDE}

    def columns_from_side(self, number: int) -> dict[int, tuple[str, Column]]:
        """A side's output columns, by position: name in its relation (`v…`, `k…`, or `o…` of the join key) and type."""
        side = self.sides[number]
        told = {place: (f"v{i}", column) for i, (place, column) in enumerate(zip(side.places, side.row, strict=True))}
        told |= {
            place: (f"k{i}", column) for i, (place, column) in enumerate(zip(side.key_places, side.key, strict=True))
        }
        told |= {place: (f"k{part}", side.key[part]) for place, part in side.key_copies}
        return told | {place: (f"o{part}", self.on[part]) for place, part in side.on_copies}

    @property
    def given_key(self) -> tuple[int, ...]:
        """The positions of the row key in the join's output."""
        tag = () if self.tag_place is None else (self.tag_place,)
        return (*tag, *(place for side in self.shown_sides for place in side.key_places))

    def side_of(self, edge: int) -> int:
        """The side that the edge at `edge` belongs to."""
        ends = [len(side.edges) for side in self.sides]
        return next(number for number in range(len(ends)) if edge < sum(ends[: number + 1]))


@dataclass(frozen=True, slots=True)
class TopNode(StatefulNode):
    """ORDER BY … LIMIT: its table holds every row under (order, row key); it emits the first `limit` of them.

    Its edges return the order `o0…`, the row key `k0…` and the columns `v0…`. `descending` and `nulls_first` are those
    of each part of the order. It emits the `v…` at `places`, and the rank from 1 as the row key at `rank_place`.
    `is_total`: the text's own order leaves no two rows equal, so that another engine takes the same ones.
    """

    edges: tuple[Edge, ...]
    order: tuple[Column, ...]
    descending: tuple[bool, ...]
    nulls_first: tuple[bool, ...]
    key: tuple[Column, ...]
    row: tuple[Column, ...]
    places: tuple[int, ...]
    rank_place: int
    limit: int
    is_total: bool

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Every table that the node writes, its own first."""
        return _tables(self.table, self.edges)


@dataclass(frozen=True, slots=True)
class DeltaNode:
    """δ: a record for each row of a base table whose log has no before-images.

    A plan has one for each such table; it is not stored with the plan, because the table determines it.
    """

    table: TableId
    source: TableSchema

    @property
    def gives(self) -> TableId:
        """The source id that its readers use: the base table."""
        return self.source.id


@dataclass(frozen=True, slots=True)
class CellDeltaNode(DeltaNode):
    """δ of a foreign table: a record for each row of which a cell was ever written, with the stamps of its cells."""


@dataclass(frozen=True, slots=True)
class RepairNode:
    """A table whose records are put right: those that differ from their twins, and no others.

    `group` and `slots`, where not 0: the table is a PRE-AGGREGATION, with that group key and so many slots. How its
    values are divided into blocks depends on their history, so groups are compared, not blocks. `is_list`: it lists rows
    set aside, some of them dropped, so only keys are compared.
    """

    table: TableId
    twin: TableId
    group: tuple[Column, ...] = ()
    slots: int = 0
    is_list: bool = False

    @property
    def gives(self) -> TableId:
        """Nothing reads it in a repair."""
        return self.table


Node = ProjectNode | AggregateNode | JoinNode | TopNode
AppliedNode = Node | DeltaNode | RepairNode
NODE_KINDS: dict[str, type] = {"project": ProjectNode, "aggregate": AggregateNode, "join": JoinNode, "top": TopNode}


@lru_cache(maxsize=1024)
def _words(sql: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", sql))


def _tables(own: TableId, edges: tuple[Edge, ...], *others: TableId | None) -> tuple[TableId, ...]:
    beside = [*others, *(edge.aside for edge in edges)]
    return (own, *(table for table in beside if table is not None))
