"""The text of a plan's line, and the tables that are kept there (paper 3, section 3).

In: the lines of a plan, and an index. Out: one text for each line, `r0 := base orders(id, region, amount)`; the tables
that the line keeps, with their records as `(key) → row`. Always: pure; the same plan has the same text in every
process, and equal lines over equal inputs have equal texts. Lists of rows set aside, and of groups that do not fit, are
no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.algebra.expressions import Aggregate, Expression
from viewkeeper.algebra.relations import (
    Aggregation,
    Index,
    Join,
    Output,
    Project,
    Relation,
    Scan,
    Select,
    Top,
    Union,
    is_product,
)
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import SqlType
from viewkeeper.plan.explain.names import join_key_text, key_of, order_text, text_over, text_over_sides
from viewkeeper.plan.explain.plan_lines import BASE, DELTA, ENTRIES, OPERATOR, VIEW, Line, Lines
from viewkeeper.plan.share_copies import mark_of


@dataclass(frozen=True, slots=True)
class KeptTable:
    """`name` of a table, and its records as `(key) → row`; `passes_on`: whether it feeds further lines."""

    name: str
    records: str
    passes_on: bool = False


def tables_at(lines: Lines, place: int) -> tuple[KeptTable, ...]:
    """The tables kept by the line at `place`; clients keep a base table."""
    line = lines[place]
    match line.kind, line.relation:
        case kind, relation if kind == DELTA:
            return (KeptTable("DELTA", _records(key_of(relation), "row as of the last epoch"), passes_on=True),)
        case kind, Join() as join if kind == ENTRIES:
            return (KeptTable("REVERSE-JOIN", _records((join_key_text(join), "side", "key"), "row")),)
        case kind, relation if kind == VIEW:
            shared = line.stored is not None
            same = [one for one in lines if one is line or (shared and one.kind == VIEW and one.stored == line.stored)]
            if same[0] is not line:
                return ()
            row = dict.fromkeys(text for one in same for text in _shown(one.relation))
            names = ", ".join(one.name for one in same)
            return (KeptTable(f"view{'s'[: len(same) - 1]} {names}", _records(key_of(relation), ", ".join(row))),)
        case kind, Aggregation() as aggregation if kind == OPERATOR:
            is_shown = _is_shown(lines, place, line.stored)
            return (*_entries(aggregation), *(() if is_shown else _groups(aggregation)))
        case kind, Join() as join if kind == OPERATOR:
            return _counts(join)
        case kind, Top(input=source, order=order) if kind == OPERATOR:
            parts = (*(order_text(source, part) for part in order), *key_of(source))
            return (KeptTable("TOP-N", _records(parts, "row")),)
    return ()


def _records(key: tuple[str, ...], row: str) -> str:
    return f"({', '.join(key)}) → {row}" if row else f"({', '.join(key)})"


def _entries(aggregation: Aggregation) -> list[KeptTable]:
    """PRE-AGGREGATION: one for all of MIN, MAX and COUNT(DISTINCT) over arguments of the same types."""
    values: dict[tuple[SqlType, ...], dict[str, None]] = {}
    for one in aggregation.grouping.aggregates:
        if one.needs_entries:
            texts = values.setdefault(tuple(arg.type for arg in one.args), {})
            texts[_argument_text(aggregation.input, one)] = None
    tables = [_records((*key_of(aggregation), " or ".join(texts)), "multiplicity") for texts in values.values()]
    return [KeptTable("PRE-AGGREGATION", table) for table in tables]


def _argument_text(source: Relation, aggregate: Aggregate) -> str:
    text = ", ".join(text_over(source, arg) for arg in aggregate.args)
    return text if aggregate.filter is None else f"{text} where {text_over(source, aggregate.filter)}"


def _groups(aggregation: Aggregation) -> list[KeptTable]:
    """The groups have a table of their own where they are no view's records: with HAVING, and inside a query."""
    row = dict.fromkeys(("count(*)", *(text_over(aggregation.input, part) for part in aggregation.grouping.aggregates)))
    return [KeptTable("groups", _records(key_of(aggregation), ", ".join(row)), passes_on=True)]


def _is_shown(lines: Lines, place: int, stored: int | None) -> bool:
    """Whether a view shows the records themselves: only π, and which of them it shows, is between."""
    readers = [other for other, line in enumerate(lines) if place in line.inputs]
    return any(
        lines[other].stored == stored
        if lines[other].kind == VIEW
        else _only_chooses(lines[other].relation) and _is_shown(lines, other, stored)
        for other in readers
    )


def _only_chooses(relation: Relation) -> bool:
    return isinstance(relation, Project) or mark_of(relation) is not None


def _counts(join: Join) -> tuple[KeptTable, ...]:
    """A join that is not inner counts matches, to know which rows have none."""
    if join.kind == "inner":
        return ()
    key = join_key_text(join)
    if join.residual is None:
        return (KeptTable("match counts", _records((key,), "rows of each side")),)
    return (KeptTable("match counts", _records((key, "side", "key"), "matches")),)


def _shown(relation: Relation) -> list[str]:
    """The columns that a view stores: those in its key are not stored again."""
    key = {part.lower() for part in key_of(relation)}
    texts = [column.name for column in relation.columns]
    if isinstance(relation, Project):
        texts = [text_over(relation.input, output.expression) for output in relation.outputs]
    return [c.name for c, text in zip(relation.columns, texts, strict=True) if text.lower() not in key]


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
            return "π", "", f"({', '.join(_output_text(source, output) for output in outputs)})"
        case Join() as join if is_product(join):
            return "×", "", ""
        case Join(kind=kind, residual=residual) as join:
            return "⋈", f"[{kind}]", "" if residual is None else f"where ({text_over_sides(join, residual)})"
        case Union():
            return "∪", "", ""
        case Top(input=source, order=order, limit=limit):
            return "top", f"{limit}", f"by ({', '.join(order_text(source, part) for part in order)})"
        case Index(input=source, indexed=indexed, covered=covered):
            keys, shown = (", ".join(source.columns[at].name for at in part) for part in (indexed, covered))
            return "index", "", f"by ({keys}) covering ({shown})"
    raise InvariantBroken(f"{type(line.relation).__name__} has no text")


def _list(source: Relation, parts: tuple[Expression, ...]) -> str:
    return ", ".join(text_over(source, part) for part in parts)


def _output_text(source: Relation, output: Output) -> str:
    text = text_over(source, output.expression)
    return text if output.name.lower() == text else f"{text} as {output.name}"
