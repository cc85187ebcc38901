"""DuckDB SQL of bound relations: the result of a query, computed from its tables.

In: a bound relation, and the SQL of the tables it reads. Out: one SELECT whose columns are c0, c1, …. Always: one
SELECT for each node, as in the textbook, and each table read once for each scan; the user's characters appear only
inside escaped literals. A row on which an expression fails stops the query: the engine must not evaluate it before the
σ below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from viewkeeper.codegen.aggregates import aggregate_sql, arguments
from viewkeeper.codegen.expression_sql import emit, group_key
from viewkeeper.errors import InvariantBroken
from viewkeeper.sql.expressions import ColumnRef
from viewkeeper.sql.positions import over_columns
from viewkeeper.sql.relations import (
    Aggregation,
    Join,
    Ordering,
    Project,
    Relation,
    RowsOfGroups,
    Scan,
    Select,
    Sorted,
    Top,
    Union,
    starts_of,
)

ScanSql = Callable[[Scan], str]


def relation_sql(relation: Relation, scan: ScanSql) -> str:
    """The SELECT; `scan` returns that of a table, and is called for each in the order of the walk."""
    match relation:
        case Scan():
            return scan(relation)
        case Select(input=source, predicate=predicate):
            return f"SELECT * FROM ({relation_sql(source, scan)}) WHERE {emit(over_columns(predicate, source))}"
        case Project(input=Top() | Sorted() as ordered) if _keeps_first(relation):
            # one SELECT: the order of a subquery is not guaranteed
            return _ordered(ordered, _columns(range(len(relation.outputs))), scan)
        case Project(input=source, outputs=outputs):
            shown = _named(emit(over_columns(output.expression, source)) for output in outputs)
            return f"SELECT {shown} FROM ({relation_sql(source, scan)})"
        case Aggregation():
            return _aggregation(relation, scan)
        case RowsOfGroups(rows=rows):
            return relation_sql(rows, scan)
        case Join():
            return _join(relation, scan)
        case Union(inputs=inputs):
            return " UNION ALL ".join(f"(SELECT * FROM ({relation_sql(one, scan)}))" for one in inputs)
        case Top() | Sorted():
            return _ordered(relation, "*", scan)
    raise InvariantBroken(f"{type(relation).__name__} has no SQL")


def _named(sqls: Iterable[str], name: str = "c", start: int = 0) -> str:
    return ", ".join(f"{sql} AS {name}{place}" for place, sql in enumerate(sqls, start))


def _columns(places: Iterable[int]) -> str:
    return ", ".join(f"c{place}" for place in places)


def _aggregation(aggregation: Aggregation, scan: ScanSql) -> str:
    """Keys and arguments are computed row by row below the γ."""
    groups, aggregates = aggregation.grouping.groups, aggregation.grouping.aggregates
    args = list(dict.fromkeys(arg for call in aggregates for arg in arguments(call)))
    computed = [_named((group_key(emit(group), group.type) for group in groups), "k")] if groups else []
    computed += [_named(map(emit, args), "a")] if args else []
    below = f"SELECT {', '.join(computed) or '1'} FROM ({relation_sql(aggregation.input, scan)})"
    keys = [f"k{place}" for place in range(len(groups))]
    values = [aggregate_sql(call, [f"a{args.index(arg)}" for arg in arguments(call)]) for call in aggregates]
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    # without groups there is one row, even if nothing is selected from it
    return f"SELECT {_named([*keys, *values]) or 'count(*) AS c0'} FROM ({below}){by}"


def _join(join: Join, scan: ScanSql) -> str:
    """Each side with its columns named by their positions in the join, and its keys."""
    source, *others = (_side(join, number, start, scan) for number, start in enumerate(starts_of(join.sides)))
    kind = "JOIN" if join.kind == "inner" else f"{join.kind.upper()} JOIN"
    for number, side in enumerate(others, 1):
        matches = [f"s0.k{place} = s{number}.k{place}" for place in range(len(join.keys[0]))]
        if join.residual is not None:
            matches.append(emit(join.residual))
        source += f" {kind} {side} ON {' AND '.join(matches) or 'TRUE'}"
    return f"SELECT {_columns(range(len(join.columns)))} FROM {source}"


def _side(join: Join, number: int, start: int, scan: ScanSql) -> str:
    side = join.sides[number]
    shown = [_named((f"c{place}" for place in range(len(side.columns))), start=start)]
    shown += [_named((group_key(emit(key), key.type) for key in join.keys[number]), "k")]
    inner = relation_sql(side, scan)
    return f"(SELECT {', '.join(filter(None, shown)) or '1'} FROM ({inner})) AS s{number}"


def _ordered(relation: Top | Sorted, shown: str, scan: ScanSql) -> str:
    sql = f"SELECT {shown} FROM ({relation_sql(relation.input, scan)})"
    if relation.order:
        sql += f" ORDER BY {', '.join(map(_ordering, relation.order))}"
    if relation.limit is not None:
        sql += f" LIMIT {relation.limit}"
    return sql + (f" OFFSET {relation.offset}" if isinstance(relation, Sorted) and relation.offset else "")


def _ordering(term: Ordering) -> str:
    nulls = "NULLS FIRST" if term.nulls_first else "NULLS LAST"
    return f"{emit(term.expression)} {'DESC' if term.descending else 'ASC'} {nulls}"


def _keeps_first(project: Project) -> bool:
    """Whether it returns the first columns of its input, in their order."""
    places = [one.expression.position for one in project.outputs if isinstance(one.expression, ColumnRef)]
    return places == list(range(len(project.outputs)))
