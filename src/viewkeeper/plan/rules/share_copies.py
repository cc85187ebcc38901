"""Shared copies: views that show columns of the same rows are one copy, in which each view has a mark.

π a (σ p (R)) and π b (σ q (R)) are read from π a, b, p, q (σ p∨q (R)): a record belongs to the first view if p is true in
it. So a row is read once and written once for all of them (paper 3, algorithm 1: one get, one compute, one put).

In: what the views' texts mean, and how many records they have. Out: which of them should share a copy, and a relation over
that copy for each. Always: the same columns and rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import BOOLEAN
from viewkeeper.plan.canonical import spell
from viewkeeper.plan.rules.sharing import Conditioned, common_conditions, marked, rows_of_all
from viewkeeper.sql import construct
from viewkeeper.sql.expressions import ColumnRef, Expression, Literal
from viewkeeper.sql.relations import Join, Output, Project, Relation, Scan

ViewId = TypeVar("ViewId", bound=Hashable)
_COLUMNS_MAX = 64  # of one shared copy
_SAVED_MIN = 0.5  # records that are saved, for each that is kept
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


def families(
    relations: Mapping[ViewId, Relation], records: Mapping[ViewId, int], rows: Mapping[ViewId, int]
) -> list[tuple[ViewId, ...]]:
    """The views that should share a copy, two or more each, in the order of `relations`.

    `records` are those of each view, `rows` those of the table that it copies, as far as they are known; conditions are
    taken to be independent of each other.
    """
    found: dict[Hashable, list[ViewId]] = {}
    for view, relation in relations.items():
        copied = Copied.of(relation)
        if copied is not None and records.get(view):
            found.setdefault(copied.rows.family, []).append(view)
    chosen = []
    for views in found.values():
        known = {view: records[view] for view in views}
        whole = max([*known.values(), *(rows[view] for view in views if view in rows)])
        some = [view for view in views if known[view] >= _SHARE_MIN * _union(list(known.values()), whole)]
        some = some[: _COLUMNS_MAX // 2]
        kept = _union([known[view] for view in some], whole)
        if len(some) > 1 and sum(known[view] for view in some) - kept >= _SAVED_MIN * kept:
            chosen.append(tuple(some))
    return chosen


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
    shared, places = _shared(members)
    columns = shared.columns

    def reference(one: Expression) -> ColumnRef:
        place = places[spell(one)]
        column = columns[place]
        return ColumnRef(place, column.name, column.type, column.nullable)

    own = copied.rows.residual(_common(members))
    mark = Literal(True, BOOLEAN) if own is None else reference(_is_true(own))
    outputs = tuple(Output(one.name, reference(one.expression)) for one in copied.outputs)
    return Project(marked(shared, mark), outputs)


@lru_cache(maxsize=256)
def _shared(members: tuple[Relation, ...]) -> tuple[Project, dict[str, int]]:
    """The copy of all members, each column once, with a mark for each condition; and where each is, as it is spelled."""
    common, copied = _common(members), _copied(members)
    shown = {spell(one.expression): one.expression for member in copied for one in member.outputs}
    own = [member.rows.residual(common) for member in copied]
    shown |= {spell(mark): mark for mark in (_is_true(one) for one in own if one is not None)}
    texts = sorted(shown)
    outputs = tuple(Output(shown[text].text, shown[text]) for text in texts)
    rows = rows_of_all([one.rows for one in copied])
    return Project(rows, outputs), {text: at for at, text in enumerate(texts)}


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


def _union(sizes: Sequence[int], whole: int) -> float:
    """How many of `whole` rows are in at least one of some sets that are independent of each other."""
    left = 1.0
    for size in sizes:
        left *= 1 - min(size, whole) / whole
    return whole * (1 - left)
