"""Exact questions: what Spark computes with rounding though it need not is asked in another form.

In: the blocks of a query. Out: the same blocks, changed in place. Always: what is asked of integers is what a view keeps
(`AggregateFunction.asked`).
"""

from __future__ import annotations

from sqlglot import expressions as exp

from viewkeeper.check.blocks import Block, asked_of, known
from viewkeeper.check.parsing import parsed


def make_exact(block: Block, *, wide: bool) -> None:
    """`wide`: integers are summed as DECIMAL; Spark stops where a sum leaves 64 bits, also on its way to one that fits."""
    for call, type_ in block.sums:
        asked = known(call).asked
        if type_.is_integer and asked is not None:
            whole = call.parent if isinstance(call.parent, exp.Filter) else call
            whole.replace(parsed(asked(asked_of(call, wide=wide))))
