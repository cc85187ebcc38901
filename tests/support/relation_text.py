"""Relations as text: one line for each node, its inputs indented below it.

In: a bound relation. Out: lines. Always: columns are shown by name and position (`x@2`), so that a wrong position is seen.
"""

from __future__ import annotations

from viewkeeper.algebra.expressions import AggregationRef, ColumnRef, Expression, rewrite
from viewkeeper.algebra.relations import Aggregation, Join, Project, Relation, Scan, Select, Top, Union, inputs_of


def tree_text(relation: Relation, depth: int = 0) -> str:
    lines = ["  " * depth + _line(relation)]
    return "\n".join([*lines, *(tree_text(part, depth + 1) for part in inputs_of(relation))])


def expression_text(expression: Expression) -> str:
    """The canonical text, with positions; groups and aggregates above γ in square brackets."""
    return rewrite(expression, _marked).text


def _marked(node: Expression) -> Expression | None:
    match node:
        case ColumnRef(position=position, name=name):
            return ColumnRef(position, f"{name}@{position}", node.type, node.nullable)
        case AggregationRef(of=of):
            return ColumnRef(0, f"[{of.text}]", node.type, node.nullable)
    return None


def _line(relation: Relation) -> str:
    match relation:
        case Scan(table=table):
            return table.name
        case Select(predicate=predicate):
            return f"σ {expression_text(predicate)}"
        case Aggregation(grouping=grouping):
            return f"γ by ({_list(grouping.groups)}) of ({', '.join(one.text for one in grouping.aggregates)})"
        case Project(outputs=outputs):
            return f"π {', '.join(f'{expression_text(output.expression)} as {output.name}' for output in outputs)}"
        case Join(kind=kind, keys=keys, residual=residual):
            more = "" if residual is None else f" if {expression_text(residual)}"
            return f"⋈ {kind} on {' = '.join(f'({_list(side)})' for side in keys)}{more}"
        case Union():
            return "∪"
        case Top(order=order, limit=limit):
            return f"top {limit} by {', '.join(_ordering(*_parts(one)) for one in order)}"
    raise AssertionError(relation)


def _list(expressions: tuple[Expression, ...]) -> str:
    return ", ".join(map(expression_text, expressions))


def _parts(one: object) -> tuple[Expression, bool, bool]:
    return one.expression, one.descending, one.nulls_first  # type: ignore[attr-defined]


def _ordering(expression: Expression, descending: bool, nulls_first: bool) -> str:
    usual = nulls_first != descending
    nulls = "" if usual else f" nulls {'first' if nulls_first else 'last'}"
    return f"{expression_text(expression)}{' desc' if descending else ''}{nulls}"
