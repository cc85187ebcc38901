"""Shared copies: views that show columns of the same rows are one copy, in which each view has a mark.

π a (σ p (R)) and π b (σ q (R)) are read from π a, b, p, q (σ p∨q (R)): a record belongs to the first view if p is true in
it. So a row is read and written once for all of them (paper 3, algorithm 1). The merge of conditions (`Conditioned`,
`rows_of_all`, `marked`; paper 3, algorithm 2, step 2) serves shared groupings too.

In: the views' relations, and how many records they have. Out: the views that can share a copy, and a relation over that
copy for each. Always: the same columns and rows. Nothing that can fail on a row is shared, because a row is set aside for
one view alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from viewkeeper.algebra import construct
from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import AggregationRef, Call, ColumnRef, Expression, Literal
from viewkeeper.algebra.relations import Join, Output, Project, Relation, Scan, Select, equality_of
from viewkeeper.algebra.rewriting import column_refs, conditions_over, conjunction, select
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import BOOLEAN

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
        """What views must have in common to share a node: the rows, and how they are joined."""
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
    """The mark of a view's records in a shared node: a count that is not 0, a column that is true, or TRUE for all."""
    match relation:
        case Select(predicate=Call(name=name, args=(AggregationRef() | ColumnRef() | Literal() as mark,))):
            return mark if name == _PRESENT else None
    return None


def _any_of(conditions: Sequence[Expression]) -> Expression:
    """A disjunction, as flat a tree as can be: expressions are nested only so deep."""
    while len(conditions) > 1:
        pairs = [conditions[index : index + 2] for index in range(0, len(conditions), 2)]
        conditions = [pair[0] if len(pair) == 1 else construct.logical("or", *pair) for pair in pairs]
    return conditions[0]


ViewId = TypeVar("ViewId", bound=Hashable)
_COLUMNS_MAX = 64  # of one shared copy
_SHARE_MIN = 0.125  # of the shared records, that a view must have: a scan of it passes over the others


@dataclass(frozen=True, slots=True)
class Copied:
    """π (σ … (source)) over a table or an inner join."""

    outputs: tuple[Output, ...]
    rows: Conditioned

    @staticmethod
    def of(relation: Relation) -> Copied | None:
        """A view's relation in this form; None if it has another one, or something in it can fail."""
        if not isinstance(relation, Project):
            return None
        rows, outputs = Conditioned.of(relation.input), relation.outputs
        source = rows.source
        fails = any(part.fallible for part in (*rows.conditions, *(one.expression for one in outputs)))
        if fails or not (isinstance(source, Scan) or (isinstance(source, Join) and source.kind == "inner")):
            return None
        return Copied(outputs, rows)


def share_copies(
    relations: Mapping[ViewId, Relation], records: Mapping[ViewId, float], rows: Mapping[ViewId, float]
) -> list[tuple[ViewId, ...]]:
    """π a (σ p (R)) and π b (σ q (R)) = π a σ p (C) and π b σ q (C) over one copy C = π a, b, p, q (σ p∨q (R)).

    Sets of views that can share a copy, the largest view first: those that are filled, and have enough of its records that
    a scan does not pass over too many others. `records` are those of each view, `rows` those of the table that it copies,
    as far as they are known; conditions are taken to be independent of each other.
    """
    found: dict[Hashable, list[ViewId]] = {}
    for view, relation in relations.items():
        copied = Copied.of(relation)
        if copied is not None and records.get(view):
            found.setdefault(copied.rows.family, []).append(view)
    chosen = []
    for views in found.values():
        sizes = [records[view] for view in views]
        whole = max([*sizes, *(rows[view] for view in views if view in rows)])
        # the rows that at least one view has, of `whole` ones
        union = whole * (1 - math.prod(1 - size / whole for size in sizes))
        some = [view for view in views if records[view] >= _SHARE_MIN * union]
        chosen.append(tuple(sorted(some, key=records.__getitem__, reverse=True)))
    return [views for views in chosen if len(views) > 1]


def has_room(members: tuple[Relation, ...]) -> bool:
    """Whether one copy can have the columns of all members: a record is read and written as a whole."""
    return len(members) <= _COLUMNS_MAX // 2


def kept_relations(members: tuple[Relation, ...]) -> tuple[Relation, ...]:
    """A relation for each node that the members share."""
    return (over_shared(members[0], members),)


def fits(relation: Relation, members: tuple[Relation, ...]) -> bool:
    """Whether the copy that `members` share has all that a view needs."""
    copied, first = Copied.of(relation), Copied.of(members[0])
    if copied is None or first is None or copied.rows.family != first.rows.family:
        return False
    common = _common(members)
    if not common <= set(map(spell, copied.rows.conditions)):
        return False
    own = copied.rows.residual(common)
    wanted = {spell(one.expression) for one in copied.outputs} | ({spell(_is_true(own))} if own is not None else set())
    has_rows = any(one.rows.residual(common) in (None, own) for one in _copied(members))
    return has_rows and wanted <= _shared(members)[1].keys()


def over_shared(relation: Relation, members: tuple[Relation, ...]) -> Relation:
    """A view's relation over the copy that `members` share, one of which it is."""
    (copied,) = _copied((relation,))
    shared, columns = _shared(members)
    own = copied.rows.residual(_common(members))
    mark = Literal(True, BOOLEAN) if own is None else columns[spell(_is_true(own))]
    outputs = tuple(Output(one.name, columns[spell(one.expression)]) for one in copied.outputs)
    return Project(marked(shared, mark), outputs)


@lru_cache(maxsize=256)
def _shared(members: tuple[Relation, ...]) -> tuple[Project, dict[str, ColumnRef]]:
    """The copy of all members, with a mark for each condition; and its columns, as they are spelled."""
    common, copied = _common(members), _copied(members)
    shown = [one.expression for member in copied for one in member.outputs]
    own = [member.rows.residual(common) for member in copied]
    shown += [_is_true(one) for one in own if one is not None]
    return project_once(rows_of_all([one.rows for one in copied]), shown)


def project_once(relation: Relation, expressions: Iterable[Expression]) -> tuple[Project, dict[str, ColumnRef]]:
    """π of the expressions, each once, in the order of their spelling; and its columns, as they are spelled."""
    known = {spell(one): one for one in expressions}
    texts = sorted(known)
    projected = Project(relation, tuple(Output(known[text].text, known[text]) for text in texts))
    return projected, dict(zip(texts, column_refs(projected), strict=True))


def _copied(members: tuple[Relation, ...]) -> list[Copied]:
    found = [one for one in map(Copied.of, members) if one is not None]
    if len(found) < len(members):
        raise InvariantBroken("a view shares a copy that it cannot be read from")
    return found


@lru_cache(maxsize=256)
def _common(members: tuple[Relation, ...]) -> frozenset[str]:
    return common_conditions([one.rows for one in _copied(members)])


def _is_true(condition: Expression) -> Expression:
    return construct.coalesce([condition, Literal(False, BOOLEAN)])
