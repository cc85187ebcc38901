"""Values of aggregates that SQL cannot compute.

In: accumulators of groups, as Arrow columns. Out: one value for each group. Always: a function of the accumulators alone; the
same function serves a view, group by group, and a SELECT, inside of DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from viewkeeper.plan.nodes import Computed
from viewkeeper.sql.aggregates import ROUND_SUM
from viewkeeper.views.doubles import SPLITS, round_sums, sum_lists


@dataclass(frozen=True, slots=True)
class Function:
    """A function over columns; the types are DuckDB's."""

    run: Callable[..., pa.Array]
    parameters: tuple[str, ...]
    result: str = "DOUBLE"


_FUNCTIONS: dict[str, Function] = {ROUND_SUM: Function(round_sums, ("BLOB",))}
_OF_LISTS = {f"{kind}_of_list": Function(partial(sum_lists, kind), ("DOUBLE[]",), "BLOB") for kind in SPLITS}


def compute(one: Computed, columns: Mapping[str, pa.Array]) -> pa.Array:
    """The values, of columns by their names."""
    return _FUNCTIONS[one.function].run(*(columns[arg] for arg in one.args))


def provide(connection: duckdb.DuckDBPyConnection) -> None:
    """Let SQL that runs there call all of them. The connection must be closed before the interpreter ends."""
    for name, known in (_FUNCTIONS | _OF_LISTS).items():
        connection.create_function(name, known.run, list(known.parameters), known.result, type=PythonUDFType.ARROW)
