"""Few delta rows: one statement evaluates them for all γ that read them.

In: a delta, and what each of its rows contributes to each γ, as expressions. Out: for each γ what its `contribute_each`
would return. Always: an expression that several γ have is evaluated once; a statement that fails is no view's fault, so
that each γ must be asked by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.operators.duck import run_sql
from viewkeeper.plan.nodes import Direct

Evaluated = Mapping[str, pa.Array]  # by expression


def evaluate(some: Sequence[Direct], delta: pa.Table) -> Evaluated | None:
    """The value of each expression for each delta row; None if one cannot be had."""
    if not some:
        return {}
    sqls, statement = _statement(tuple(some))
    try:
        found = run_sql(statement, delta=delta).combine_chunks()
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error:
        return None
    return dict(zip((_SIGN, *sqls), found.columns, strict=True))


def given_directly(direct: Direct, evaluated: Evaluated) -> pa.Table:
    """What the rows that pass contribute, as `contribute_each` names it."""
    filters = [evaluated[sql] for sql in direct.filters]
    given = {_SIGN: evaluated[_SIGN]} | {f"k{place}": evaluated[sql] for place, sql in enumerate(direct.keys)}
    for place, (sql, number) in enumerate(direct.states):
        value = evaluated[sql]
        given[f"s{place}"] = value if number is None else pc.if_else(filters[number], value, pa.scalar(0, value.type))
    given |= {f"a{argument}": evaluated[sql] for argument, sql in direct.arguments}
    for number, values in enumerate(direct.values):
        given |= {f"e{number}_{place}": evaluated[sql] for place, sql in enumerate(values)}
    return pa.table(given).filter(evaluated[direct.passes])


_SIGN = "sign"


@lru_cache(maxsize=64)
def _statement(some: tuple[Direct, ...]) -> tuple[tuple[str, ...], str]:
    """The distinct expressions, and the statement that evaluates them after `sign`."""
    sqls = tuple(dict.fromkeys(sql for direct in some for sql in direct.expressions))
    return sqls, f"SELECT {', '.join([_SIGN, *(f'{sql} AS d{place}' for place, sql in enumerate(sqls))])} FROM delta"
