"""Zones: which nodes of a plan share a row key.

In: a plan and a place. Out: the text of the zone, and the names of its row key. Always: two nodes have one zone text when
they have one row key; between them a row does not move, and a border between zones is a shuffle (paper 3, section 4.2).
"""

from __future__ import annotations

from collections import Counter

from viewkeeper.plan.logical import (
    Base,
    Delta,
    Fold,
    Index,
    Join,
    LogicalPlan,
    Project,
    ReverseJoin,
    Select,
    Top,
    Union,
    View,
)
from viewkeeper.plan.naming import names_at, order_text, text_over, told_apart

JOIN_SYMBOLS = {"inner": "⋈", "left": "⟕", "full": "⟗", "semi": "⋉", "anti": "▷"}


def zone_at(plan: LogicalPlan, place: int) -> str:
    """The row key of the zone that the node belongs to."""
    match plan.nodes[place]:
        case Base(table=table):
            return f"{table.name}({', '.join(table.key)})"
        case Fold(input=source):
            return f"{subject_at(plan, source)} by ({', '.join(key_at(plan, place))})"
        case ReverseJoin() as table:
            subject = " ⋈ ".join(_part_of_subject(plan, source) for source in table.inputs)
            return f"{subject} on ({join_key_text(plan, table)})"
        case Join() as join:
            sides = plan.reverse_join(place).inputs
            if join.keeps_first:
                return zone_at(plan, sides[0])
            return " × ".join(_part_of_zone(plan, source) for source in sides)
        case Union(inputs=inputs):
            return "(branch, key) of " + " ∪ ".join(_part_of_zone(plan, source) for source in inputs)
        case Top(input=source, order=order):
            parts = ", ".join(order_text(plan, source, part) for part in order)
            return f"{subject_at(plan, source)} by rank of ({parts})"
        case Index():
            return f"{plan.base_of(place).name} by ({', '.join(key_at(plan, place))})"
        case node:
            return zone_at(plan, node.input)


def key_at(plan: LogicalPlan, place: int) -> tuple[str, ...]:
    """The names of the row key of what the node gives; a REVERSE-JOIN has entries of several sides instead."""
    match plan.nodes[place]:
        case Base(table=table):
            return table.key
        case Fold(input=source, grouping=grouping):
            return tuple(text_over(plan, source, group) for group in grouping.groups)
        case ReverseJoin() as table:
            return (join_key_text(plan, table), "side", "key")
        case Join() as join:
            table = plan.reverse_join(place)
            if join.keeps_first:
                return key_at(plan, table.inputs[0])
            return _key_of_sides(plan, table)
        case Union(inputs=inputs):
            keys = {key_at(plan, source) for source in inputs}
            return ("branch", *(keys.pop() if len(keys) == 1 else ("key",)))
        case Top():
            return ("rank",)
        case Index(columns=columns):
            table = plan.base_of(place)
            names = [table.columns[position].name for position in columns]
            return (*names, *(name for name in table.key if name not in names))
        case node:
            return key_at(plan, node.input)


def subject_at(plan: LogicalPlan, place: int) -> str:
    """What the rows of a node are rows of: a table, or several joined; what was grouped stands in brackets."""
    match plan.nodes[place]:
        case Base(table=table):
            return table.name
        case Join(kind=kind):
            sides = plan.reverse_join(place).inputs
            return f" {JOIN_SYMBOLS[kind]} ".join(_part_of_subject(plan, source) for source in sides)
        case Union(inputs=inputs):
            return " ∪ ".join(_part_of_subject(plan, source) for source in inputs)
        case Fold() | Top():
            return f"[{zone_at(plan, place)}]"
    return subject_at(plan, plan.inputs(place)[0])


def join_key_text(plan: LogicalPlan, table: ReverseJoin) -> str:
    """`customer = id`; said once where all sides call it the same."""
    keys = zip(table.inputs, table.keys, strict=True)
    sides = [[text_over(plan, source, part) for part in key] for source, key in keys]
    return ", ".join(" = ".join(dict.fromkeys(parts)) for parts in zip(*sides, strict=True))


def _key_of_sides(plan: LogicalPlan, table: ReverseJoin) -> tuple[str, ...]:
    """The keys of all sides, named as the columns of the join are."""
    keys = [key_at(plan, source) for source in table.inputs]
    owners = [_key_owners(plan, source) for source in table.inputs]
    widths = zip(table.inputs, table.widths, strict=True)
    names = [{name.text for name in names_at(plan, source)[:width]} for source, width in widths]
    every = [each | {part.lower() for part in key} for each, key in zip(names, keys, strict=True)]
    often = Counter(name for each in every for name in each)
    sides = [list(zip(*pair, strict=True)) for pair in zip(owners, keys, strict=True)]
    return tuple(told_apart(plan, table, sides, often))


def _key_owners(plan: LogicalPlan, place: int) -> tuple[str, ...]:
    """For each part of the row key, the base table whose key it is part of."""
    node = plan.nodes[_root(plan, place)]
    if isinstance(node, Base):
        return (node.table.name,) * len(node.table.key)
    if isinstance(node, Join):
        sides = plan.reverse_join(_root(plan, place)).inputs
        return tuple(o for source in (sides[:1] if node.keeps_first else sides) for o in _key_owners(plan, source))
    return ("",) * len(key_at(plan, place))


def _part_of_zone(plan: LogicalPlan, place: int) -> str:
    """The zone of one side, so that it can stand beside ×."""
    root = _root(plan, place)
    node = plan.nodes[root]
    if isinstance(node, Join) and node.keeps_first:
        return _part_of_zone(plan, plan.reverse_join(root).inputs[0])
    zone = zone_at(plan, root)
    return zone if isinstance(node, Base | Join) else f"[{zone}]"


def _part_of_subject(plan: LogicalPlan, place: int) -> str:
    """What one side is about, so that it can stand beside ⋈."""
    subject = subject_at(plan, place)
    return f"[{subject}]" if isinstance(plan.nodes[_root(plan, place)], Join | Union) else subject


def _root(plan: LogicalPlan, place: int) -> int:
    """The node at or below `place` that made the rows what they are; δ, σ, π and a view leave their key alone."""
    node = plan.nodes[place]
    return _root(plan, node.input) if isinstance(node, Delta | Select | Project | View) else place
