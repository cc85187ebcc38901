"""Sharing: views over the same rows, under conditions of their own, are computed by one node.

In: what the views' texts mean. Out: the conditions that all have in common, the rows that one of them at least needs, and the
marks by which a view knows its records. Always: nothing that can fail on a row is shared, because a row that is set aside
is so for one view alone. Paper 3, algorithm 2, step 2.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from viewkeeper.model.types import BOOLEAN
from viewkeeper.plan.canonical import spell
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import AggregationRef, Call, ColumnRef, Expression, Literal
from viewkeeper.sql.positions import conditions_over, conjunction, select
from viewkeeper.sql.relations import Join, Relation, Select, equality_of

Mark = AggregationRef | ColumnRef | Literal
_PRESENT = "present"  # no function of SQL, so that no condition of a user is taken for it


@dataclass(frozen=True, slots=True)
class Conditioned:
    """σ … (source)."""

    source: Relation
    conditions: tuple[Expression, ...]

    @staticmethod
    def of(relation: Relation) -> Conditioned:
        source, conditions = conditions_over(relation)
        return Conditioned(source, tuple(conditions))

    @property
    def family(self) -> Hashable:
        """What views have in common that can share a node: the rows, and how they are joined."""
        sides = self.source.sides if isinstance(self.source, Join) else ()
        joined = frozenset(spell(one) for one in self.conditions if equality_of(one, sides) is not None)
        return self.source, joined

    def residual(self, common: Collection[str]) -> Expression | None:
        """The conditions besides the `common` ones."""
        return conjunction([one for one in self.conditions if spell(one) not in common])


def common_conditions(members: Sequence[Conditioned]) -> frozenset[str]:
    """The conditions that all members have, as they are spelled."""
    return frozenset.intersection(*(frozenset(map(spell, one.conditions)) for one in members))


def rows_of_all(members: Sequence[Conditioned]) -> Relation:
    """The rows that at least one member has."""
    common = common_conditions(members)
    residuals = [one.residual(common) for one in members]
    own = {spell(one): one for one in residuals if one is not None}
    weaker = [] if None in residuals else [_any_of([own[text] for text in sorted(own)])]
    kept = [one for one in members[-1].conditions if spell(one) in common]
    return select(members[-1].source, [*kept, *weaker])


def marked(shared: Relation, mark: Mark) -> Select:
    """The records of one view."""
    return Select(shared, Call(_PRESENT, (mark,), BOOLEAN, nullable=False))


def mark_of(relation: Relation) -> Mark | None:
    """What shows that a record belongs to the view, if `relation` is the records of one of several views.

    A count that is not 0, a column that is true, or TRUE for all.
    """
    match relation:
        case Select(predicate=Call(name=name, args=(AggregationRef() | ColumnRef() | Literal() as mark,))):
            return mark if name == _PRESENT else None
    return None


def _any_of(conditions: Sequence[Expression]) -> Expression:
    """A disjunction, as flat a tree as can be: expressions are nested only so deep."""
    while len(conditions) > 1:
        pairs = [conditions[place : place + 2] for place in range(0, len(conditions), 2)]
        conditions = [pair[0] if len(pair) == 1 else construct.logical("or", *pair) for pair in pairs]
    return conditions[0]
