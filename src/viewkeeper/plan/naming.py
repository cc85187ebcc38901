"""Names in a plan: how its text calls the columns of a node, where two sides of a join may have the same.

In: a plan and a place. Out: expressions whose text names columns, and texts of expressions. Always: within one node no two
columns have one name, except where a single table or select list gives it twice; a name does not depend on aliases.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from viewkeeper.plan.logical import (
    Base,
    Fold,
    Index,
    Join,
    LogicalPlan,
    Project,
    ReverseJoin,
    Union,
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


def side_names(plan: LogicalPlan, table: ReverseJoin) -> tuple[str, ...]:
    """What to call the sides of a join: by their base table where that tells them apart, else by number."""
    bases = [plan.bases_of(source) for source in table.inputs]
    names = [tables[0].name if len(tables) == 1 else "" for tables in bases]
    often = Counter(name.lower() for name in names)
    return tuple(name if name and often[name.lower()] == 1 else f"side{number}" for number, name in enumerate(names, 1))


def _of_sides(plan: LogicalPlan, table: ReverseJoin) -> tuple[Expression, ...]:
    """The names of all sides in a row, with the side before those that several have."""
    widths = zip(table.inputs, table.widths, strict=True)
    sides = zip(side_names(plan, table), [names_at(plan, source)[:width] for source, width in widths], strict=True)
    named = [(side, name) for side, names in sides for name in names]
    often = Counter(name.text.lower() for _, name in named)
    return tuple(
        ColumnRef(at, f"{side}.{name.text}", name.type, name.nullable) if often[name.text.lower()] > 1 else name
        for at, (side, name) in enumerate(named)
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
