"""Names in a plan: of the columns of a relation, of its row key, and of its zone.

In: a relation. Out: expressions whose text names columns, texts of expressions, the names of the row key, and the text of
the zone. Always: within a relation the columns of several tables have different names, which do not depend on aliases. Two
relations have one zone text when they have one row key; rows do not move within a zone, and a zone border is a shuffle
(paper 3, section 4.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.algebra.expressions import Aggregate, AggregationRef, ColumnRef, Expression, rewrite
from viewkeeper.algebra.relations import (
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
from viewkeeper.algebra.rewriting import aggregation_below, column_refs
from viewkeeper.algebra.row_key import KeyPart, key_sides, looked_up, root_of, row_key
from viewkeeper.model.memo import once_for_each
from viewkeeper.plan.explain.plan_lines import ENTRIES, Line


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


def disambiguated(join: Join, sides: Sequence[Sequence[tuple[str, str]]], often: Counter[str]) -> list[str]:
    """The names of all sides; one that occurs more than once is prefixed by its base table, or else by the side's number."""
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
    told = disambiguated(join, texts, Counter(name.text.lower() for name in plain))
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


JOIN_SYMBOLS = {"inner": "⋈", "left": "⟕", "right": "⟖", "full": "⟗", "semi": "⋉", "anti": "▷"}


def zone_of(relation: Relation) -> str:
    """The row key of the zone that a relation belongs to."""
    match relation:
        case Scan(table=table):
            return f"{table.name}({', '.join(table.key)})"
        case Aggregation(input=source) | Index(input=source):
            return f"{subject_of(source)} by ({', '.join(key_of(relation))})"
        case Join():
            return " × ".join(map(_part_of_zone, key_sides(relation)))
        case Union(inputs=inputs):
            return "(branch, key) of " + " ∪ ".join(map(_part_of_zone, inputs))
        case Top(input=source, order=order):
            return f"{subject_of(source)} by rank of ({', '.join(order_text(source, part) for part in order)})"
    return zone_of(relation.input)


def zone_at(line: Line) -> str:
    """The zone of a line; the REVERSE-JOIN below a join is under the join key."""
    join = line.relation
    if line.kind != ENTRIES or not isinstance(join, Join):
        return zone_of(line.relation)
    return f"{' ⋈ '.join(map(_part_of_subject, join.sides))} on ({join_key_text(join)})"


def key_of(relation: Relation) -> tuple[str, ...]:
    """The names of the row key of a relation."""
    root = root_of(relation)
    if isinstance(root, Join):
        return key_of(root.sides[0]) if root.keeps_first else _key_of_sides(root)
    return tuple(map(_name_of, row_key(root)))


def _name_of(part: KeyPart) -> str:
    match part.origin, part.number:
        case Scan(table=table), number:
            return table.key[number]
        case Index(key=key, input=source), number:
            return source.columns[key[number]].name
        case Aggregation(input=source, grouping=grouping), number:
            return text_over(source, grouping.groups[number])
        case Union(), 0:
            return "branch"
        case Union(inputs=inputs), _:
            keys = {", ".join(key_of(source)) for source in inputs}
            return keys.pop() if len(keys) == 1 else "key"
    return "rank"


def subject_of(relation: Relation) -> str:
    """What the rows of a relation are rows of: a table, or several joined; grouped ones are in brackets."""
    match relation:
        case Scan(table=table):
            return table.name
        case Join(kind=kind, sides=sides):
            return f" {JOIN_SYMBOLS[kind]} ".join(map(_part_of_subject, sides))
        case Union(inputs=inputs):
            return " ∪ ".join(map(_part_of_subject, inputs))
        case Aggregation() | Top():
            return f"[{zone_of(relation)}]"
        case RowsOfGroups(rows=rows):
            return subject_of(rows)
    return subject_of(relation.input)


def join_key_text(join: Join) -> str:
    """`customer = id`; written once where all sides name it the same."""
    sides = [[text_over(side, part) for part in key] for side, key in zip(join.sides, join.keys, strict=True)]
    return ", ".join(" = ".join(dict.fromkeys(parts)) for parts in zip(*sides, strict=True))


def _key_of_sides(join: Join) -> tuple[str, ...]:
    """The keys of all sides that are not looked up, named like the columns of the join."""
    keys = [key_of(side) for side in join.sides]
    names = [{name.text for name in names_of(side)} for side in join.sides]
    every = [each | {part.lower() for part in key} for each, key in zip(names, keys, strict=True)]
    often = Counter(name for each in every for name in each)
    origins = [[part.origin for part in row_key(side)] for side in join.sides]
    owners = [[one.table.name if isinstance(one, Scan) else "" for one in side] for side in origins]
    pairs, lookups = zip(owners, keys, strict=True), looked_up(join)
    sides = [[] if number in lookups else list(zip(*pair, strict=True)) for number, pair in enumerate(pairs)]
    return tuple(disambiguated(join, sides, often))


def _part_of_zone(relation: Relation) -> str:
    """The zone of one side, in a form that can precede or follow ×."""
    root = root_of(relation)
    if isinstance(root, Join) and len(sides := key_sides(root)) == 1:
        return _part_of_zone(sides[0])
    return zone_of(root) if isinstance(root, Scan | Join) else f"[{zone_of(root)}]"


def _part_of_subject(relation: Relation) -> str:
    """The subject of one side, in a form that can precede or follow ⋈."""
    subject = subject_of(relation)
    return f"[{subject}]" if isinstance(root_of(relation), Join | Union) else subject
