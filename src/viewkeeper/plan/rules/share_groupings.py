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
from viewkeeper.model.types import BOOLEAN
from viewkeeper.plan.canonical import spell
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Aggregate, AggregationRef, Call, Expression, children
from viewkeeper.sql.positions import conditions_over, conjunction, select
from viewkeeper.sql.relations import Aggregation, Grouping, Join, Output, Project, Relation, Select, equality_of

ViewId = TypeVar("ViewId", bound=Hashable)
_PRESENT = "present"  # no function of SQL, so that no HAVING of a user is taken for it
AGGREGATES_MAX = 96  # of one shared γ


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
    """The views that can share a γ, two or more each, in the order of `relations`.

    A large family is divided: a record is read and written as a whole, so it must not grow without end.
    """
    found: dict[Hashable, list[tuple[list[ViewId], set[str]]]] = {}
    for view, relation in relations.items():
        grouped = Grouped.of(relation)
        if grouped is not None:
            parts = found.setdefault(grouped.family, [([], set())])
            wanted = {spell(one) for one in grouped.kept(grouped.residual(()))}
            if len(parts[-1][1] | wanted) > AGGREGATES_MAX:
                parts.append(([], set()))
            parts[-1][0].append(view)
            parts[-1][1].update(wanted)
    return [tuple(views) for parts in found.values() for views, _ in parts if len(views) > 1]


def fits(relation: Relation, members: tuple[Relation, ...]) -> bool:
    """Whether the γ that `members` share has all that a view needs."""
    grouped, first = Grouped.of(relation), Grouped.of(members[0])
    if grouped is None or first is None or grouped.family != first.family:
        return False
    common = _common(members)
    if not common <= set(map(spell, grouped.conditions)):
        return False
    own = grouped.residual(common)
    _, kept = _shared(members)
    wanted = {spell(one) for one in grouped.kept(own)}
    has_rows = any(one.residual(common) in (None, own) for one in map(Grouped.of, members) if one is not None)
    return has_rows and wanted <= kept.keys()


def over_shared(relation: Relation, members: tuple[Relation, ...]) -> Relation:
    """A view's relation over the γ that `members` share, one of which it is or was made from the same text as."""
    grouped = Grouped.of(relation)
    if grouped is None:
        raise InvariantBroken("a view shares a γ that it cannot be read from")
    shared, places = _shared(members)
    own = grouped.residual(_common(members))

    def reference(one: Aggregate) -> AggregationRef:
        place = places[spell(_where(one, own))]
        return AggregationRef("aggregate", place, shared.grouping.aggregates[place])

    def meant(one: AggregationRef) -> AggregationRef:
        if one.source == "group":
            return replace(one, of=shared.grouping.groups[one.position])
        return reference(grouped.grouping.aggregates[one.position])

    outputs = tuple(Output(name, meant(one)) for name, one in grouped.shown)
    if own is None or not grouped.grouping.groups:
        return Project(shared, outputs)
    return Project(Select(shared, Call(_PRESENT, (reference(_COUNT),), BOOLEAN, nullable=False)), outputs)


def presence(predicate: Expression) -> AggregationRef | None:
    """The count that must not be 0 for a group to be shown, if that is what the predicate above a shared γ states."""
    match predicate:
        case Call(name=name, args=(AggregationRef() as count,)) if name == _PRESENT:
            return count
    return None


_COUNT = construct.aggregate("count", [])


@lru_cache(maxsize=256)
def _shared(members: tuple[Relation, ...]) -> tuple[Aggregation, dict[str, int]]:
    """The γ of all members: no row more than they need, each aggregate once; and where each is, as it is spelled."""
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
    texts = sorted(aggregates)
    grouping = Grouping(tuple(groups), tuple(aggregates[text] for text in texts))
    return Aggregation(select(source, [*kept, *weaker]), grouping), {text: at for at, text in enumerate(texts)}


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
