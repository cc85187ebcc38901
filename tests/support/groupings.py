"""What a γ makes of delta rows that stand for all rows: its groups, without a store."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys
from viewkeeper.operators.contributions import combine, contribution, first_contribution
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.duck import run_row_by_row
from viewkeeper.operators.grouping_kernel import contribute
from viewkeeper.operators.messages import GROUPS
from viewkeeper.plan.nodes import AggregateNode


def groups_of(node: AggregateNode, relation: pa.Table) -> pa.Table:
    """The groups with their key `k0…`, states `s0…` and values `v0…`, of rows that came; a γ without PRE-AGGREGATIONs."""
    keys = pa.array([b""] * len(relation), pa.binary())
    given = [one.rows for one in contribute([(node, 0)], Delta(relation, (), lambda: keys)) if one.channel == GROUPS]
    nothing = [[pa.array([], one.type.arrow) for one in columns] for columns in (node.key, node.state)]
    given.append(first_contribution(node) if node.always else contribution(node, *nothing, 0))
    states = combine(node, GROUPS, given)
    names = {f"k{place}": part for place, part in enumerate(decode_keys(node.key, states["key"]))}
    names |= {name: states[name] for name in states.column_names if name[0] == "s"}
    finished = run_row_by_row(node.finish, states=pa.table(names | {"ord": np.arange(len(states))}))
    return pa.table(names | {f"v{place}": finished[f"v{place}"] for place in range(len(node.values))})
