"""Shared groupings: views that group the same rows by the same columns are one γ, in which each view has a filter.

γ g; a (σ p (R)) and γ g; b (σ q (R)) are read from γ g; a where p, count where p, b where q, count where q (σ p∨q (R)):
a group belongs to the first view if its count where p is not 0. Paper 3, algorithm 2, step 2.

In: what the views' texts mean. Out: which of them can share a γ, and a relation over that γ for each. Always: the same
columns and rows; conditions that all views have stay below the γ. Nothing that can fail on a row is shared, because a row
that is set aside is so for one view alone.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import BIGINT
from viewkeeper.plan.canonical import spell
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Aggregate, AggregationRef, Call, Expression, Literal, children
from viewkeeper.sql.positions import conditions_over, conjunction, select
from viewkeeper.sql.relations import Aggregation, Grouping, Join, Output, Project, Relation, Select, equality_of

ViewId = TypeVar("ViewId", bound=Hashable)
_NONE = Literal(0, BIGINT)


@dataclass(frozen=True, slots=True)
class Grouped:
    """π (γ (σ … (source))), where π only chooses among groups and aggregates."""

    shown: tuple[tuple[str, AggregationRef], ...]
    grouping: Grouping
    source: Relation
    conditions: tuple[Expression, ...]

    @staticmethod
    def of(relation: Relation) -> Grouped | None:
        """A view's relation in this form; None if it has another one, or something in it can fail."""
        match relation:
            case Project(input=Aggregation(input=below, grouping=grouping), outputs=outputs):
                source, conditions = conditions_over(below)
                rows = [*conditions, *grouping.groups, *(part for one in grouping.aggregates for part in children(one))]
                shown = tuple((o.name, o.expression) for o in outputs if isinstance(o.expression, AggregationRef))
                if len(shown) == len(outputs) and not any(part.fallible for part in rows):
                    return Grouped(shown, grouping, source, tuple(conditions))
        return None

    @property
    def family(self) -> Hashable:
        """What views have in common that can share a γ: the rows, how they are joined, and the groups."""
        sides = self.source.sides if isinstance(self.source, Join) else ()
        joined = frozenset(spell(one) for one in self.conditions if equality_of(one, sides) is not None)
        return self.source, joined, tuple(map(spell, self.grouping.groups))

    def residual(self, common: Collection[str]) -> Expression | None:
        """The conditions besides the `common` ones."""
        return conjunction([one for one in self.conditions if spell(one) not in common])

    def kept(self, own: Expression | None) -> list[Aggregate]:
        """The aggregates that a shared γ keeps for the rows that meet `own`: also how many of them there are."""
        counted = () if own is None else (_COUNT,)
        return [_where(one, own) for one in (*self.grouping.aggregates, *counted)]


def families(relations: Mapping[ViewId, Relation]) -> list[tuple[ViewId, ...]]:
    """The views that can share a γ, two or more each, in the order of `relations`."""
    found: dict[Hashable, list[ViewId]] = {}
    for view, relation in relations.items():
        grouped = Grouped.of(relation)
        if grouped is not None:
            found.setdefault(grouped.family, []).append(view)
    return [tuple(views) for views in found.values() if len(views) > 1]


def fits(relation: Relation, members: tuple[Relation, ...]) -> bool:
    """Whether the γ that `members` share has all that a view needs."""
    grouped, first = Grouped.of(relation), Grouped.of(members[0])
    if grouped is None or first is None or grouped.family != first.family:
        return False
    common = _common(members)
    if not common <= set(map(spell, grouped.conditions)):
        return False
    own = grouped.residual(common)
    kept = {spell(one) for one in _shared(members).grouping.aggregates}
    wanted = {spell(one) for one in grouped.kept(own)}
    has_rows = any(one.residual(common) in (None, own) for one in map(Grouped.of, members) if one is not None)
    return has_rows and wanted <= kept


def over_shared(relation: Relation, members: tuple[Relation, ...]) -> Relation:
    """A view's relation over the γ that `members` share, one of which it is or was made from the same text as."""
    grouped = Grouped.of(relation)
    if grouped is None:
        raise InvariantBroken("a view shares a γ that it cannot be read from")
    shared = _shared(members)
    common = _common(members)
    own = grouped.residual(common)

    def meant(one: AggregationRef) -> AggregationRef:
        if one.source == "group":
            return replace(one, of=shared.grouping.groups[one.position])
        return _reference(shared, _where(grouped.grouping.aggregates[one.position], own))

    outputs = tuple(Output(name, meant(one)) for name, one in grouped.shown)
    is_there = own is not None and grouped.grouping.groups
    below = (
        Select(shared, construct.compare(">", _reference(shared, _where(_COUNT, own)), _NONE)) if is_there else shared
    )
    return Project(below, outputs)


def presence(predicate: Expression) -> AggregationRef | None:
    """The count that must not be 0 for a group to be shown, if that is all that the predicate of a HAVING states."""
    match predicate:
        case Call(name=">", args=(AggregationRef(of=Aggregate(function="count", distinct=False)) as count, other)):
            return count if other == _NONE else None
    return None


_COUNT = construct.aggregate("count", [])


@lru_cache(maxsize=256)
def _shared(members: tuple[Relation, ...]) -> Aggregation:
    """The γ of all members: no row more than they need, each aggregate once."""
    common = _common(members)
    aggregates: dict[str, Aggregate] = {}
    residuals: dict[str, Expression] = {}
    has_all = False  # whether a member has no condition of its own
    groups: Sequence[Expression] = ()
    for member in map(Grouped.of, members):
        if member is None:
            raise InvariantBroken("a view shares a γ that it cannot be read from")
        own = member.residual(common)
        has_all |= own is None
        residuals |= {} if own is None else {spell(own): own}
        groups = groups or member.grouping.groups
        for one in member.kept(own):
            aggregates.setdefault(spell(one), one)
        source, conditions = member.source, member.conditions
    weaker = [] if has_all else [_any_of([residuals[text] for text in sorted(residuals)])]
    kept = [one for one in conditions if spell(one) in common]
    ordered = tuple(aggregates[text] for text in sorted(aggregates))
    return Aggregation(select(source, [*kept, *weaker]), Grouping(tuple(groups), ordered))


@lru_cache(maxsize=256)
def _common(members: tuple[Relation, ...]) -> frozenset[str]:
    """The conditions that all members have, as they are spelled."""
    found = [frozenset(map(spell, one.conditions)) for one in map(Grouped.of, members) if one is not None]
    return frozenset.intersection(*found)


def _where(one: Aggregate, condition: Expression | None) -> Aggregate:
    return one if condition is None else construct.filtered(one, condition)


def _any_of(conditions: Sequence[Expression]) -> Expression:
    """A disjunction, as flat a tree as can be: expressions are nested only so deep."""
    while len(conditions) > 1:
        pairs = [conditions[place : place + 2] for place in range(0, len(conditions), 2)]
        conditions = [pair[0] if len(pair) == 1 else construct.logical("or", *pair) for pair in pairs]
    return conditions[0]


def _reference(shared: Aggregation, wanted: Aggregate) -> AggregationRef:
    kept = shared.grouping.aggregates
    place = [spell(one) for one in kept].index(spell(wanted))
    return AggregationRef("aggregate", place, kept[place])
