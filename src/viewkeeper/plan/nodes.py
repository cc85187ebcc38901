"""Nodes: the operators that an epoch runs to maintain views, each self-contained.

In: nothing but these values. Out: DuckDB SQL text plus the layout of the records that a node writes. Always: a node reads
base tables, or nodes before it; it is identified by its table, which no other node writes (`docs/epochs.md`, R6).

The delta rows of a source reach the SQL as Arrow relations with the columns `ord`, `sign` and `c0`, `c1`, … by their
positions in the source. Every source has a row key, and at any time one row under each key.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
class Moves:
    """A SELECT that only renames columns of the delta, and leaves out rows in which a column of `present` is NULL."""

    columns: tuple[tuple[str, str], ...]
    present: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of the plan: how a node reads the delta rows of a source.

    `rows` selects from the relation `delta` (the `c…` of `columns`) `ord`, `sign` and the node's columns. Where an
    expression can fail, it also selects `fails`, and then `aside` is the table that lists the keys (columns `key`) of rows
    that are set aside. An edge without `rows` has `moves` that do the same; one with neither passes the delta on as it is.
    """

    source: TableId
    columns: tuple[int, ...]
    key: tuple[Column, ...]
    rows: str | None
    moves: Moves | None
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
    """σ, π and INDEX: a record for each row that passes. Its edges return the key columns `k0…` and the row columns `v0…`."""

    edges: tuple[Edge, ...]
    key: tuple[Column, ...]
    row: tuple[Column, ...]

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Every table that the node writes, its own first."""
        return _tables(self.table, self.edges)


@dataclass(frozen=True, slots=True)
class Facts:
    """The parts of a group's record from a PRE-AGGREGATION: count, first and last value, exact sums (of DOUBLE by kind)."""

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
    """PRE-AGGREGATION: the distinct values of each group with their multiplicities, without NULLs. Entries of one type share
    a table. `adds`: for each sum of the facts, SQL of the unscaled number that a value `e0` adds to it.
    """

    table: TableId
    values: tuple[Column, ...]
    adds: tuple[str, ...]
    facts: Facts


@dataclass(frozen=True, slots=True)
class Term:
    """An expression over delta rows: its SQL, which columns `c…` that reads, and whether it can fail."""

    sql: str
    columns: tuple[int, ...]
    can_fail: bool

    @property
    def is_column(self) -> bool:
        return len(self.columns) == 1 and self.sql == f"c{self.columns[0]}"


@dataclass(frozen=True, slots=True)
class Given:
    """What a row adds to a state: the unscaled number of a term, where NULL is 0; 1 if there is no term, or, to a count, if
    the term has a value. It adds nothing unless its filter, another term, is true."""

    term: int | None
    is_count: bool
    filter: int | None


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a row contributes to a γ, by the indexes of `terms`: the group key, the states, the arguments of the exact sums
    of DOUBLE, and the values of the entries, with their filter. A row on which a term fails is set aside."""

    terms: tuple[Term, ...]
    keys: tuple[int, ...]
    states: tuple[Given, ...]
    arguments: tuple[int, ...]
    values: tuple[tuple[tuple[int, ...], int | None], ...]


@dataclass(frozen=True, slots=True)
class DoubleSum:
    """An exact sum over DOUBLEs: the number of the argument, and what is summed of it."""

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

    The rows of an edge that meet its `conditions` count; `each` is what such a row contributes. States are never NULL; `s0`
    is always the row count. `exact_sums` are those of DOUBLE. `alone`: its terms are evaluated apart from other nodes'.

    `finish` reads the columns `finish_reads` of the relation `states`: `s0…`, the facts of the entries, `p0…`, which is
    `computed` from these and from the exact sums `t0…`, and the key `k0…`. It returns the values `v0…` in the order of its
    input; with `having` also `shown`, and where a value can fail `fails`: such groups are listed in the table `degraded`. A
    group's record is the states, sums, entries' facts and values. With `having` the groups are in the table `groups`, and
    the view has a record of the values alone for each group that is shown. `always`: the group stays when its row count is
    0 (aggregates without GROUP BY).
    """

    edges: tuple[Edge, ...]
    conditions: tuple[tuple[Term, ...], ...]
    key: tuple[Column, ...]
    each: Contribution
    state: tuple[Column, ...]
    exact_sums: tuple[DoubleSum, ...]
    computed: tuple[Computed, ...]
    entries: tuple[Entries, ...]
    values: tuple[Column, ...]
    finish: str
    finish_reads: frozenset[str]
    having: bool
    always: bool
    groups: TableId | None
    degraded: TableId | None
    alone: bool = field(default=False, kw_only=True)

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


SIDE = Column("side", INT, nullable=False)


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join. Its edges return the join key `j0…`, the row key `k0…` and the columns kept, `v0…`.

    `places` are the positions of the `v…` in the join's output, `key_places` those of the `k…`. `key_copies` and
    `on_copies`: the positions of columns that are not stored again, each with its index in the row key or the join key. A
    side that is looked up, because its row key is in the join key, has no `key`. `preserved`: each of its rows is in the
    result, matched or not. Only a preserved side has NULLs in the join key.
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

    `on` is the join key, `kind` that of `algebra.relations.Join`, `residual` a further condition for a match, over the
    `c…` of the output. To know which rows have no match, a join that is not inner keeps the number of rows of each side
    under a join key, in the table `counts`, or, with a `residual`, the number of matches of each row of a preserved side,
    in the table `matches`. `tag_place`: the position of a column of the row key that shows which sides a row has (0: all,
    1: only the first, 2: only the second), where two rows without a partner could otherwise have one key.
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
        found: dict[int, tuple[str, Column]] = {}
        for letter, positions, columns in (("v", side.places, side.row), ("k", side.key_places, side.key)):
            pairs = zip(positions, columns, strict=True)
            found |= {position: (f"{letter}{i}", column) for i, (position, column) in enumerate(pairs)}
        found |= {position: (f"k{part}", side.key[part]) for position, part in side.key_copies}
        return found | {position: (f"o{part}", self.on[part]) for position, part in side.on_copies}

    @property
    def given_key(self) -> tuple[int, ...]:
        """The positions of the row key in the join's output."""
        tag = () if self.tag_place is None else (self.tag_place,)
        return (*tag, *(place for side in self.shown_sides for place in side.key_places))

    def side_of(self, edge: int) -> int:
        return [number for number, side in enumerate(self.sides) for _ in side.edges][edge]


@dataclass(frozen=True, slots=True)
class TopNode(StatefulNode):
    """ORDER BY … LIMIT: its table holds every row under (order, row key); it emits the first `limit` of them.

    Its edges return the order `o0…`, the row key `k0…` and the columns `v0…`. It emits the `v…` at `places`, and the rank
    from 1 as the row key at `rank_place`. `is_total`: the text's order leaves no two rows equal, so that every engine takes
    the same ones.
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
    """δ: a record for each row of a base table whose log has no before-images; it is not stored with the plan."""

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
    """A table of which the records that differ from their twins are corrected.

    `group` and `slots`, where not 0: the table is a PRE-AGGREGATION, with that group key and so many slots. Groups are
    compared, not blocks, which depend on history. `is_list`: it lists rows set aside, so only keys are compared.
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


# The records of these are all their output: readers see them, and new nodes are filled from them.
OutputNode = ProjectNode | AggregateNode
Node = OutputNode | JoinNode | TopNode
AppliedNode = Node | DeltaNode | RepairNode
NODE_KINDS: dict[str, type] = {"project": ProjectNode, "aggregate": AggregateNode, "join": JoinNode, "top": TopNode}


def _tables(own: TableId, edges: tuple[Edge, ...], *others: TableId | None) -> tuple[TableId, ...]:
    beside = [*others, *(edge.aside for edge in edges)]
    return (own, *(table for table in beside if table is not None))
