"""The canonical text of a logical plan.

In: a plan. Out: one line for each node, `r0 := base orders(id, region, amount)`. Always: the same plan has the same
text in every process, and equal nodes over equal inputs have equal lines.
"""

from __future__ import annotations

from viewkeeper.plan.logical import Base, Delta, Fold, Index, LogicalPlan, Project, Select, View
from viewkeeper.sql.relations import Output


def plan_text(plan: LogicalPlan) -> str:
    return "\n".join(f"r{place} := {node_text(plan, place)}" for place in range(len(plan.nodes)))


def node_text(plan: LogicalPlan, place: int) -> str:
    match plan.nodes[place]:
        case Base(table=table):
            return f"base {table.name}({', '.join(column.name for column in table.columns)})"
        case Delta(input=source, before_images=before_images):
            return f"δ r{source} [{'before-images' if before_images else 'stored'}]"
        case Select(input=source, predicate=predicate):
            return f"σ r{source} ({predicate.text})"
        case Fold(input=source, grouping=grouping):
            groups = ", ".join(group.text for group in grouping.groups)
            aggregates = ", ".join(aggregate.text for aggregate in grouping.aggregates)
            return f"γ r{source} by ({groups}) of ({aggregates})"
        case Project(input=source, outputs=outputs):
            return f"π r{source} ({', '.join(_output_text(output) for output in outputs)})"
        case Index(input=source, columns=columns, covered=covered):
            table = plan.base_of(place)
            keys = ", ".join(table.columns[position].name for position in columns)
            shown = ", ".join(table.columns[position].name for position in covered)
            return f"index r{source} by ({keys}) covering ({shown})"
        case View(input=source, name=name):
            return f"view {name} r{source}"


def _output_text(output: Output) -> str:
    text = output.expression.text
    return text if output.name.lower() == text else f"{text} as {output.name}"
