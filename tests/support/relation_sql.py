"""Relations as DuckDB SQL: what a bound tree means, run by an engine that knows nothing of the binder.

In: a bound relation. Out: a SELECT whose columns are c0, c1, …; a base table is read by its name. Always: one SELECT for
each node, by the textbook; for tests only.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.sql.duckdb_sql import emit, group_key
from viewkeeper.sql.expressions import Aggregate, ColumnRef, Expression, FoldRef, rewrite
from viewkeeper.sql.relations import Fold, Join, Ordering, Project, Relation, Scan, Select, Top, Union


def relation_sql(relation: Relation) -> str:
    match relation:
        case Scan(table=table):
            return f"SELECT {_renamed([column.name for column in table.columns])} FROM {table.name}"
        case Select(input=source, predicate=predicate):
            return f"SELECT * FROM ({relation_sql(source)}) WHERE {emit(_over_fold(predicate, source))}"
        case Project(input=source, outputs=outputs):
            sqls = [emit(_over_fold(output.expression, source)) for output in outputs]
            return f"SELECT {_renamed(sqls)} FROM ({relation_sql(source)})"
        case Fold(input=source, grouping=grouping):
            keys = [group_key(emit(group), group.type) for group in grouping.groups]
            shown = _renamed([*keys, *map(_aggregate, grouping.aggregates)])
            by = f" GROUP BY {', '.join(keys)}" if keys else " HAVING TRUE"
            return f"SELECT {shown} FROM ({relation_sql(source)}){by}"
        case Join():
            return _join(relation)
        case Union(inputs=inputs):
            return " UNION ALL ".join(f"(SELECT * FROM ({relation_sql(one)}))" for one in inputs)
        case Top(input=source, order=order, limit=limit):
            terms = ", ".join(_ordering(term) for term in order)
            return f"SELECT * FROM ({relation_sql(source)}) ORDER BY {terms} LIMIT {limit}"
    raise AssertionError(relation)


def _renamed(sqls: Sequence[str]) -> str:
    return ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(sqls))


def _over_fold(expression: Expression, source: Relation) -> Expression:
    """Groups and aggregates as columns of the γ below; a σ may stand between."""
    while isinstance(source, Select):
        source = source.input
    groups = len(source.grouping.groups) if isinstance(source, Fold) else 0

    def refer(node: Expression) -> Expression | None:
        if not isinstance(node, FoldRef):
            return None
        place = node.position + (groups if node.source == "aggregate" else 0)
        return ColumnRef(place, "", node.type, node.nullable)

    return rewrite(expression, refer)


def _aggregate(call: Aggregate) -> str:
    inner = ", ".join(emit(arg) for arg in call.args) or "*"
    if len(call.args) > 1:
        inner = f"({inner})"
    sql = f"{call.function}({'DISTINCT ' if call.distinct else ''}{inner})"
    sql = sql if call.filter is None else f"{sql} FILTER (WHERE {emit(call.filter)})"
    return f"CAST({sql} AS {call.type.duckdb})"


def _join(join: Join) -> str:
    parts = [f"({relation_sql(side)}) AS s{place}" for place, side in enumerate(join.sides)]
    starts = [sum(len(side.columns) for side in join.sides[:place]) for place in range(len(join.sides))]
    first = [_placed(key, 0, "s0") for key in join.keys[0]]
    matches = [
        f"{left} = {_placed(right, 0, f's{place}')}"
        for place, keys in enumerate(join.keys[1:], 1)
        for left, right in zip(first, keys, strict=True)
    ]
    if join.residual is not None:
        matches.append(_over_sides(join.residual, starts))
    condition = " AND ".join(matches) or "TRUE"
    if join.kind in ("semi", "anti"):
        negation = "NOT " if join.kind == "anti" else ""
        return f"SELECT * FROM {parts[0]} WHERE {negation}EXISTS (SELECT 1 FROM {parts[1]} WHERE {condition})"
    sizes = [len(side.columns) for side in join.sides]
    shown = _renamed([f"s{place}.c{column}" for place, size in enumerate(sizes) for column in range(size)])
    if join.kind == "inner":
        return f"SELECT {shown} FROM {', '.join(parts)} WHERE {condition}"
    return f"SELECT {shown} FROM {parts[0]} {join.kind.upper()} JOIN {parts[1]} ON {condition}"


def _placed(expression: Expression, start: int, alias: str) -> str:
    return _over_sides(expression, [start], [alias])


def _over_sides(expression: Expression, starts: Sequence[int], aliases: Sequence[str] | None = None) -> str:
    """The SQL with each column named by its side; positions are made unmistakable, then replaced in the text."""
    marks: dict[str, str] = {}

    def mark(node: Expression) -> Expression | None:
        if not isinstance(node, ColumnRef):
            return None
        side = sum(start <= node.position for start in starts) - 1
        alias = f"s{side}" if aliases is None else aliases[side]
        unique = 900_000_000 + node.position
        marks[f"c{unique}"] = f"{alias}.c{node.position - starts[side]}"
        return ColumnRef(unique, node.name, node.type, node.nullable)

    sql = emit(rewrite(expression, mark))
    for marked, name in marks.items():
        sql = sql.replace(marked, name)
    return sql


def _ordering(term: Ordering) -> str:
    nulls = "NULLS FIRST" if term.nulls_first else "NULLS LAST"
    return f"{emit(term.expression)} {'DESC' if term.descending else 'ASC'} {nulls}"
