"""Row flows: which rows reach a node, and which changes of them an epoch brings.

In: relations, the changes of base tables in an epoch, and nodes that are filled. Out: the conditions on each edge, the base
tables that can change a column, the changes that are left after a σ, the cost of a table with a record for each row;
statistics learned from filled nodes. Always: an update is taken to change every column of its row that is not in the key;
numbers are rates, not whole numbers, and none is negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import Call, Expression, columns_of, conjuncts, operands
from viewkeeper.algebra.relations import (
    Aggregation,
    Index,
    Join,
    Project,
    Relation,
    RowsOfGroups,
    Scan,
    Select,
    Top,
    Union,
    inputs_of,
    starts_of,
    tables_of,
    walk_relations,
)
from viewkeeper.algebra.rewriting import over_columns
from viewkeeper.algebra.row_key import looked_up
from viewkeeper.model.work_stats import Kinds
from viewkeeper.plan.cost.costs import TableCost
from viewkeeper.plan.cost.statistics import Statistics, among_which, distinct, selectivity
from viewkeeper.plan.nodes import AggregateNode, JoinNode, Node

Tables = frozenset[int]
NONE: Tables = frozenset()


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a σ, and the base tables whose updates can change whether a row passes."""

    expression: Expression
    changed_by: Tables


@dataclass(frozen=True, slots=True)
class Path:
    """The operators between a node and a source. `is_direct`: no π is below a condition; `is_projected`: there is a π."""

    conditions: tuple[Condition, ...] = ()
    is_direct: bool = True
    is_projected: bool = False

    @property
    def signature(self) -> tuple[str, ...] | None:
        """The conditions, to be compared with those of other edges over the same source; None if they cannot be."""
        return tuple(sorted(spell(one.expression) for one in self.conditions)) if self.is_direct else None


def paths_of(relation: Relation) -> tuple[tuple[Relation, tuple[Path, ...]], ...]:
    """Each input of a node that keeps `relation`, with the paths to its sources in the order of the node's edges."""
    match relation:
        case Join(sides=sides):
            return tuple((side, tuple(_paths(side))) for side in sides)
        case Aggregation(input=below) | Top(input=below) | Index(input=below):
            return ((below, tuple(_paths(below))),)
    return ((relation, tuple(_paths(relation))),)


def _paths(relation: Relation) -> Iterable[Path]:
    match relation:
        case Select(input=below, predicate=predicate):
            plain = over_columns(predicate, below)
            found = tuple(Condition(part, changed_by(below, part)) for part in conjuncts(plain))
            return [
                Path((*one.conditions, *found), one.is_direct and not one.is_projected, one.is_projected)
                for one in _paths(below)
            ]
        case Project(input=below):
            return [replace(one, is_projected=True) for one in _paths(below)]
        case Union(inputs=inputs):
            return [one for part in inputs for one in _paths(part)]
    return [Path()]


def changed_by(relation: Relation, *expressions: Expression) -> Tables:
    """The base tables whose updates can change one of the expressions over a row of `relation` that stays."""
    plain = [over_columns(one, relation) for one in expressions]
    return NONE.union(*(_column_changed_by(relation, position) for position in columns_of(*plain)))


def _column_changed_by(relation: Relation, position: int) -> Tables:
    match relation:
        case Scan(table=table):
            return NONE if table.columns[position].name in table.key else frozenset((table.id,))
        case Project(input=below, outputs=outputs):
            return changed_by(below, outputs[position].expression)
        case Aggregation(grouping=grouping):
            return NONE if position < len(grouping.groups) else _bases(relation)
        case Join(sides=sides):
            number, lookups = sum(start <= position for start in starts_of(sides)) - 1, looked_up(relation)
            found = _column_changed_by(sides[number], position - starts_of(sides)[number])
            if number in lookups:  # a row that refers to another partner stays
                others = [index for index in range(len(sides)) if index not in lookups]
                found = found.union(*(changed_by(sides[index], *relation.keys[index]) for index in others))
            return found
        case Union(inputs=inputs):
            return NONE.union(*(_column_changed_by(one, position) for one in inputs))
        case Top():
            return _bases(relation)
        case RowsOfGroups(rows=rows):
            return _column_changed_by(rows, position)
    return _column_changed_by(inputs_of(relation)[0], position)


def _bases(relation: Relation) -> Tables:
    return frozenset(table.id for table in tables_of(relation))


Flow = dict[int, Kinds]  # by the base table whose changes they come from


def sum_of(flow: Flow) -> Kinds:
    return reduce(Kinds.plus, flow.values(), Kinds())


def sum_flows(flows: Iterable[Flow]) -> Flow:
    found: Flow = {}
    for flow in flows:
        for base, kinds in flow.items():
            found[base] = found.get(base, Kinds()).plus(kinds)
    return found


def moved_by(flow: Flow, tables: Tables) -> Flow:
    """With the updates of these tables as rows that go and others that come: they change the key."""
    return {base: kinds.moved() if base in tables else kinds for base, kinds in flow.items()}


def passing(flow: Flow, path: Path, share: float) -> Flow:
    """The changes of rows that pass the conditions of an edge, which a share of all rows does."""
    return {base: pass_share(kinds, share, drawn_share(path, base, share)) for base, kinds in flow.items()}


def pass_share(kinds: Kinds, share: float, anew: float) -> Kinds:
    """The changes of rows that pass; `anew`: the share that passes again after an update, of those that did before."""
    crosses, stays = kinds.updates * share * (1.0 - anew), kinds.updates * share * anew
    return Kinds(kinds.inserts * share + crosses, stays, kinds.deletes * share + crosses)


def drawn_share(path: Path, base: int, share: float) -> float:
    """The share of rows that pass the conditions that an update of `base` decides anew."""
    whole = drawn = 1.0
    for one in path.conditions:
        part = min(1 - 1e-9, max(1e-9, selectivity(one.expression)))
        whole *= part
        drawn *= part if base in one.changed_by else 1.0
    if drawn == 1.0 or not 0.0 < share < 1.0:
        return 1.0
    return share ** (math.log(drawn) / math.log(whole))


def kept(kinds: Kinds, rows: float, key: float, row: float) -> TableCost:
    """Changes of rows that each have a record: rows that come have new ones, the others are met once."""
    picks = kinds.updates + kinds.deletes
    share = distinct(picks, rows) / picks if picks else 0.0
    return written(Kinds(kinds.inserts, kinds.updates * share, kinds.deletes * share), rows, key, row)


def written(kinds: Kinds, records: float, key: float, row: float) -> TableCost:
    """Each record is read, then written; of one that is deleted only the key."""
    size = kinds.total * key + (kinds.inserts + kinds.updates) * row
    return TableCost(kinds.total, 0.0, kinds.total, size, records, key + row)


@dataclass(frozen=True, slots=True)
class PlannedNode:
    node: Node
    relation: Relation


def names_of_groups(node: AggregateNode, relation: Aggregation, paths: Sequence[Path]) -> Iterator[tuple]:
    """Names that γ of equal groups share: of the rows of one source, and of those of some base tables."""
    groups = tuple(map(spell, relation.grouping.groups))
    if len(paths) == 1 and not paths[0].is_projected:
        yield node.edges[0].source, groups
    rows = relation.input.rows if isinstance(relation.input, RowsOfGroups) else relation.input
    parts = list(walk_relations(rows))
    if all(isinstance(part, Scan | Select | Join) for part in parts):
        yield tuple(part.table.id for part in parts if isinstance(part, Scan)), groups


class Learned:
    """Statistics from filled nodes, for others: shares of rows that pass conditions, numbers of groups, pairs of joins."""

    def __init__(self, nodes: Sequence[PlannedNode], known: Statistics, rows: Mapping[int, float]) -> None:
        self.shares: dict[tuple, float] = {}
        self.groups: dict[tuple, float] = {}
        self.pairs: dict[int, float] = {}
        joins = {planned.node.table for planned in nodes if isinstance(planned.node, JoinNode)}
        for node, relation in ((one.node, one.relation) for one in nodes if one.node.table in known.records):
            if isinstance(relation, Aggregation):
                continue
            sources = [edge.source for edge in node.edges]
            found = list(zip(sources, (path for _, paths in paths_of(relation) for path in paths), strict=True))
            source, path = found[0]
            if source in joins and not path.conditions:
                self.pairs[source] = known.records[node.table]
            else:
                self._learn_share(found, known.records[node.table], rows)
        for node, relation in ((one.node, one.relation) for one in nodes):
            match node, relation:
                case AggregateNode(group_table=table), Aggregation() if table in known.records:
                    self._learn_groups(node, relation, known, rows)

    def share(self, source: int, path: Path) -> float:
        """The selectivity of an edge's conditions, ψ of equation 8."""
        if path.signature is None:
            return math.prod(selectivity(one.expression) for one in path.conditions)
        known = self.shares.get((source, *path.signature))
        return math.prod(self._share_of(source, one.expression) for one in path.conditions) if known is None else known

    def _share_of(self, source: int, condition: Expression) -> float:
        """Of a disjunction as its parts say, which other nodes may have as their conditions."""
        parts = tuple(sorted(map(spell, conjuncts(condition))))
        if (source, *parts) in self.shares:
            return self.shares[source, *parts]
        if isinstance(condition, Call) and condition.name == "or":
            return 1.0 - math.prod(1.0 - self._share_of(source, part) for part in operands(condition, "or"))
        return selectivity(condition)

    def _learn_groups(
        self, node: AggregateNode, relation: Aggregation, known: Statistics, rows: Mapping[int, float]
    ) -> None:
        """From the groups that the rows that pass have: of how many they are."""
        ((_, paths),) = paths_of(relation)
        groups, grouped = known.records[node.group_table], 0.0
        for edge, path in zip(node.edges, paths, strict=True):
            grouped += (rows.get(edge.source) or known.records.get(edge.source, 0.0)) * self.share(edge.source, path)
        possible = among_which(max(grouped, groups), groups)
        for name in names_of_groups(node, relation, paths):
            self.groups[name] = max(possible, self.groups.get(name, 0.0))

    def _learn_share(self, paths: Sequence[tuple[int, Path]], records: float, rows: Mapping[int, float]) -> None:
        """From a record for each row that passes: the selectivity, where only one path from a source has conditions.

        Views that share a copy show that of their disjunction; all are taken to have equally many rows.
        """
        chosen = [(source, path) for source, path in paths if path.conditions]
        if len(chosen) != 1 or chosen[0][1].signature is None or not all(rows.get(source) for source, _ in paths):
            return
        source, path = chosen[0]
        others = sum(rows[source] for source, path in paths if not path.conditions)
        share = min(1.0, max(0.0, records - others) / rows[source])
        self.shares[source, *(path.signature or ())] = share
        match path.conditions:
            case (Condition(expression=Call(name="or") as either),):
                parts = operands(either, "or")
                for part in parts:
                    name = (source, *sorted(map(spell, conjuncts(part))))
                    self.shares.setdefault(name, 1.0 - (1.0 - share) ** (1.0 / len(parts)))
