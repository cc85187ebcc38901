"""Zones: which relations of a plan share a row key.

In: a relation. Out: the text of its zone, and the names of its row key. Always: two relations have one zone text when
they have one row key; rows do not move within a zone, and a zone border is a shuffle (paper 3, section 4.2).
"""

from __future__ import annotations

from collections import Counter

from viewkeeper.plan.explain.lines import ENTRIES, Line
from viewkeeper.plan.explain.names import names_of, order_text, text_over, told_apart
from viewkeeper.plan.lookups import key_sides, looked_up
from viewkeeper.sql.relations import (
    Aggregation,
    Index,
    Join,
    Project,
    Relation,
    RowsOfGroups,
    Scan,
    Select,
    Top,
    Union,
    ViewRows,
)

JOIN_SYMBOLS = {"inner": "⋈", "left": "⟕", "right": "⟖", "full": "⟗", "semi": "⋉", "anti": "▷"}


def zone_of(relation: Relation) -> str:
    """The row key of the zone that a relation belongs to."""
    match relation:
        case Scan(table=table):
            return f"{table.name}({', '.join(table.key)})"
        case Aggregation(input=source):
            return f"{subject_of(source)} by ({', '.join(key_of(relation))})"
        case Join():
            return " × ".join(map(_part_of_zone, key_sides(relation)))
        case Union(inputs=inputs):
            return "(branch, key) of " + " ∪ ".join(map(_part_of_zone, inputs))
        case Top(input=source, order=order):
            return f"{subject_of(source)} by rank of ({', '.join(order_text(source, part) for part in order)})"
        case Index(input=source):
            return f"{subject_of(source)} by ({', '.join(key_of(relation))})"
    return zone_of(relation.input)


def zone_at(line: Line) -> str:
    """The zone of a line; the REVERSE-JOIN below a join is under the join key."""
    join = line.relation
    if line.kind != ENTRIES or not isinstance(join, Join):
        return zone_of(line.relation)
    return f"{' ⋈ '.join(map(_part_of_subject, join.sides))} on ({join_key_text(join)})"


def key_of(relation: Relation) -> tuple[str, ...]:
    """The names of the row key of a relation."""
    match relation:
        case Scan(table=table):
            return table.key
        case Aggregation(input=source, grouping=grouping):
            return tuple(text_over(source, group) for group in grouping.groups)
        case Join(sides=sides):
            return key_of(sides[0]) if relation.keeps_first else _key_of_sides(relation)
        case Union(inputs=inputs):
            keys = {key_of(source) for source in inputs}
            return ("branch", *(keys.pop() if len(keys) == 1 else ("key",)))
        case Top():
            return ("rank",)
        case Index(key=key):
            return tuple(relation.input.columns[position].name for position in key)
    return key_of(relation.input)


def subject_of(relation: Relation) -> str:
    """What the rows of a relation are rows of: a table, or several joined; grouped ones are in brackets."""
    match relation:
        case Scan(table=table):
            return table.name
        case Join(kind=kind, sides=sides):
            return f" {JOIN_SYMBOLS[kind]} ".join(map(_part_of_subject, sides))
        case Union(inputs=inputs):
            return " ∪ ".join(map(_part_of_subject, inputs))
        case Aggregation() | Top():
            return f"[{zone_of(relation)}]"
        case RowsOfGroups(rows=rows):
            return subject_of(rows)
    return subject_of(relation.input)


def join_key_text(join: Join) -> str:
    """`customer = id`; written once where all sides name it the same."""
    sides = [[text_over(side, part) for part in key] for side, key in zip(join.sides, join.keys, strict=True)]
    return ", ".join(" = ".join(dict.fromkeys(parts)) for parts in zip(*sides, strict=True))


def _key_of_sides(join: Join) -> tuple[str, ...]:
    """The keys of all sides that are not looked up, named like the columns of the join."""
    keys = [key_of(side) for side in join.sides]
    names = [{name.text for name in names_of(side)} for side in join.sides]
    every = [each | {part.lower() for part in key} for each, key in zip(names, keys, strict=True)]
    often = Counter(name for each in every for name in each)
    owners = [_key_owners(side) for side in join.sides]
    pairs, lookups = zip(owners, keys, strict=True), looked_up(join)
    sides = [[] if number in lookups else list(zip(*pair, strict=True)) for number, pair in enumerate(pairs)]
    return tuple(told_apart(join, sides, often))


def _key_owners(relation: Relation) -> tuple[str, ...]:
    """For each part of the row key, the base table whose key it is part of."""
    root = _root(relation)
    if isinstance(root, Scan):
        return (root.table.name,) * len(root.table.key)
    if isinstance(root, Join):
        return tuple(owner for side in key_sides(root) for owner in _key_owners(side))
    return ("",) * len(key_of(relation))


def _part_of_zone(relation: Relation) -> str:
    """The zone of one side, in a form that can precede or follow ×."""
    root = _root(relation)
    if isinstance(root, Join) and len(sides := key_sides(root)) == 1:
        return _part_of_zone(sides[0])
    return zone_of(root) if isinstance(root, Scan | Join) else f"[{zone_of(root)}]"


def _part_of_subject(relation: Relation) -> str:
    """The subject of one side, in a form that can precede or follow ⋈."""
    subject = subject_of(relation)
    return f"[{subject}]" if isinstance(_root(relation), Join | Union) else subject


def _root(relation: Relation) -> Relation:
    """The relation at or below that determines the row key; σ, π and a view do not change it."""
    while isinstance(relation, Select | Project | ViewRows):
        relation = relation.input
    return relation
