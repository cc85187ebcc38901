"""Exact queries: where Spark rounds though it need not, the query is put in another form.

In: the blocks of a query. Out: the same blocks, changed in place. Always: an average of integers is their exact sum, as
a double, over their count, as in a view; Spark's own AVG adds up doubles, which lose digits beyond 2^53.
"""

from __future__ import annotations

from sqlglot import expressions as exp

from viewkeeper.check.blocks import Block
from viewkeeper.check.parsing import parsed, text_of

_INTEGERS = ("INT", "BIGINT")


def make_exact(block: Block, *, wide: bool) -> None:
    """`wide`: sum integers as DECIMAL; Spark stops where an intermediate sum leaves 64 bits, though the result fits."""
    for call, type_ in block.sums:
        if type_.kind not in _INTEGERS:
            continue
        whole = call.parent if isinstance(call.parent, exp.Filter) else call
        behind = f" FILTER ({text_of(whole.expression)})" if isinstance(whole, exp.Filter) else ""
        argument = text_of(call.this)
        total = f"SUM({f'CAST({argument} AS DECIMAL(38, 0))' if wide else argument}){behind}"
        if isinstance(call, exp.Avg):
            whole.replace(parsed(f"(CAST({total} AS DOUBLE) / NULLIF(COUNT({argument}){behind}, 0))"))
        elif wide:
            whole.replace(parsed(f"CAST({total} AS BIGINT)"))
