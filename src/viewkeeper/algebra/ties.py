"""Ties: an order that ends with the row key, as that of a view does.

In: a relation that a SELECT evaluates. Out: one of the same columns, in which each ORDER BY is followed by the row key of
what it orders. Always: pure; the parts of the key are in the order in which the records of a view have them, so that
a SELECT returns the rows, among equals, that the view of the same text keeps. A key is ascending and NULL is its least value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from viewkeeper.algebra import construct
from viewkeeper.algebra.expressions import Case, ColumnRef, Expression, Literal
from viewkeeper.algebra.relations import (
    Aggregation,
    Join,
    Ordering,
    Output,
    Project,
    Ranked,
    Relation,
    Scan,
    Select,
    Sorted,
    Top,
    Union,
    inputs_of,
    starts_of,
)
from viewkeeper.algebra.rewriting import column_refs, keep_columns, over_columns, relocate, with_inputs
from viewkeeper.algebra.row_key import looked_up, united_key
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import BOOLEAN, INT


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A relation whose first columns are those asked for, and its row key: columns of it, and literals."""

    relation: Relation
    key: tuple[Expression, ...]


def order_ties(relation: Relation) -> Relation:
    """The relation with a total order wherever it has an order."""
    if isinstance(relation, Top | Sorted) and relation.order:
        keyed = _united(relation.input)
        ordered = replace(relation, input=keyed.relation, order=_total(relation.order, keyed))
        return keep_columns(ordered, range(len(relation.columns)))
    return with_inputs(relation, tuple(map(order_ties, inputs_of(relation))))


def _total(order: tuple[Ordering, ...], keyed: _Keyed) -> tuple[Ordering, ...]:
    known = {one.expression for one in order}
    rest = [Ordering(part, descending=False, nulls_first=True) for part in keyed.key if part not in known]
    return (*order, *rest)


def _branches(relation: Relation) -> list[_Keyed]:
    """The relation with its row key; of a union, also below σ and π, its branches, each under the key of the union."""
    match relation:
        case Scan(table=table):
            refs = column_refs(relation)
            return [_Keyed(relation, tuple(refs[table.position(name)] for name in table.key))]
        case Select(input=below):
            return [replace(one, relation=Select(one.relation, relation.predicate)) for one in _branches(below)]
        case Project(input=below):
            return [_projected(one, relation.outputs) for one in _branches(below)]
        case Aggregation(input=below, grouping=grouping):
            groups = column_refs(relation)[: len(grouping.groups)]
            return [_Keyed(replace(relation, input=order_ties(below)), groups)]
        case Join():
            return [_joined(relation)]
        case Union(inputs=inputs):
            return _under_one_key([branch for one in inputs for branch in _branches(one)])
        case Top(input=below, order=order):
            keyed = _united(below)
            ranked = Ranked(replace(relation, input=keyed.relation, order=_total(order, keyed)))
            return [_Keyed(ranked, (column_refs(ranked)[-1],))]
        case Sorted(input=below, order=order):  # no view has one: its rows keep their key
            keyed = _united(below)
            total = _total(order, keyed) if order else ()
            return [_Keyed(replace(relation, input=keyed.relation, order=total), keyed.key)]
    raise InvariantBroken(f"{type(relation).__name__} is not read by a SELECT")


def _united(relation: Relation) -> _Keyed:
    """The relation as one, and its row key in columns."""
    width, branches = len(relation.columns), _branches(relation)
    if len(branches) == 1 and all(isinstance(part, ColumnRef) for part in branches[0].key):
        return branches[0]
    shown = [[*column_refs(one.relation)[:width], *one.key] for one in branches]
    inputs = tuple(Project(one.relation, _outputs(refs)) for one, refs in zip(branches, shown, strict=True))
    united = inputs[0] if len(inputs) == 1 else Union(inputs)
    return _Keyed(united, column_refs(united)[width:])


def _outputs(expressions: Sequence[Expression]) -> tuple[Output, ...]:
    return tuple(Output(one.text, one) for one in expressions)


def _projected(keyed: _Keyed, outputs: tuple[Output, ...]) -> _Keyed:
    """π that also outputs the columns of the key."""
    plain = [over_columns(output.expression, keyed.relation) for output in outputs]
    found = {one.position: at for at, one in reversed(list(enumerate(plain))) if isinstance(one, ColumnRef)}
    added: list[ColumnRef] = []
    for part in keyed.key:
        if isinstance(part, ColumnRef) and part.position not in found:
            found[part.position] = len(outputs) + len(added)
            added.append(part)
    key = (replace(part, position=found[part.position]) if isinstance(part, ColumnRef) else part for part in keyed.key)
    return _Keyed(Project(keyed.relation, (*outputs, *_outputs(added))), tuple(key))


def _under_one_key(branches: Sequence[_Keyed]) -> list[_Keyed]:
    types, indexes = united_key([[part.type for part in one.key] for one in branches])
    united = []
    for number, (one, own) in enumerate(zip(branches, indexes, strict=True)):
        parts: list[Expression] = [Literal(number, INT), *(Literal(None, type_) for type_ in types[1:])]
        for index, part in zip(own, one.key, strict=True):
            parts[index] = part
        united.append(replace(one, key=tuple(parts)))
    return united


def _joined(join: Join) -> _Keyed:
    """⋈ of keyed sides, under the keys of those that are not looked up."""
    lookups, shown = looked_up(join), len(join.shown_sides)
    keyed = [
        _Keyed(order_ties(side), ()) if number in lookups or number >= shown else _united(side)
        for number, side in enumerate(join.sides)
    ]
    is_tagged = join.kind == "full" and all(part.nullable for one in keyed for part in one.key)
    if is_tagged:
        keyed = list(map(_with_mark, keyed))
    sides = tuple(one.relation for one in keyed)
    moved = _moved(join.sides, sides)
    residual = None if join.residual is None else relocate(join.residual, moved.__getitem__)
    joined = replace(join, sides=sides, residual=residual)
    refs, starts = column_refs(joined), starts_of(sides)
    key: list[Expression] = []
    if is_tagged:
        key.append(_tag(*(refs[start + len(side.columns) - 1] for side, start in zip(sides, starts, strict=True))))
    loose = join.kind in ("left", "full")  # an absent side has NULL in its key
    for one, start in zip(keyed, starts, strict=True):
        parts = [part for part in one.key if isinstance(part, ColumnRef)]
        key += [replace(part, position=part.position + start, nullable=loose or part.nullable) for part in parts]
    kept = [refs[moved[at]] for at in range(len(join.columns))]
    project = Project(joined, _outputs([*kept, *key]))
    numbered = zip(column_refs(project)[len(kept) :], key, strict=True)
    return _Keyed(project, tuple(replace(ref, nullable=part.nullable) for ref, part in numbered))


def _moved(before: Sequence[Relation], after: Sequence[Relation]) -> dict[int, int]:
    """Where the columns of each side are after sides got more columns."""
    pairs = zip(before, starts_of(before), starts_of(after), strict=True)
    return {old + at: new + at for side, old, new in pairs for at in range(len(side.columns))}


def _with_mark(side: _Keyed) -> _Keyed:
    """The side with a last column that is TRUE: it is NULL where a join found no row of the side."""
    columns: list[Expression] = [*column_refs(side.relation), Literal(True, BOOLEAN)]
    return replace(side, relation=Project(side.relation, _outputs(columns)))


def _tag(first: Expression, second: Expression) -> Expression:
    """Which sides a row has, as the records of a full join have it: 0 both, 1 the first, 2 the second."""
    absent = ((construct.is_null(second), Literal(1, INT)), (construct.is_null(first), Literal(2, INT)))
    return Case(absent, Literal(0, INT), INT)
