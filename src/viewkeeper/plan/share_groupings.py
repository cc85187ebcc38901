"""Shared groupings: views that group the same rows by the same columns are one γ, in which each view has a filter.

γ g; a (σ p (R)) and γ g; b (σ q (R)) are read from γ g; a where p, count where p, b where q, count where q (σ p∨q (R)):
a group belongs to the first view if its count where p is not 0. HAVING is such a mark too, and a column that is computed
from aggregates is stored with them. A γ whose groups are functions of another's is computed from its records.

In: the views' relations. Out: the views that can share a γ, and a relation over that γ for each. Always: the same columns
and rows; conditions that all views have stay below the γ.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

from viewkeeper.algebra import construct
from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import Aggregate, AggregationRef, ColumnRef, Expression, Literal, children, rewrite
from viewkeeper.algebra.relations import Aggregation, Grouping, Output, Project, Relation, RowsOfGroups, Select
from viewkeeper.algebra.row_key import can_regroup
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import BIGINT, BOOLEAN, DOUBLE
from viewkeeper.plan.share_copies import Conditioned, common_conditions, marked, project_once, rows_of_all

ViewId = TypeVar("ViewId", bound=Hashable)
By = tuple[str, ...]  # groups, as they are spelled
AGGREGATES_MAX = 96  # of one shared γ


@dataclass(frozen=True, slots=True)
class Grouped:
    """π (σ having (γ (σ … (source))))."""

    outputs: tuple[Output, ...]
    having: Expression | None
    grouping: Grouping
    rows: Conditioned

    @staticmethod
    def of(relation: Relation) -> Grouped | None:
        """A view's relation in this form; None if it has another one, or something in it can fail on a row."""
        having: Expression | None = None
        match relation:
            case Project(input=Select(input=Aggregation() as aggregation, predicate=having), outputs=outputs):
                pass
            case Project(input=Aggregation() as aggregation, outputs=outputs):
                pass
            case _:
                return None
        rows, grouping = Conditioned.of(aggregation.input), aggregation.grouping
        arguments = (part for one in grouping.aggregates for part in children(one))
        parts = (*rows.conditions, *grouping.groups, *arguments, *(() if having is None else (having,)))
        return None if any(part.fallible for part in parts) else Grouped(outputs, having, grouping, rows)

    @property
    def is_plain(self) -> bool:
        """Whether only groups and aggregates are shown, and all groups."""
        return self.having is None and all(isinstance(one.expression, AggregationRef) for one in self.outputs)

    @property
    def by(self) -> By:
        return tuple(map(spell, self.grouping.groups))

    @property
    def family(self) -> Hashable:
        return self.rows.family, self.by

    @property
    def can_be_fed(self) -> bool:
        """Whether all is known from what a finer γ keeps: sums of sums, ends of ends."""
        return bool(self.by) and not any(
            one.distinct or (one.arg_type == DOUBLE and one.function != "count" and not one.needs_entries)
            for one in self.grouping.aggregates
        )

    def kept(self, own: Expression | None) -> list[Aggregate]:
        """The aggregates that a shared γ keeps for the rows that meet `own`: also how many of them there are."""
        counted = () if own is None else (_COUNT,)
        return [_where(one, own) for one in (*self.grouping.aggregates, *counted)]


def share_groupings(
    relations: Mapping[ViewId, Relation], records: Mapping[ViewId, float], rows: Mapping[ViewId, float]
) -> list[tuple[ViewId, ...]]:
    """γ g; a (σ p (R)) and γ g; b (σ q (R)) = columns of one γ g; a where p, b where q (σ p∨q (R)).

    Sets of views that can share a γ, sorted by their conditions.
    """
    found: dict[Hashable, dict[ViewId, Grouped]] = {}
    for view, relation in relations.items():
        if (grouped := Grouped.of(relation)) is not None:
            found.setdefault(grouped.family, {})[view] = grouped
    return [
        tuple(sorted(views, key=lambda view: sorted(map(spell, views[view].rows.conditions))))
        for views in found.values()
        if len(views) > 1
    ]


def feed_groupings(
    relations: Mapping[ViewId, Relation], parts: Sequence[tuple[ViewId, ...]]
) -> list[tuple[tuple[ViewId, ...], tuple[ViewId, ...]]]:
    """γ h(g); sum a (R) = γ h; sum s (γ g; sum a as s (R)): a coarser γ from the records of a finer one.

    The pairs of parts of which the first can feed the second; those that can feed most come first.
    """
    grouping = [part for part in parts if Grouped.of(relations[part[0]]) is not None]
    found = [_Feeding(part, _grouped(tuple(map(relations.__getitem__, part)))) for part in grouping]
    fed = {one: [other for other in found if one.can_feed(other)] for one in found}
    return [(one.views, other.views) for one in sorted(fed, key=lambda one: -len(fed[one])) for other in fed[one]]


class _Feeding(Generic[ViewId]):
    """Views that share a γ, or are one, and their finest groups."""

    def __init__(self, views: tuple[ViewId, ...], members: Sequence[Grouped]) -> None:
        self.views = views
        self._family = members[0].rows.family
        self._groups = _finest_of(members)
        self._by = tuple(map(spell, self._groups))
        self._can_be_fed = all(one.can_be_fed for one in members)

    def can_feed(self, other: _Feeding[ViewId]) -> bool:
        """Whether what the others share can be computed from what these do."""
        if not other._can_be_fed or self._by == other._by or self._family != other._family:
            return False
        return can_regroup(other._groups, self._groups)


def has_room(members: tuple[Relation, ...]) -> bool:
    """Whether one γ can keep what all members need: a record is read and written as a whole."""
    kept = (one for part in _grouped(members) for one in part.kept(part.rows.residual(())))
    return len(set(map(spell, kept))) <= AGGREGATES_MAX


def kept_relations(members: tuple[Relation, ...]) -> tuple[Relation, ...]:
    """A relation for each node that the members share: one by each kind of groups."""
    first = {grouped.by: one for one, grouped in zip(reversed(members), reversed(_grouped(members)), strict=True)}
    return tuple(over_shared(one, members) for one in first.values())


def fits(relation: Relation, members: tuple[Relation, ...]) -> bool:
    """Whether the γ that `members` share has all that a view needs."""
    grouped = Grouped.of(relation)
    if grouped is None or grouped.family not in {one.family for one in _grouped(members)}:
        return False
    common = _common(members)
    if not common <= set(map(spell, grouped.rows.conditions)):
        return False
    own = grouped.rows.residual(common)
    has_rows = any(one.rows.residual(common) in (None, own) for one in _grouped(members))
    if not has_rows or not {spell(one) for one in grouped.kept(own)} <= _shared(members, grouped.by)[1].keys():
        return False
    if _is_plain(members, grouped.by):
        return grouped.is_plain
    return set(map(spell, _Member(grouped, members).values)) <= _with_values(members, grouped.by)[1].keys()


def over_shared(relation: Relation, members: tuple[Relation, ...]) -> Relation:
    """A view's relation over the γ that `members` share, one of which it is or was made from the same text as."""
    (grouped,) = _grouped((relation,))
    member = _Member(grouped, members)
    if _is_plain(members, grouped.by):
        outputs = tuple(Output(one.name, member.value(one.expression)) for one in grouped.outputs)
        return Project(member.shared if member.mark is None else marked(member.shared, member.count), outputs)
    table, columns = _with_values(members, grouped.by)
    mark = Literal(True, BOOLEAN) if member.mark is None else columns[spell(member.mark)]
    outputs = tuple(Output(one.name, columns[spell(member.value(one.expression))]) for one in grouped.outputs)
    return Project(marked(table, mark), outputs)


class _Member:
    """A view's parts, as expressions over the γ that it shares."""

    def __init__(self, grouped: Grouped, members: tuple[Relation, ...]) -> None:
        self._grouped = grouped
        self._own = grouped.rows.residual(_common(members))
        self.shared, self._places = _shared(members, grouped.by)

    @property
    def values(self) -> list[Expression]:
        """What the view needs of a group: the columns, and the mark."""
        marks = [] if self.mark is None else [self.mark]
        return [*(self.value(one.expression) for one in self._grouped.outputs), *marks]

    @property
    def count(self) -> AggregationRef:
        """How many of the group's rows are the view's."""
        return self._reference(_COUNT)

    @property
    def mark(self) -> Expression | None:
        """What is true, or not 0, in the view's groups alone; None if all are."""
        if self._grouped.having is not None:
            return construct.coalesce([self.value(self._grouped.having), Literal(False, BOOLEAN)])
        return self.count if self._is_part else None

    def value(self, expression: Expression) -> Expression:
        """Not computed for groups of other views: there it could fail."""
        meant = rewrite(expression, self._meant)
        if not self._is_part or isinstance(expression, AggregationRef):
            return meant
        is_own = construct.compare(">", self.count, Literal(0, BIGINT))
        return construct.case([(is_own, meant)], Literal(None, meant.type))

    @property
    def _is_part(self) -> bool:
        return self._own is not None and bool(self._grouped.grouping.groups)

    def _meant(self, part: Expression) -> Expression | None:
        match part:
            case AggregationRef(source="group", position=index):
                return replace(part, of=self.shared.grouping.groups[index])
            case AggregationRef(position=index):
                return self._reference(self._grouped.grouping.aggregates[index])
        return None

    def _reference(self, one: Aggregate) -> AggregationRef:
        index = self._places[spell(_where(one, self._own))]
        return AggregationRef("aggregate", index, self.shared.grouping.aggregates[index])


_COUNT = construct.aggregate("count", [])


@lru_cache(maxsize=256)
def _shared(members: tuple[Relation, ...], by: By) -> tuple[Aggregation, dict[str, int]]:
    """The γ of all members that group alike, each aggregate once; and the positions of these, as they are spelled. The
    finest γ has the aggregates of all, which are computed from its records.
    """
    grouped, common, finest = _grouped(members), _common(members), _finest(members)
    aggregates: dict[str, Aggregate] = {}
    for member in grouped:
        if by in (member.by, finest):
            for one in member.kept(member.rows.residual(common)):
                aggregates.setdefault(spell(one), one)
    texts = sorted(aggregates)
    groups = next(one.grouping.groups for one in grouped if one.by == by)
    grouping = Grouping(groups, tuple(aggregates[text] for text in texts))
    rows = rows_of_all([one.rows for one in grouped]) if by == finest else RowsOfGroups(_kept(members, finest))
    return Aggregation(rows, grouping), {text: at for at, text in enumerate(texts)}


@lru_cache(maxsize=256)
def _with_values(members: tuple[Relation, ...], by: By) -> tuple[Project, dict[str, ColumnRef]]:
    """The γ of all members that group alike with the values computed from it; and its columns, as they are spelled."""
    alike = [one for one in _grouped(members) if one.by == by]
    return project_once(_shared(members, by)[0], (value for one in alike for value in _Member(one, members).values))


def _kept(members: tuple[Relation, ...], by: By) -> Aggregation | Project:
    return _shared(members, by)[0] if _is_plain(members, by) else _with_values(members, by)[0]


def _is_plain(members: tuple[Relation, ...], by: By) -> bool:
    return all(one.is_plain for one in _grouped(members) if one.by == by)


@lru_cache(maxsize=256)
def _finest(members: tuple[Relation, ...]) -> By:
    return tuple(map(spell, _finest_of(_grouped(members))))


def _finest_of(members: Sequence[Grouped]) -> tuple[Expression, ...]:
    """The groups of which those of all members can be made."""
    every = {one.by: one.grouping.groups for one in members}
    for by, groups in every.items():
        if all(other == by or can_regroup(coarser, groups) for other, coarser in every.items()):
            return groups
    raise InvariantBroken("views share a γ and group by unlike things")


def _grouped(members: tuple[Relation, ...]) -> list[Grouped]:
    found = [one for one in map(Grouped.of, members) if one is not None]
    if len(found) < len(members):
        raise InvariantBroken("a view shares a γ that it cannot be read from")
    return found


@lru_cache(maxsize=256)
def _common(members: tuple[Relation, ...]) -> frozenset[str]:
    return common_conditions([one.rows for one in _grouped(members)])


def _where(one: Aggregate, condition: Expression | None) -> Aggregate:
    return one if condition is None else construct.filtered(one, condition)
