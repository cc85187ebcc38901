"""The text of a plan's line, and the tables that are kept there (paper 3, section 3).

In: the lines of a plan, and an index. Out: one text for each line, `r0 := base orders(id, region, amount)`; the tables
that the line keeps, with their records as `(key) → row`. Always: pure; the same plan has the same text in every process.
Lists of rows set aside, and of groups that do not fit, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from viewkeeper.algebra.expressions import Expression
from viewkeeper.algebra.relations import (
    Aggregation,
    Index,
    Join,
    Project,
    Relation,
    Scan,
    Select,
    Top,
    Union,
    is_product,
    starts_of,
)
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import SqlType
from viewkeeper.plan.explain.names import join_key_text, key_of, names_of, order_text, text_over, text_over_sides
from viewkeeper.plan.explain.plan_lines import BASE, DELTA, ENTRIES, VIEW, Line, Lines
from viewkeeper.plan.nodes import AggregateNode, JoinNode, TopNode


@dataclass(frozen=True, slots=True)
class KeptTable:
    """`name` of a table, and its records as `(key) → row`; `passes_on`: whether it feeds further lines."""

    name: str
    records: str
    passes_on: bool = False


def tables_at(lines: Lines, index: int) -> tuple[KeptTable, ...]:
    """The tables that the node of the line at `place` writes; clients keep a base table."""
    line = lines[index]
    match line.kind, line.relation, line.node:
        case kind, relation, _ if kind == DELTA:
            return (KeptTable("DELTA", _records(key_of(relation), "row as of the last epoch"), passes_on=True),)
        case kind, Join() as join, JoinNode() as node if kind == ENTRIES:
            return (KeptTable("REVERSE-JOIN", " and ".join(_entries_of_sides(join, node))),)
        case kind, relation, _ if kind == VIEW:
            return _view(lines, line)
        case _, Aggregation() as aggregation, AggregateNode(groups=groups, table=table):
            is_shown = groups is None and any(one.kind == VIEW and one.stored == table for one in lines)
            return (*_entries(aggregation), *(() if is_shown else _groups(aggregation)))
        case _, Join() as join, JoinNode(counts=counts) if counts is not None:
            return (KeptTable("match counts", _records((join_key_text(join),), "rows of each side")),)
        case _, Join() as join, JoinNode(matches=matches) if matches is not None:
            return (KeptTable("match counts", _records((join_key_text(join), "side", "key"), "matches")),)
        case _, Top(input=source, order=order), TopNode(places=kept):
            parts = (*(order_text(source, part) for part in order), *key_of(source))
            return (KeptTable("TOP-N", _records(parts, ", ".join(names_of(source)[at].text for at in kept))),)
    return ()


def _entries_of_sides(join: Join, node: JoinNode) -> Iterator[str]:
    """A side's entries: under the row key, if it is not looked up, with the columns that are in neither key."""
    sides = zip(join.sides, starts_of(join.sides), node.sides, strict=True)
    for number, (side, start, kept) in enumerate(sides, 1):
        key = (join_key_text(join), f"side {number}", *(key_of(side) if kept.key else ()))
        yield _records(key, ", ".join(names_of(side)[at - start].text for at in kept.places))


def _view(lines: Lines, line: Line) -> tuple[KeptTable, ...]:
    """The records that readers see, at the first of the views that have them in common."""
    same = [one for one in lines if one is line or (one.kind == VIEW and one.stored == line.stored)]
    if same[0] is not line:
        return ()
    row = dict.fromkeys(item.column.name for one in same for item in one.shown if item.part == "row")
    names = ", ".join(one.name for one in same)
    return (KeptTable(f"view{'s'[: len(same) - 1]} {names}", _records(key_of(line.relation), ", ".join(row))),)


def _records(key: tuple[str, ...], row: str) -> str:
    return f"({', '.join(key)}) → {row}" if row else f"({', '.join(key)})"


def _entries(aggregation: Aggregation) -> list[KeptTable]:
    """PRE-AGGREGATION: one for all of MIN, MAX and COUNT(DISTINCT) over arguments of the same types."""
    source, values = aggregation.input, dict[tuple[SqlType, ...], dict[str, None]]()
    for one in aggregation.grouping.aggregates:
        if one.needs_entries:
            where = "" if one.filter is None else f" where {text_over(source, one.filter)}"
            values.setdefault(tuple(arg.type for arg in one.args), {})[_list(source, one.args) + where] = None
    tables = [_records((*key_of(aggregation), " or ".join(texts)), "multiplicity") for texts in values.values()]
    return [KeptTable("PRE-AGGREGATION", table) for table in tables]


def _groups(aggregation: Aggregation) -> list[KeptTable]:
    """The groups have a table of their own where they are no view's records: with HAVING, and inside a query."""
    row = dict.fromkeys(("count(*)", *(text_over(aggregation.input, part) for part in aggregation.grouping.aggregates)))
    return [KeptTable("groups", _records(key_of(aggregation), ", ".join(row)), passes_on=True)]


def line_text(line: Line) -> str:
    """The line and its inputs: `γ r3 by (region) of (count(*))`."""
    symbol, name, rest = line_parts(line)
    if line.kind == BASE:
        return f"{symbol} {name}{rest}"
    if line.kind == VIEW:
        return f"{symbol} {name} r{line.inputs[0]}"
    if line.kind == ENTRIES and isinstance(line.relation, Join):
        sides = zip(line.inputs, line.relation.sides, line.relation.keys, strict=True)
        return f"{symbol} {', '.join(f'r{source} ({_list(side, key)})' for source, side, key in sides)}"
    sources = ", ".join(f"r{source}" for source in line.inputs)
    return " ".join(part for part in (symbol, sources, name, rest) if part)


def line_parts(line: Line) -> tuple[str, str, str]:
    """A line's symbol, what follows it directly, and the rest of its text, without its inputs."""
    if line.kind == VIEW:
        return "view", line.name, ""
    if line.kind == ENTRIES:
        return "reverse-join", "", ""
    if line.kind == DELTA:
        return "δ", "", "[stored]"
    match line.relation:
        case Scan(table=table):
            return "base", table.name, f"({', '.join(column.name for column in table.columns)})"
        case Select(input=source, predicate=predicate):
            return "σ", "", f"({text_over(source, predicate)})"
        case Aggregation(input=source, grouping=grouping):
            return "γ", "", f"by ({_list(source, grouping.groups)}) of ({_list(source, grouping.aggregates)})"
        case Project(input=source, outputs=outputs):
            pairs = [(text_over(source, one.expression), one.name) for one in outputs]
            shown = (text if name.lower() == text else f"{text} as {name}" for text, name in pairs)
            return "π", "", f"({', '.join(shown)})"
        case Join() as join if is_product(join):
            return "×", "", ""
        case Join(kind=kind, residual=residual) as join:
            return "⋈", f"[{kind}]", "" if residual is None else f"where ({text_over_sides(join, residual)})"
        case Union():
            return "∪", "", ""
        case Top(input=source, order=order, limit=limit):
            return "top", f"{limit}", f"by ({', '.join(order_text(source, part) for part in order)})"
        case Index(input=source, indexed=indexed, covered=covered):
            keys, others = (", ".join(source.columns[at].name for at in part) for part in (indexed, covered))
            return "index", "", f"by ({keys}) covering ({others})"
    raise InvariantBroken(f"{type(line.relation).__name__} has no text")


def _list(source: Relation, parts: tuple[Expression, ...]) -> str:
    return ", ".join(text_over(source, part) for part in parts)
