"""DuckDB SQL of aggregates over the rows of a group, where nothing is kept.

In: a bound aggregate, and what its arguments are called. Out: SQL. Always: the value that a view keeps (`aggregates`), its
accumulators written out.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.codegen.expression_sql import group_key
from viewkeeper.model.types import INT
from viewkeeper.sql.aggregates import FUNCTIONS, SUMS
from viewkeeper.sql.expressions import Aggregate, Case, Expression, Literal


def arguments(call: Aggregate) -> tuple[Expression, ...]:
    """FILTER as CASE: a row that does not pass yields NULL, which aggregates skip; its argument is not evaluated."""
    condition = call.filter
    if condition is None:
        return call.args
    args = call.args or (Literal(1, INT),)
    return tuple(Case(((condition, arg),), Literal(None, arg.type), arg.type) for arg in args)


def aggregate_sql(call: Aggregate, names: Sequence[str]) -> str:
    """The value of `call` over the rows of a group; `names` are the columns of its arguments."""
    return FUNCTIONS[call.function].value(_OfRows(call, names), call.arg_type, call.type)


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
        whole = ", ".join(f"'v{place}': {key}" for place, key in enumerate(self._keys))
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
