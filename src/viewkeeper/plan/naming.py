"""Names in a plan: how its text calls the columns of a node, where two sides of a join may have the same.

In: a plan and a place. Out: expressions whose text names columns, and texts of expressions. Always: within one node no two
columns have one name, except where a single table or select list gives it twice; a name does not depend on aliases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

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
    columns_at,
    fold_position,
)
from viewkeeper.sql.expressions import Aggregate, ColumnRef, Expression, FoldRef, rewrite
from viewkeeper.sql.relations import Ordering


def text_over(plan: LogicalPlan, source: int, expression: Expression) -> str:
    """The text of an expression over the columns of the node at `source`."""
    return _spelled(plan, source, expression).text


def order_text(plan: LogicalPlan, source: int, part: Ordering) -> str:
    """One part of ORDER BY; where NULL stands is said where it is not where Spark puts it."""
    text = text_over(plan, source, part.expression) + (" desc" if part.descending else "")
    if part.nulls_first is not part.descending:
        return text
    return f"{text} nulls {'first' if part.nulls_first else 'last'}"


def names_at(plan: LogicalPlan, place: int) -> tuple[Expression, ...]:
    """For each column that a node gives, an expression whose text names it; types do not matter here."""
    match plan.nodes[place]:
        case Base() | Project() | Union() | Index():
            columns = columns_at(plan, place)
            return tuple(ColumnRef(at, one.name, one.type, one.nullable) for at, one in enumerate(columns))
        case Fold(input=source, grouping=grouping):
            return tuple(_spelled(plan, source, part) for part in (*grouping.groups, *grouping.aggregates))
        case ReverseJoin() as table:
            return _of_sides(plan, table)
        case Join(input=source) as join:
            table = plan.reverse_join(place)
            first = names_at(plan, table.inputs[0])[: table.widths[0]]
            return first if join.keeps_first else names_at(plan, source)
        case node:
            return names_at(plan, node.input)


def owners_at(plan: LogicalPlan, place: int) -> tuple[str, ...]:
    """For each column that a node gives, the base table whose column it is; empty for what is computed."""
    match plan.nodes[place]:
        case Base(table=table):
            return (table.name,) * len(table.columns)
        case ReverseJoin(inputs=inputs, widths=widths):
            sides = zip(inputs, widths, strict=True)
            return tuple(owner for source, width in sides for owner in owners_at(plan, source)[:width])
        case Delta(input=source) | Select(input=source) | Top(input=source) | Join(input=source) | View(input=source):
            return owners_at(plan, source)[: len(columns_at(plan, place))]
    return ("",) * len(columns_at(plan, place))


def told_apart(
    plan: LogicalPlan, table: ReverseJoin, sides: Sequence[Sequence[tuple[str, str]]], often: Counter[str]
) -> list[str]:
    """Names (owner, name) of all sides in a row; before one that is there more often stands whose it is.

    That is its base table where only one side reads it, else the number of the side.
    """
    bases = [{base.name for base in plan.bases_of(source)} for source in table.inputs]
    found = []
    for number, side in enumerate(sides, 1):
        alone = next(iter(bases[number - 1])) if len(bases[number - 1]) == 1 else ""
        for owner, name in side:
            tells = sum((owner or alone) in names for names in bases) == 1
            found.append(
                f"{(owner or alone) if tells else f'side{number}'}.{name}" if often[name.lower()] > 1 else name
            )
    return found


def _of_sides(plan: LogicalPlan, table: ReverseJoin) -> tuple[Expression, ...]:
    widths = zip(table.inputs, table.widths, strict=True)
    sides = [
        list(zip(owners_at(plan, source)[:width], names_at(plan, source)[:width], strict=True))
        for source, width in widths
    ]
    plain = [name for side in sides for _, name in side]
    texts = [[(owner, name.text) for owner, name in side] for side in sides]
    told = told_apart(plan, table, texts, Counter(name.text.lower() for name in plain))
    return tuple(
        one if one.text == name else ColumnRef(at, name, one.type, one.nullable)
        for at, (one, name) in enumerate(zip(plain, told, strict=True))
    )


def _spelled(plan: LogicalPlan, source: int, expression: Expression) -> Expression:
    """The expression with the columns of the node at `source` by the names that the plan gives them."""
    names = names_at(plan, source)

    def name(part: Expression) -> Expression | None:
        match part:
            case ColumnRef(position=position):
                return names[position]
            case FoldRef():
                return names[fold_position(plan, source, part)]
            case Aggregate(args=args, filter=condition):
                kept = None if condition is None else rewrite(condition, name)
                return replace(part, args=tuple(rewrite(arg, name) for arg in args), filter=kept)
        return None

    return rewrite(expression, name)
