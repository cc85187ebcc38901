"""UDFs: values of aggregates that SQL cannot compute.

In: accumulators of groups, as Arrow columns. Out: one value for each group. Always: a view and a SELECT inside of DuckDB
call the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeAlias

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from viewkeeper.algebra.aggregates import ROUND_SUM, SQUARE_DIGITS, VARIANCE, VARIANCE_OF_DOUBLES
from viewkeeper.algebra.decimals import BASE_DIGITS
from viewkeeper.operators.exact_sums import DOUBLE_SUMS, exact_variance, round_sums, sum_lists, variances, whole_numbers
from viewkeeper.plan.nodes import Computed


@dataclass(frozen=True, slots=True)
class Function:
    """A function over columns; the types are DuckDB's."""

    run: Callable[..., pa.Array]
    parameters: tuple[str, ...]
    result: str = "DOUBLE"


Integers: TypeAlias = "int | pa.Array"  # one number for all groups, or a column


def _variances(
    freedom: Integers, scale: Integers, count: pa.Array, high: Integers, low: Integers,
    q4: Integers, q3: Integers, q2: Integers, q1: Integers, q0: Integers,
) -> pa.Array:  # fmt: skip
    """Of integers: Σx in two parts, Σx² in five; DuckDB wants the parameters counted."""
    parts = (freedom, scale, count, high, low, q4, q3, q2, q1, q0)
    found = []
    for degrees, digits, n, above, below, *indexes in zip(
        *(whole_numbers(part, len(count)) for part in parts), strict=True
    ):
        squares = reduce(lambda left, right: left * 10**SQUARE_DIGITS + right, indexes)
        found.append(exact_variance(degrees, n, above * 10**BASE_DIGITS + below, squares, 10**digits))
    return pa.array(found, pa.float64())


_OF_ACCUMULATORS: dict[str, Function] = {
    ROUND_SUM: Function(round_sums, ("BLOB",)),
    VARIANCE: Function(_variances, ("HUGEINT",) * 10),
    VARIANCE_OF_DOUBLES: Function(variances, ("INTEGER", "BIGINT", "BLOB", "BLOB")),
}
_OF_LISTS = {f"{kind}_of_list": Function(partial(sum_lists, kind), ("DOUBLE[]",), "BLOB") for kind in DOUBLE_SUMS}


def compute(one: Computed, columns: Mapping[str, pa.Array]) -> pa.Array:
    """The values, of columns by their names."""
    return _OF_ACCUMULATORS[one.function].run(*(int(arg) if arg.isdecimal() else columns[arg] for arg in one.args))


def provide(connection: duckdb.DuckDBPyConnection) -> None:
    """Let SQL that runs there call all of them. The connection must be closed before the interpreter ends."""
    for name, known in (_OF_ACCUMULATORS | _OF_LISTS).items():
        connection.create_function(name, known.run, list(known.parameters), known.result, type=PythonUDFType.ARROW)
