"""The text of a plan.

In: the lines of a plan. Out: one text for each, `r0 := base orders(id, region, amount)`. Always: the same plan has the same
text in every process, and equal lines over equal inputs have equal texts.
"""

from __future__ import annotations

from viewkeeper.errors import InvariantBroken
from viewkeeper.plan.explain.lines import BASE, DELTA, ENTRIES, VIEW, Line
from viewkeeper.plan.explain.names import order_text, text_over, text_over_sides
from viewkeeper.sql.expressions import Expression
from viewkeeper.sql.relations import (
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
