"""Exact queries: where Spark rounds though it need not, the query is put in another form.

In: the blocks of a query. Out: the same blocks, changed in place. Always: what is asked of integers is what a view keeps
(`AggregateFunction.asked`).
"""

from __future__ import annotations

from sqlglot import expressions as exp

from viewkeeper.check.blocks import Block, asked_of, known
from viewkeeper.check.parsing import parsed


def make_exact(block: Block, *, wide: bool) -> None:
    """`wide`: sum integers as DECIMAL; Spark stops where an intermediate sum leaves 64 bits, though the result fits."""
    for call, type_ in block.sums:
        asked = known(call).asked
        if type_.is_integer and asked is not None:
            whole = call.parent if isinstance(call.parent, exp.Filter) else call
            whole.replace(parsed(asked(asked_of(call, wide=wide))))
