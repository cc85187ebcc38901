"""Join trees: from FROM as written to relations joined on keys.

In: a tree of sources with the conditions of ON, and the conditions of WHERE. Out: a relation whose columns stand in FROM
order. Always: each join has a key made of equalities between its sides, or it is refused, except of a query that is
answered `once`; a condition that can fail is evaluated on joined rows, or on the one side whose rows it could only leave
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from viewkeeper.sql.expressions import ColumnRef, Expression, columns_of, implied, rewrite
from viewkeeper.sql.inner_joins import Equality, equality_of, join_inner
from viewkeeper.sql.positions import conjunction, is_true, keep_columns, relocate, select, shift
from viewkeeper.sql.refusals import refuse_fallible, refuse_keyless
from viewkeeper.sql.relations import Join, Relation


@dataclass(frozen=True, slots=True)
class Leaf:
    relation: Relation
    label: str


@dataclass(frozen=True, slots=True)
class Inner:
    """Sources side by side: INNER, CROSS and comma joins, with the conditions of all their ONs."""

    parts: tuple[Tree, ...]
    conditions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Outer:
    """A join whose sides cannot change places; `kind` is "left", "right", "full", "semi" or "anti"."""

    kind: str
    left: Tree
    right: Tree
    conditions: tuple[Expression, ...]


Tree = Leaf | Inner | Outer


def width(tree: Tree) -> int:
    """How many columns it has."""
    match tree:
        case Leaf(relation=relation):
            return len(relation.columns)
        case Inner(parts=parts):
            return sum(map(width, parts))
    return width(tree.left) + (0 if tree.kind in ("semi", "anti") else width(tree.right))


def label(tree: Tree) -> str:
    """What messages call it."""
    match tree:
        case Leaf(label=text):
            return text
        case Inner(parts=parts):
            return ", ".join(map(label, parts))
    return label(tree.left) if tree.kind in ("semi", "anti") else f"{label(tree.left)}, {label(tree.right)}"


def inner_join(left: Tree, right: Tree, conditions: Sequence[Expression]) -> Tree:
    """Inner joins side by side are one flat list."""
    by = width(left)
    first = left if isinstance(left, Inner) else Inner((left,), ())
    second = right if isinstance(right, Inner) else Inner((right,), ())
    moved = tuple(shift(condition, by) for condition in second.conditions)
    return Inner((*first.parts, *second.parts), (*first.conditions, *moved, *conditions))


def build(tree: Tree, conditions: Sequence[Expression], *, once: bool = False) -> Relation:
    """The rows of `tree` for which all conditions are true."""
    match tree:
        case Leaf(relation=relation):
            return select(relation, conditions)
        case Inner():
            return _build_inner(tree, conditions, once)
    return _build_outer(tree, conditions, once)


def _build_inner(tree: Inner, conditions: Sequence[Expression], once: bool) -> Relation:
    starts = _starts(tree)
    inside: list[list[Expression]] = [[] for _ in tree.parts]
    equalities: list[Equality] = []
    above: list[Expression] = []
    written = (*tree.conditions, *conditions)
    for condition in written:
        spoken = _parts_of(condition, starts)
        equality = equality_of(condition, lambda side: _parts_of(side, starts))
        place = min(spoken, default=0)
        local = shift(condition, -starts[place])
        if len(spoken) == 1 and (not condition.fallible or _is_key(tree.parts[place], local)):
            inside[place].append(local)
        elif equality is not None:
            equalities.append(equality)
        else:
            above.append(condition)
    for condition in _implied(above):
        spoken = _parts_of(condition, starts)
        equality = equality_of(condition, lambda side: _parts_of(side, starts))
        if len(spoken) == 1:
            inside[min(spoken)].append(shift(condition, -starts[min(spoken)]))
        elif equality is not None:
            equalities.append(equality)
    sides = [build(part, mine, once=once) for part, mine in zip(tree.parts, inside, strict=True)]
    joined = join_inner(sides, equalities, [label(part) for part in tree.parts], once=once)
    above += [equality.condition for equality in joined.unused]
    kept = [relocate(condition, joined.places.__getitem__) for condition in written if condition in above]
    order = [joined.places[position] for position in sorted(joined.places)]
    return keep_columns(select(joined.relation, kept), order)


def _implied(conditions: Sequence[Expression]) -> list[Expression]:
    """What conditions say without saying it alone: each is added, and the condition stays. One that can fail says nothing."""
    told = [part for condition in conditions if not condition.fallible for part in implied(condition)]
    return list(dict.fromkeys(told))


def _starts(tree: Inner) -> list[int]:
    return [sum(map(width, tree.parts[:place])) for place in range(len(tree.parts))]


def _parts_of(expression: Expression, starts: Sequence[int]) -> frozenset[int]:
    return frozenset(sum(start <= position for start in starts) - 1 for position in columns_of(expression))


@dataclass(slots=True)
class _Sides:
    """What becomes of the conditions of an outer join."""

    pushed: tuple[list[Expression], list[Expression]] = field(default_factory=lambda: ([], []))
    keys: tuple[list[Expression], list[Expression]] = field(default_factory=lambda: ([], []))
    residual: list[Expression] = field(default_factory=list)
    above: list[Expression] = field(default_factory=list)


# The sides into which a condition of ON may go, and the sides into which a condition of WHERE may go.
_ON_SIDES = {"left": (1,), "right": (0,), "full": (), "semi": (0, 1), "anti": (1,)}
_WHERE_SIDES = {"left": (0,), "right": (1,), "full": (), "semi": (0,), "anti": (0,)}


def _build_outer(tree: Outer, conditions: Sequence[Expression], once: bool) -> Relation:
    split = width(tree.left)
    found = _Sides()
    for condition in conditions:
        spoken = _parts_of(condition, (0, split))
        if _goes_into(tree, condition):
            _push(found, condition, min(spoken), split)
        else:
            found.above.append(condition)
    for condition in tree.conditions:
        _place_on(found, tree.kind, condition, split)
    if not found.keys[0] and not once:
        raise refuse_keyless(f"{tree.kind.upper()} JOIN", label(tree.left), label(tree.right))
    residual = conjunction(found.residual)
    if residual is not None and residual.fallible and not once:
        raise refuse_fallible(f"the {tree.kind.upper()} JOIN with {label(tree.right)}", _by_table(residual, tree))
    sides = (
        build(tree.left, found.pushed[0], once=once),
        build(tree.right, found.pushed[1], once=once),
    )
    return select(_outer_join(tree.kind, sides, found.keys, residual), found.above)


def _by_table(expression: Expression, tree: Outer) -> Expression:
    """The expression with each column named by its source too."""
    labels = [*_labels(tree.left), *_labels(tree.right)]

    def name(node: Expression) -> Expression | None:
        return replace(node, name=f"{labels[node.position]}.{node.name}") if isinstance(node, ColumnRef) else None

    return rewrite(expression, name)


def _labels(tree: Tree) -> list[str]:
    """For each column what its source is called."""
    match tree:
        case Leaf(label=text):
            return [text] * width(tree)
        case Inner(parts=parts):
            return [one for part in parts for one in _labels(part)]
    return [*_labels(tree.left), *([] if tree.kind in ("semi", "anti") else _labels(tree.right))]


def _goes_into(tree: Outer, condition: Expression) -> bool:
    """Whether a condition of WHERE goes into a side: it cannot fail, or it is a key that the side's own joins need."""
    split = width(tree.left)
    spoken = _parts_of(condition, (0, split))
    if len(spoken) != 1 or min(spoken) not in _WHERE_SIDES[tree.kind]:
        return False
    side, local = (tree.right, shift(condition, -split)) if min(spoken) else (tree.left, condition)
    return not condition.fallible or _is_key(side, local)


def _is_key(tree: Tree, condition: Expression) -> bool:
    if isinstance(tree, Outer):
        return _goes_into(tree, condition)
    if isinstance(tree, Leaf):
        return False
    starts = _starts(tree)
    return equality_of(condition, lambda side: _parts_of(side, starts)) is not None


def _push(found: _Sides, condition: Expression, side: int, split: int) -> None:
    found.pushed[side].append(shift(condition, -split if side else 0))


def _place_on(found: _Sides, kind: str, condition: Expression, split: int) -> None:
    if is_true(condition):
        return
    spoken = _parts_of(condition, (0, split))
    equality = equality_of(condition, lambda side: _parts_of(side, (0, split)))
    if equality is not None:
        for side, expression in equality.by_side().items():
            found.keys[side].append(shift(expression, -split if side else 0))
    elif len(spoken) == 1 and min(spoken) in _ON_SIDES[kind]:
        _push(found, condition, min(spoken), split)
    else:
        found.residual.append(condition)


def _outer_join(
    kind: str,
    sides: tuple[Relation, Relation],
    keys: tuple[list[Expression], list[Expression]],
    residual: Expression | None,
) -> Relation:
    left, right = tuple(keys[0]), tuple(keys[1])
    if kind != "right":
        return Join(kind, sides, (left, right), residual)
    # RIGHT is LEFT with the sides changed, and its columns put back in their order.
    first, second = len(sides[0].columns), len(sides[1].columns)
    if residual is not None:
        residual = relocate(residual, lambda place: place + second if place < first else place - first)
    swapped = Join("left", (sides[1], sides[0]), (right, left), residual)
    return keep_columns(swapped, [*range(second, second + first), *range(second)])
