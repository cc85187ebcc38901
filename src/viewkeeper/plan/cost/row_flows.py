"""Row flows: which rows reach a node, and which changes of them an epoch brings.

In: relations, and the changes of base tables in an epoch. Out: the conditions on each edge, which columns are a row
key, which base tables can change a column, the changes that are left after a σ, and what a table with a record for each
row does for them. Always: an update is taken to change every column of its row that is not in the key; numbers are
rates, not whole numbers, and none is negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import AggregationRef, ColumnRef, Expression, columns_of, conjuncts
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
)
from viewkeeper.algebra.rewriting import over_columns
from viewkeeper.algebra.row_key import looked_up
from viewkeeper.model.work_stats import Kinds
from viewkeeper.plan.cost.costs import TableCost
from viewkeeper.plan.cost.statistics import distinct, selectivity

Tables = frozenset[int]
NONE: Tables = frozenset()


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a σ, and the base tables whose updates can change whether a row passes."""

    expression: Expression
    changed_by: Tables


@dataclass(frozen=True, slots=True)
class Path:
    """What is between a node and one of its sources. `is_direct`: no π is below a condition, so that positions are those of
    the source; `is_projected`: one is somewhere.
    """

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
                others = [place for place in range(len(sides)) if place not in lookups]
                found = found.union(*(changed_by(sides[place], *relation.keys[place]) for place in others))
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


def is_unique(relation: Relation, expressions: Iterable[Expression]) -> bool:
    """Whether no two rows of `relation` agree in the expressions, because these contain its row key."""
    key = _key(relation)
    plain = (over_columns(one, relation) for one in expressions)
    return key is not None and key <= {one.position for one in plain if isinstance(one, ColumnRef)}


def _key(relation: Relation) -> frozenset[int] | None:
    """The positions of the row key; None where not all of it is among the columns."""
    match relation:
        case Scan(table=table):
            return frozenset(table.position(name) for name in table.key)
        case Aggregation(grouping=grouping):
            return frozenset(range(len(grouping.groups)))
        case Project(input=below, outputs=outputs):
            return _shown_key(below, [output.expression for output in outputs])
        case Join(sides=sides) if not relation.keeps_first:
            keys = [_key(side) for side in sides]
            starts = starts_of(sides)
            whole = [{start + part for part in key} for start, key in zip(starts, keys, strict=True) if key is not None]
            return frozenset().union(*whole) if len(whole) == len(sides) else None
        case Union() | Index() | RowsOfGroups():
            return None
    return _key(inputs_of(relation)[0])


def _shown_key(below: Relation, shown: list[Expression]) -> frozenset[int] | None:
    key = _key(below)
    plain = [over_columns(one, below) if isinstance(one, AggregationRef) else one for one in shown]
    places = {one.position: place for place, one in enumerate(plain) if isinstance(one, ColumnRef)}
    return frozenset(places[part] for part in key) if key is not None and key <= places.keys() else None


Flow = dict[int, Kinds]  # by the base table whose changes they come from


def sum_of(flow: Flow) -> Kinds:
    whole = Kinds()
    for kinds in flow.values():
        whole = whole.plus(kinds)
    return whole


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
