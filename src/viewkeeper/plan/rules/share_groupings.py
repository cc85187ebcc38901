"""Shared groupings: views that group the same rows by the same columns are one γ, in which each view has a filter.

γ g; a (σ p (R)) and γ g; b (σ q (R)) are read from γ g; a where p, count where p, b where q, count where q (σ p∨q (R)):
a group belongs to the first view if its count where p is not 0. HAVING is such a mark too, and a column that is computed
from aggregates is kept beside them.

In: what the views' texts mean. Out: which of them can share a γ, and a relation over that γ for each. Always: the same
columns and rows; conditions that all views have stay below the γ.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import BIGINT, BOOLEAN
from viewkeeper.plan.canonical import spell
from viewkeeper.plan.rules.sharing import Conditioned, common_conditions, marked, rows_of_all
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import Aggregate, AggregationRef, ColumnRef, Expression, Literal, children, rewrite
from viewkeeper.sql.relations import Aggregation, Grouping, Output, Project, Relation, Select

ViewId = TypeVar("ViewId", bound=Hashable)
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
    has_rows = any(one.rows.residual(common) in (None, own) for one in _grouped(members))
    if not has_rows or not {spell(one) for one in grouped.kept(own)} <= _shared(members)[1].keys():
        return False
    if all(one.is_plain for one in _grouped(members)):
        return grouped.is_plain
    return set(map(spell, _Member(grouped, members).values)) <= _with_values(members)[1].keys()


def over_shared(relation: Relation, members: tuple[Relation, ...]) -> Relation:
    """A view's relation over the γ that `members` share, one of which it is or was made from the same text as."""
    (grouped,) = _grouped((relation,))
    member = _Member(grouped, members)
    if all(one.is_plain for one in _grouped(members)):
        outputs = tuple(Output(one.name, member.value(one.expression)) for one in grouped.outputs)
        return Project(member.shared if member.mark is None else marked(member.shared, member.count), outputs)
    table, places = _with_values(members)

    def reference(value: Expression) -> ColumnRef:
        place = places[spell(value)]
        column = table.columns[place]
        return ColumnRef(place, column.name, column.type, column.nullable)

    mark = Literal(True, BOOLEAN) if member.mark is None else reference(member.mark)
    outputs = tuple(Output(one.name, reference(member.value(one.expression))) for one in grouped.outputs)
    return Project(marked(table, mark), outputs)


class _Member:
    """A view's parts, as expressions over the γ that it shares."""

    def __init__(self, grouped: Grouped, members: tuple[Relation, ...]) -> None:
        self._grouped = grouped
        self._own = grouped.rows.residual(_common(members))
        self.shared, self._places = _shared(members)

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
            case AggregationRef(source="group", position=place):
                return replace(part, of=self.shared.grouping.groups[place])
            case AggregationRef(position=place):
                return self._reference(self._grouped.grouping.aggregates[place])
        return None

    def _reference(self, one: Aggregate) -> AggregationRef:
        place = self._places[spell(_where(one, self._own))]
        return AggregationRef("aggregate", place, self.shared.grouping.aggregates[place])


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


@lru_cache(maxsize=256)
def _with_values(members: tuple[Relation, ...]) -> tuple[Project, dict[str, int]]:
    """The γ of all members with what they compute from it, each value once; and where each is, as it is spelled."""
    shared, _ = _shared(members)
    values = {spell(value): value for one in _grouped(members) for value in _Member(one, members).values}
    texts = sorted(values)
    outputs = tuple(Output(values[text].text, values[text]) for text in texts)
    return Project(shared, outputs), {text: at for at, text in enumerate(texts)}


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
