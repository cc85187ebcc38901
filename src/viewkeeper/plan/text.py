"""The canonical text of a logical plan.

In: a plan. Out: one line for each node, `r0 := base orders(id, region, amount)`. Always: the same plan has the same
text in every process, and equal nodes over equal inputs have equal lines.
"""

from __future__ import annotations

from viewkeeper.errors import InvariantBroken
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
from viewkeeper.plan.naming import order_text, text_over
from viewkeeper.sql.expressions import Expression
from viewkeeper.sql.relations import Output


def plan_text(plan: LogicalPlan) -> str:
    return "\n".join(f"r{place} := {node_text(plan, place)}" for place in range(len(plan.nodes)))


def node_text(plan: LogicalPlan, place: int) -> str:
    """The node and its inputs: `γ r3 by (region) of (count(*))`."""
    symbol, name, rest = node_parts(plan, place)
    match plan.nodes[place]:
        case Base():
            return f"{symbol} {name}{rest}"
        case ReverseJoin(inputs=inputs, keys=keys):
            sides = zip(inputs, keys, strict=True)
            return f"{symbol} {', '.join(f'r{source} ({_list(plan, source, key)})' for source, key in sides)}"
        case View(input=source):
            return f"{symbol} {name} r{source}"
    sources = ", ".join(f"r{source}" for source in plan.inputs(place))
    return " ".join(part for part in (symbol, sources, name, rest) if part)


def node_parts(plan: LogicalPlan, place: int) -> tuple[str, str, str]:
    """A node's symbol, what stands close to it, and the rest of its text, without its inputs."""
    match plan.nodes[place]:
        case Base(table=table):
            return "base", table.name, f"({', '.join(column.name for column in table.columns)})"
        case Delta(old_rows=old_rows):
            return "δ", "", f"[{old_rows}]"
        case Select(input=source, predicate=predicate):
            return "σ", "", f"({text_over(plan, source, predicate)})"
        case Fold(input=source, grouping=grouping):
            groups, aggregates = _list(plan, source, grouping.groups), _list(plan, source, grouping.aggregates)
            return "γ", "", f"by ({groups}) of ({aggregates})"
        case Project(input=source, outputs=outputs):
            return "π", "", f"({', '.join(_output_text(plan, source, output) for output in outputs)})"
        case ReverseJoin():
            return "reverse-join", "", ""
        case Join(input=source, kind=kind, residual=residual):
            condition = "" if residual is None else f"where ({text_over(plan, source, residual)})"
            return "⋈", f"[{kind}]", condition
        case Union():
            return "∪", "", ""
        case Top(input=source, order=order, limit=limit):
            return "top", f"{limit}", f"by ({', '.join(order_text(plan, source, part) for part in order)})"
        case Index(columns=columns, covered=covered):
            names = [column.name for column in plan.base_of(place).columns]
            keys, shown = (", ".join(names[position] for position in part) for part in (columns, covered))
            return "index", "", f"by ({keys}) covering ({shown})"
        case View(name=name):
            return "view", name, ""
    raise InvariantBroken(f"node r{place} has no text")


def _list(plan: LogicalPlan, source: int, parts: tuple[Expression, ...]) -> str:
    return ", ".join(text_over(plan, source, part) for part in parts)


def _output_text(plan: LogicalPlan, source: int, output: Output) -> str:
    text = text_over(plan, source, output.expression)
    return text if output.name.lower() == text else f"{text} as {output.name}"
