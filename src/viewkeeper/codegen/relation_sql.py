"""DuckDB SQL of bound relations, and of aggregates over the rows of a group: the result of a query from its tables.

In: a bound relation, and the SQL of the tables it reads; or a bound aggregate, and the names of its arguments. Out: one
SELECT whose columns are c0, c1, …; or SQL of the value that a view keeps. Always: one SELECT for each node, and each table
read once for each scan; the user's characters appear only inside escaped literals. A row on which an expression fails
stops the query: the engine must not evaluate it before the σ below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from viewkeeper.algebra.aggregates import AGGREGATE_FUNCTIONS, SUMS
from viewkeeper.algebra.expressions import Aggregate, Case, ColumnRef, Expression, Literal
from viewkeeper.algebra.relations import (
    Aggregation,
    Join,
    Project,
    Ranked,
    Relation,
    RowsOfGroups,
    Scan,
    Select,
    Sorted,
    Top,
    Union,
    starts_of,
)
from viewkeeper.algebra.rewriting import over_columns
from viewkeeper.codegen.expression_sql import emit, group_key
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.types import INT


def arguments(call: Aggregate) -> tuple[Expression, ...]:
    """FILTER as CASE: a row that does not pass yields NULL, which aggregates skip; its argument is not evaluated."""
    condition = call.filter
    if condition is None:
        return call.args
    args = call.args or (Literal(1, INT),)
    return tuple(Case(((condition, arg),), Literal(None, arg.type), arg.type) for arg in args)


def unfiltered(arg: Expression) -> tuple[Expression, Expression | None]:
    """An argument without its FILTER, and that; one that can fail keeps it: it must not be computed of other rows."""
    match arg:
        case Case(branches=((condition, value),), default=Literal(value=None)) if value.type == arg.type:
            return (arg, None) if value.fallible else (value, condition)
    return arg, None


def aggregate_sql(call: Aggregate, names: Sequence[str]) -> str:
    """The value of `call` over the rows of a group; `names` are the columns of its arguments."""
    return AGGREGATE_FUNCTIONS[call.function].value(_OfRows(call, names), call.arg_type, call.type)


class _OfRows:
    """`Kept`, of rows as they are."""

    def __init__(self, call: Aggregate, names: Sequence[str]) -> None:
        self._distinct, self._type = call.distinct, call.arg_type
        self._names = names
        self._keys = [group_key(name, arg.type) for name, arg in zip(names, call.args or (call,), strict=False)]

    def count(self) -> str:
        if not self._distinct:
            return f"count({self._names[0] if self._names else '*'})"
        if len(self._keys) == 1:
            return f"count(DISTINCT {self._keys[0]})"
        whole = ", ".join(f"'v{index}': {key}" for index, key in enumerate(self._keys))
        known = " AND ".join(f"{name} IS NOT NULL" for name in self._names)
        return f"count(DISTINCT CASE WHEN {known} THEN {{{whole}}} END)"

    def total(self, kind: str) -> list[str]:
        name = self._names[0]
        listed = f"list({f'DISTINCT {self._keys[0]}' if self._distinct else name}) FILTER (WHERE {name} IS NOT NULL)"
        if self._type.kind == "DOUBLE":
            return [f"{kind}_of_list({listed})"]  # which whoever runs the SQL provides
        if self._distinct:
            each = [f"CAST({sql} AS HUGEINT)" for _, sql in SUMS[kind]("e0", self._type)]
            return [f"coalesce(list_sum(list_transform({listed}, lambda e0: {sql})), 0)" for sql in each]
        return [f"coalesce({part}, 0)" for part, _ in SUMS[kind](name, self._type)]

    def end(self, *, is_last: bool) -> str:
        return f"{'max' if is_last else 'min'}({self._keys[0]})"

    def computed(self, function: str, *args: str) -> str:
        return f"{function}({', '.join(args)})"


ScanSql = Callable[[Scan], str]


def relation_sql(relation: Relation, scan: ScanSql) -> str:
    """The SELECT; `scan` returns that of a table, and is called for each in the order of the walk."""
    match relation:
        case Scan():
            return scan(relation)
        case Select(input=source, predicate=predicate):
            return f"SELECT * FROM ({relation_sql(source, scan)}) WHERE {emit(over_columns(predicate, source))}"
        case Project(input=source, outputs=outputs):
            indexes = [one.expression.position for one in outputs if isinstance(one.expression, ColumnRef)]
            if isinstance(source, Top | Sorted) and indexes == list(range(len(outputs))):
                # one SELECT: the order of a subquery is not guaranteed
                return _ordered(source, ", ".join(f"c{index}" for index in indexes), scan)
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
        case Ranked(input=top):
            rank = f"CAST(row_number() OVER (ORDER BY {_terms(top)}) AS INTEGER) AS c{len(top.columns)}"
            return _ordered(top, f"*, {rank}", scan)
    raise InvariantBroken(f"{type(relation).__name__} has no SQL")


def _named(sqls: Iterable[str], name: str = "c", start: int = 0) -> str:
    return ", ".join(f"{sql} AS {name}{index}" for index, sql in enumerate(sqls, start))


def _aggregation(aggregation: Aggregation, scan: ScanSql) -> str:
    """Keys and arguments are computed row by row below the γ."""
    groups, aggregates = aggregation.grouping.groups, aggregation.grouping.aggregates
    args = list(dict.fromkeys(arg for call in aggregates for arg in arguments(call)))
    computed = [_named((group_key(emit(group), group.type) for group in groups), "k")] if groups else []
    computed += [_named(map(emit, args), "a")] if args else []
    below = f"SELECT {', '.join(computed) or '1'} FROM ({relation_sql(aggregation.input, scan)})"
    keys = [f"k{index}" for index in range(len(groups))]
    values = [aggregate_sql(call, [f"a{args.index(arg)}" for arg in arguments(call)]) for call in aggregates]
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    # without groups there is one row, even if nothing is selected from it
    return f"SELECT {_named([*keys, *values]) or 'count(*) AS c0'} FROM ({below}){by}"


def _join(join: Join, scan: ScanSql) -> str:
    """Each side with its columns named by their positions in the join, and its keys."""
    source, *others = (_side(join, number, start, scan) for number, start in enumerate(starts_of(join.sides)))
    kind = "JOIN" if join.kind == "inner" else f"{join.kind.upper()} JOIN"
    for number, side in enumerate(others, 1):
        matches = [f"s0.k{index} = s{number}.k{index}" for index in range(len(join.keys[0]))]
        if join.residual is not None:
            matches.append(emit(join.residual))
        source += f" {kind} {side} ON {' AND '.join(matches) or 'TRUE'}"
    return f"SELECT {', '.join(f'c{index}' for index in range(len(join.columns)))} FROM {source}"


def _side(join: Join, number: int, start: int, scan: ScanSql) -> str:
    side = join.sides[number]
    shown = [_named((f"c{index}" for index in range(len(side.columns))), start=start)]
    shown += [_named((group_key(emit(key), key.type) for key in join.keys[number]), "k")]
    inner = relation_sql(side, scan)
    return f"(SELECT {', '.join(filter(None, shown)) or '1'} FROM ({inner})) AS s{number}"


def _ordered(relation: Top | Sorted, shown: str, scan: ScanSql) -> str:
    sql = f"SELECT {shown} FROM ({relation_sql(relation.input, scan)})"
    sql += f" ORDER BY {_terms(relation)}" if relation.order else ""
    sql += "" if relation.limit is None else f" LIMIT {relation.limit}"
    return sql + (f" OFFSET {relation.offset}" if isinstance(relation, Sorted) and relation.offset else "")


def _terms(relation: Top | Sorted) -> str:
    terms = []
    for term in relation.order:
        nulls = "NULLS FIRST" if term.nulls_first else "NULLS LAST"
        terms.append(f"{emit(term.expression)} {'DESC' if term.descending else 'ASC'} {nulls}")
    return ", ".join(terms)
