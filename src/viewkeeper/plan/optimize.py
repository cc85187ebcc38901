"""The optimizer: all its rules in one tuple, in the order in which they are applied.

In: a bound relation; or the names of rules that are off. Out: a relation of the same columns and rows. Always: pure; every
rule preserves the results of views, by the identity in the first line of its docstring. A rule is over:

- "relation": the relation of one text, before it is lowered (`optimize`). These rules rewrite products, FROM and WHERE as
  written, from the inside out.
- "nodes": the nodes of a lowered view, and those that the catalog has stored (`define`).
- "views": all views. The rule returns sets of views that one node can compute; OPTIMIZE VIEWS takes the subsets that cost
  less so (`choose`).
- "groupings": the same for sets of views whose γ are computed from that of another set.
- "epoch": the nodes of all views (`planner`).

Without a rule that `is_needed` some relation could not be lowered. The names of the others are the switches of `OPTIMIZE
VIEWS WITHOUT`. Those over one relation are also left out of the plan of a view that costs less without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

from viewkeeper.algebra import construct
from viewkeeper.algebra.canonical import spell
from viewkeeper.algebra.expressions import Call, Cast, ColumnRef, Expression, conjuncts, implied
from viewkeeper.algebra.relations import (
    ON_SIDES,
    WHERE_SIDES,
    Equality,
    Join,
    Output,
    Relation,
    Select,
    equality_of,
    inputs_of,
    is_product,
    sides_of,
    starts_of,
)
from viewkeeper.algebra.rewriting import (
    column_refs,
    conditions_over,
    conjunction,
    keep_columns,
    project,
    relocate,
    select,
    shift,
    with_inputs,
)
from viewkeeper.errors import InvariantBroken
from viewkeeper.plan.nodes import AggregateNode, Node
from viewkeeper.plan.relation_checks import validate
from viewkeeper.plan.share_copies import share_copies
from viewkeeper.plan.share_groupings import feed_groupings, share_groupings
from viewkeeper.plan.share_nodes import share_nodes
from viewkeeper.sql.bind_from import inner_join

ProductRewrite = Callable[[Join, list[Expression]], Relation]
Terms = tuple[Expression, Expression]  # of an equality


def rewrite_products(relation: Relation, change: ProductRewrite) -> Relation:
    """`change` gets a product and the conditions above it, in written order."""
    below, conditions = conditions_over(relation)
    if isinstance(below, Join) and is_product(below):
        sides = tuple(rewrite_products(side, change) for side in below.sides)
        return change(replace(below, sides=sides), conditions)
    return with_inputs(relation, tuple(rewrite_products(part, change) for part in inputs_of(relation)))


def stacked(relation: Relation, conditions: Iterable[Expression]) -> Relation:
    """A σ for each condition: over a product there may be more of them than one conjunction can have."""
    return reduce(Select, conditions, relation)


# A kind of join and the side that is required → what it is then.
_REQUIRED = {("right", 0): "inner", ("left", 1): "inner", ("full", 0): "left", ("full", 1): "right"}
_ARITHMETIC = frozenset(("+", "-", "*", "/", "%", "div"))


def require_sides(relation: Relation) -> Relation:
    """σ p (A ⟖ B) = σ p (A ⋈ B), and σ p (A ⟗ B) = σ p (A ⟕ B), where p is true only if A has a row.

    Only for a p that is the key of a product inside of A, as in `FROM a, b RIGHT JOIN c ON b.y = c.y WHERE a.x = b.x`.
    """
    found = _required(relation, [])
    if found.columns == relation.columns:
        return found
    # what could be absent stays nullable
    return project(found, [Output(ref.name, ref) for ref in column_refs(relation)])


def _required(relation: Relation, known: Sequence[Expression]) -> Relation:
    """`known`: conditions that every row which counts in the end fulfils."""
    join, conditions = conditions_over(relation)
    if not isinstance(join, Join):
        return with_inputs(relation, tuple(_required(part, []) for part in inputs_of(relation)))
    known = [*known, *conditions]
    kind = join.kind
    for side in range(len(join.sides)):
        if (kind, side) in _REQUIRED and any(_requires(join, side, condition) for condition in known):
            kind = _REQUIRED[kind, side]
    sides = tuple(_required(side, _of_side(join, kind, index, known)) for index, side in enumerate(join.sides))
    if kind == join.kind and all(new is old for new, old in zip(sides, join.sides, strict=True)):
        return relation
    if kind != "inner" or join.kind == "inner":
        return stacked(replace(join, kind=kind, sides=sides), conditions)
    return stacked(inner_join(sides[0], sides[1], _on(join), (join.labels[0], join.labels[1])), conditions)


def _requires(join: Join, side: int, condition: Expression) -> bool:
    """Whether the condition is not true where the side is absent, all its columns NULL, and a product inside needs it."""
    if sides_of(condition, join.sides) != {side} or not isinstance(condition, Call):
        return False
    is_needed = _is_equality_inside(join.sides[side], shift(condition, -starts_of(join.sides)[side]))
    return is_needed and any(map(_is_null_of_nulls, condition.args))


def _is_equality_inside(side: Relation, condition: Expression) -> bool:
    """Whether a product at or below the side has the condition as an equality between its own sides."""
    join, _ = conditions_over(side)
    if not isinstance(join, Join):
        return False
    if is_product(join) and equality_of(condition, join.sides) is not None:
        return True
    if len(sides := sides_of(condition, join.sides)) != 1:
        return False
    (number,) = sides
    return _is_equality_inside(join.sides[number], shift(condition, -starts_of(join.sides)[number]))


def _is_null_of_nulls(expression: Expression) -> bool:
    match expression:
        case ColumnRef():
            return True
        case Cast(arg=arg):
            return _is_null_of_nulls(arg)
        case Call(name=name, args=args) if name in _ARITHMETIC:
            return any(map(_is_null_of_nulls, args))
    return False


def _of_side(join: Join, kind: str, index: int, known: Sequence[Expression]) -> list[Expression]:
    """The conditions that a row of the side fulfils if it is part of a row that counts."""
    if kind != "inner" and index not in WHERE_SIDES[kind]:
        return []
    start = starts_of(join.sides)[index]
    return [shift(condition, -start) for condition in known if sides_of(condition, join.sides) == {index}]


def _on(join: Join) -> list[Expression]:
    by = len(join.sides[0].columns)
    equal = [construct.compare("=", first, shift(second, by)) for first, second in zip(*join.keys, strict=True)]
    return equal if join.residual is None else [*equal, *conjuncts(join.residual)]


def imply_conditions(relation: Relation) -> Relation:
    """σ (p∧q)∨(p∧r) (A × B) = σ (p∧q)∨(p∧r) σ p (A × B), if the disjunction cannot fail, and p is for one side or a key."""
    return rewrite_products(relation, _with_implied)


def _with_implied(product: Join, conditions: list[Expression]) -> Relation:
    sides = product.sides
    across = [part for part in conditions if not part.fallible and len(sides_of(part, sides)) > 1]
    parts = (part for condition in across for part in implied(condition))
    useful = [part for part in parts if len(sides_of(part, sides)) == 1 or equality_of(part, sides) is not None]
    return stacked(product, dict.fromkeys((*conditions, *useful)))


def push_conditions(relation: Relation) -> Relation:
    """σ p∧q (A ⋈ B) = σ q (σ p (A) ⋈ B), and A ⟕ on θ∧p B = A ⟕ on θ σ p (B), where p refers to that side alone.

    At a join that is not inner, a condition above it goes into a side whose every row is in the result, one of ON into a
    side whose rows it only leaves out. A condition that can fail stays above, where it sees only joined rows, unless a join
    further down needs it as a key, or it is in ON.
    """
    below, conditions = conditions_over(relation)
    if not isinstance(below, Join):
        return with_inputs(relation, tuple(map(push_conditions, inputs_of(relation))))
    join, above = _pushed(below, conditions)
    join = replace(join, sides=tuple(map(push_conditions, join.sides)))
    return stacked(join, above) if is_product(join) else select(join, above)


def _pushed(join: Join, conditions: Sequence[Expression]) -> tuple[Join, list[Expression]]:
    """The join with the conditions that go into its sides, and those that stay above it."""
    inside: list[list[Expression]] = [[] for _ in join.sides]
    above, residual = list[Expression](), list[Expression]()
    for condition in conditions:
        number = min(sides_of(condition, join.sides), default=0)
        (inside[number] if _goes_into(join, condition) else above).append(condition)
    for condition in () if join.residual is None else conjuncts(join.residual):
        spoken = sides_of(condition, join.sides)
        is_of_side = len(spoken) == 1 and min(spoken) in ON_SIDES[join.kind]
        (inside[min(spoken)] if is_of_side else residual).append(condition)
    moved = zip(join.sides, inside, starts_of(join.sides), strict=True)
    sides = tuple(select(side, [shift(one, -start) for one in own]) for side, own, start in moved)
    return replace(join, sides=sides, residual=conjunction(residual)), above


def _goes_into(join: Join, condition: Expression) -> bool:
    spoken = sides_of(condition, join.sides)
    if len(spoken) != 1:
        return False
    (number,) = spoken
    if join.kind != "inner" and number not in WHERE_SIDES[join.kind]:
        return False
    local = shift(condition, -starts_of(join.sides)[number])
    return not condition.fallible or _is_key(join.sides[number], local)


def _is_key(side: Relation, condition: Expression) -> bool:
    """Whether a product at or below the side can have the condition as its key."""
    below, _ = conditions_over(side)
    if not isinstance(below, Join):
        return False
    if is_product(below):
        return equality_of(condition, below.sides) is not None
    return _goes_into(below, condition)


def join_on_one_key(relation: Relation) -> Relation:
    """σ a=b∧b=c (A × B × C) = A ⋈ B ⋈ C on a = b = c, one join (paper 3, section 4.2, case 1), if all sides have each key."""
    return rewrite_products(relation, _joined_on_one_key)


def _joined_on_one_key(product: Join, conditions: list[Expression]) -> Relation:
    found = [equality_of(condition, product.sides) for condition in conditions]
    count = len(product.sides)
    keys = _shared_keys(count, [one for one in found if one is not None]) if count > 2 else None
    if keys is None:
        return stacked(product, conditions)
    starts = starts_of(product.sides)
    local = (tuple(shift(term, -start) for term in terms) for terms, start in zip(keys, starts, strict=True))
    others = [condition for condition, one in zip(conditions, found, strict=True) if one is None]
    return select(replace(product, keys=tuple(local)), others)


def _shared_keys(count: int, equalities: Sequence[Equality]) -> list[list[Expression]] | None:
    """For each side its terms, when the equalities give all sides the same keys."""
    classes: list[set[tuple[int, Expression]]] = []
    for equality in equalities:
        if len(equality.left_sides) > 1 or len(equality.right_sides) > 1:
            return None
        merged = set(equality.by_side().items())
        for known in [one for one in classes if one & merged]:
            classes.remove(known)
            merged |= known
        classes.append(merged)
    terms = [dict(one) for one in classes]
    if not terms or any(not len(one) == len(whole) == count for one, whole in zip(terms, classes, strict=True)):
        return None
    return [[one[side] for one in terms] for side in range(count)]


def binary_joins(relation: Relation) -> Relation:
    """σ a=b∧b=c∧p (A × B × C) = π σ p ((A ⋈ B on a = b) ⋈ C on b = c), in written order if possible; A ⟖ B = π (B ⟕ A).

    The parts of a key are sorted by their spelling. A side without an equality stays a product, which no view can maintain.
    """
    return _normalized(rewrite_products(relation, _joined_in_pairs))


def _joined_in_pairs(product: Join, conditions: list[Expression]) -> Relation:
    sides, labels = product.sides, product.labels
    equalities = [one for part in conditions if (one := equality_of(part, sides)) is not None]
    starts = starts_of(sides)
    joined, waiting = [0], list(range(1, len(sides)))
    relation, unused = sides[0], equalities
    while waiting:
        following = next((number for number in waiting if _usable(unused, joined, number)), waiting[0])
        used = _usable(unused, joined, following)
        moved = _positions(sides, joined)
        left = tuple(relocate(known, moved.__getitem__) for known, _ in used.values())
        right = tuple(shift(new, -starts[following]) for _, new in used.values())
        names = (", ".join(labels[number] for number in joined), labels[following])
        relation = Join("inner", (relation, sides[following]), (left, right), labels=names)
        unused = [equality for equality in unused if equality not in used]
        joined.append(following)
        waiting.remove(following)
    moved = _positions(sides, joined)
    used_up = {one.condition for one in equalities} - {one.condition for one in unused}
    above = [relocate(part, moved.__getitem__) for part in conditions if part not in used_up]
    return keep_columns(select(relation, above), [moved[position] for position in sorted(moved)])


def _usable(equalities: Sequence[Equality], joined: Sequence[int], following: int) -> dict[Equality, Terms]:
    """The equalities between what is joined and the next side, with that side's term last."""
    found = {}
    for one in equalities:
        if one.left_sides <= set(joined) and one.right_sides == {following}:
            found[one] = (one.left, one.right)
        elif one.right_sides <= set(joined) and one.left_sides == {following}:
            found[one] = (one.right, one.left)
    return found


def _positions(sides: Sequence[Relation], joined: Sequence[int]) -> dict[int, int]:
    """Position in FROM order → position in the order of joining."""
    starts = starts_of(sides)
    order = (starts[number] + column for number in joined for column in range(len(sides[number].columns)))
    return {position: at for at, position in enumerate(order)}


def _normalized(relation: Relation) -> Relation:
    """The relation without right joins, and with keys whose order does not depend on that of conditions."""
    relation = with_inputs(relation, tuple(map(_normalized, inputs_of(relation))))
    if not isinstance(relation, Join):
        return relation
    parts = sorted(zip(*relation.keys, strict=True), key=lambda terms: list(map(spell, terms)))
    if parts:
        relation = replace(relation, keys=tuple(zip(*parts, strict=True)))
    if relation.kind != "right":
        return relation
    first, second = (len(side.columns) for side in relation.sides)
    residual = relation.residual
    if residual is not None:
        residual = relocate(residual, lambda at: at + second if at < first else at - first)
    swapped = Join("left", relation.sides[::-1], relation.keys[::-1], residual)
    return keep_columns(swapped, [*range(second, second + first), *range(second)])


def evaluate_once(nodes: Sequence[Node], alone: Collection[int]) -> tuple[Node, ...]:
    """γ f(e) (δ) and γ g(e) (δ) = γ f(v) and γ g(v) over one π v=e (δ): expressions over changed rows are computed once
    for all γ (`operators.grouping_kernel`), but for those whose tables are `alone`.
    """
    return tuple(
        replace(node, alone=True) if isinstance(node, AggregateNode) and node.table in alone else node for node in nodes
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """What it does, to what, and whether some view has no plan without it."""

    apply: Callable[..., Any]
    over: Literal["relation", "nodes", "views", "groupings", "epoch"]
    is_needed: bool = False

    @property
    def name(self) -> str:
        return self.apply.__name__


RULES: tuple[Rule, ...] = (
    Rule(require_sides, "relation", is_needed=True),
    Rule(imply_conditions, "relation"),
    Rule(push_conditions, "relation"),
    Rule(join_on_one_key, "relation"),
    Rule(binary_joins, "relation", is_needed=True),
    Rule(share_nodes, "nodes"),
    Rule(share_copies, "views"),
    Rule(share_groupings, "views"),
    Rule(feed_groupings, "groupings"),
    Rule(evaluate_once, "epoch"),
)
SWITCHES = tuple(rule.name for rule in RULES if not rule.is_needed)


def rules_over(over: str, without: Collection[str] = ()) -> tuple[Rule, ...]:
    """The rules over one kind of thing, but for those `without` which it is planned."""
    return tuple(rule for rule in RULES if rule.over == over and (rule.is_needed or rule.name not in without))


def optimize(relation: Relation, *, without: Collection[str] = ()) -> Relation:
    """`without` are names of rules that are left out."""
    validate(relation)
    columns = relation.columns
    for rule in rules_over("relation", without):
        relation = rule.apply(relation)
    validate(relation)
    if relation.columns != columns:
        raise InvariantBroken("the optimizer changed the columns of a view")
    return relation
