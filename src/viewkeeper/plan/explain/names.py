"""Names in a plan: how its text names the columns of a relation, where two sides of a join may have the same.

In: a relation. Out: expressions whose text names columns, and texts of expressions. Always: within one relation no two
columns have one name, except where a single table or select list has it twice; a name does not depend on aliases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.model.identity import once_for_each
from viewkeeper.sql.expressions import Aggregate, AggregationRef, ColumnRef, Expression, rewrite
from viewkeeper.sql.positions import aggregation_below, column_refs
from viewkeeper.sql.relations import (
    Aggregation,
    Index,
    Join,
    Ordering,
    Project,
    Relation,
    RowsOfGroups,
    Scan,
    Select,
    Top,
    Union,
    ViewRows,
    tables_of,
)


def text_over(relation: Relation, expression: Expression) -> str:
    """The text of an expression over the columns of `relation`."""
    return _spelled(relation, names_of(relation), expression).text


def text_over_sides(join: Join, expression: Expression) -> str:
    """The text of an expression over the columns of all sides of a join."""
    return _spelled(join, _names_of_sides(join), expression).text


def order_text(relation: Relation, part: Ordering) -> str:
    """One part of ORDER BY; NULLS FIRST or LAST is shown where it is not Spark's default."""
    text = text_over(relation, part.expression) + (" desc" if part.descending else "")
    if part.nulls_first is not part.descending:
        return text
    return f"{text} nulls {'first' if part.nulls_first else 'last'}"


@once_for_each(kept_max=64)
def names_of(relation: Relation) -> tuple[Expression, ...]:
    """For each column of a relation, an expression whose text names it; types do not matter here."""
    match relation:
        case Scan() | Project() | Union() | Index():
            return column_refs(relation)
        case Aggregation(input=source, grouping=grouping):
            names = names_of(source)
            return tuple(_spelled(source, names, part) for part in (*grouping.groups, *grouping.aggregates))
        case RowsOfGroups(rows=rows):
            return names_of(rows)
        case Join(sides=sides):
            return names_of(sides[0]) if relation.keeps_first else _names_of_sides(relation)
    return names_of(relation.input)


def owners_of(relation: Relation) -> tuple[str, ...]:
    """For each column of a relation, the base table it comes from; empty if computed."""
    match relation:
        case Scan(table=table):
            return (table.name,) * len(table.columns)
        case Join():
            return tuple(owner for side in relation.shown_sides for owner in owners_of(side))
        case Select(input=source) | Top(input=source) | ViewRows(input=source):
            return owners_of(source)
        case RowsOfGroups(rows=rows):
            return owners_of(rows)
    return ("",) * len(relation.columns)


def told_apart(join: Join, sides: Sequence[Sequence[tuple[str, str]]], often: Counter[str]) -> list[str]:
    """Names (owner, name) of all sides in a row; a name that occurs more than once is prefixed by its owner.

    The owner is its base table where only one side reads it, else the number of the side.
    """
    bases = [{base.name for base in tables_of(side)} for side in join.sides]
    found = []
    for number, side in enumerate(sides, 1):
        alone = next(iter(bases[number - 1])) if len(bases[number - 1]) == 1 else ""
        for owner, name in side:
            tells = sum((owner or alone) in names for names in bases) == 1
            prefix = (owner or alone) if tells else f"side{number}"
            found.append(f"{prefix}.{name}" if often[name.lower()] > 1 else name)
    return found


def _names_of_sides(join: Join) -> tuple[Expression, ...]:
    sides = [list(zip(owners_of(side), names_of(side), strict=True)) for side in join.sides]
    plain = [name for side in sides for _, name in side]
    texts = [[(owner, name.text) for owner, name in side] for side in sides]
    told = told_apart(join, texts, Counter(name.text.lower() for name in plain))
    return tuple(
        one if one.text == name else ColumnRef(at, name, one.type, one.nullable)
        for at, (one, name) in enumerate(zip(plain, told, strict=True))
    )


def _spelled(relation: Relation, names: Sequence[Expression], expression: Expression) -> Expression:
    """The expression over `relation` with each column under its name in `names`."""
    aggregation = aggregation_below(relation)
    groups = 0 if aggregation is None else len(aggregation.grouping.groups)

    def name(part: Expression) -> Expression | None:
        match part:
            case ColumnRef(position=position):
                return names[position]
            case AggregationRef(source=source, position=position):
                return names[position + (groups if source == "aggregate" else 0)]
            case Aggregate(args=args, filter=condition):
                kept = None if condition is None else rewrite(condition, name)
                return replace(part, args=tuple(rewrite(arg, name) for arg in args), filter=kept)
        return None

    return rewrite(expression, name)
