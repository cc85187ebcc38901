"""Shared groupings: views that group the same rows by the same columns are one γ, in which each view has a filter.

γ g; a (σ p (R)) and γ g; b (σ q (R)) are read from γ g; a where p, count where p, b where q, count where q (σ p∨q (R)):
a group belongs to the first view if its count where p is not 0.

In: what the views' texts mean. Out: which of them can share a γ, and a relation over that γ for each. Always: the same
columns and rows; conditions that all views have stay below the γ.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from viewkeeper.errors import InvariantBroken
from viewkeeper.plan.canonical import spell
from viewkeeper.plan.rules.sharing import Conditioned, common_conditions, marked, rows_of_all
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Aggregate, AggregationRef, Expression, children
from viewkeeper.sql.relations import Aggregation, Grouping, Output, Project, Relation

ViewId = TypeVar("ViewId", bound=Hashable)
AGGREGATES_MAX = 96  # of one shared γ


@dataclass(frozen=True, slots=True)
class Grouped:
    """π (γ (σ … (source))), where π only chooses among groups and aggregates."""

    shown: tuple[tuple[str, AggregationRef], ...]
    grouping: Grouping
    rows: Conditioned

    @staticmethod
    def of(relation: Relation) -> Grouped | None:
        """A view's relation in this form; None if it has another one, or something in it can fail."""
        match relation:
            case Project(input=Aggregation(input=below, grouping=grouping), outputs=outputs):
                rows = Conditioned.of(below)
                parts = [
                    *rows.conditions,
                    *grouping.groups,
                    *(part for one in grouping.aggregates for part in children(one)),
                ]
                shown = tuple((o.name, o.expression) for o in outputs if isinstance(o.expression, AggregationRef))
                if len(shown) == len(outputs) and not any(part.fallible for part in parts):
                    return Grouped(shown, grouping, rows)
        return None

    @property
    def family(self) -> Hashable:
        return self.rows.family, tuple(map(spell, self.grouping.groups))

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
            wanted = {spell(one) for one in grouped.kept(grouped.rows.residual(()))}
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
    if not common <= set(map(spell, grouped.rows.conditions)):
        return False
    own = grouped.rows.residual(common)
    _, kept = _shared(members)
    wanted = {spell(one) for one in grouped.kept(own)}
    has_rows = any(one.rows.residual(common) in (None, own) for one in _grouped(members))
    return has_rows and wanted <= kept.keys()


def over_shared(relation: Relation, members: tuple[Relation, ...]) -> Relation:
    """A view's relation over the γ that `members` share, one of which it is or was made from the same text as."""
    (grouped,) = _grouped((relation,))
    shared, places = _shared(members)
    own = grouped.rows.residual(_common(members))

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
    return Project(marked(shared, reference(_COUNT)), outputs)


_COUNT = construct.aggregate("count", [])


@lru_cache(maxsize=256)
def _shared(members: tuple[Relation, ...]) -> tuple[Aggregation, dict[str, int]]:
    """The γ of all members: no row more than they need, each aggregate once; and where each is, as it is spelled."""
    common, grouped = _common(members), _grouped(members)
    aggregates: dict[str, Aggregate] = {}
    for member in grouped:
        for one in member.kept(member.rows.residual(common)):
            aggregates.setdefault(spell(one), one)
    texts = sorted(aggregates)
    grouping = Grouping(grouped[0].grouping.groups, tuple(aggregates[text] for text in texts))
    rows = rows_of_all([one.rows for one in grouped])
    return Aggregation(rows, grouping), {text: at for at, text in enumerate(texts)}


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
