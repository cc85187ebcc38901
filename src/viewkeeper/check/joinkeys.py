"""Join keys: which columns of its tables make the key of a view over an inner join.

In: a view over a join. Out: the tables' key columns behind each part of the view's key. Always: only the layout of the key is
taken from the plan, and only where it is beyond doubt: inner joins of base tables, each named once.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import expressions as exp

from viewkeeper.catalog.catalog import Catalog, ViewDefinition
from viewkeeper.catalog.define import lower
from viewkeeper.check.blocks import Block
from viewkeeper.plan.nodes import JoinNode, Node, ProjectNode

Parts = list[tuple[int, int]]  # a base table, and a part of its key


def join_key(catalog: Catalog, view: ViewDefinition, block: Block) -> list[exp.Expression] | None:
    """The parts of the view's key as the block can select them; None where that is not known."""
    aliases = aliases_of(block)
    nodes = {int(node.table): node for node in lower(catalog, view).nodes}
    parts = None if aliases is None else _parts(nodes, list(nodes)[-1])
    if aliases is None or parts is None or len(parts) != len(view.node.key):
        return None
    if any(table not in aliases for table, _ in parts):
        return None
    tables = {int(table.id): table for table in block.tables.values()}
    return [exp.column(tables[table].key[part], table=aliases[table], quoted=True) for table, part in parts]


def aliases_of(block: Block) -> dict[int, str] | None:
    """What the block calls each base table of its inner joins; None where it joins otherwise, or one table twice."""
    sources = [block.tree.args["from_"].this, *(join.this for join in block.joins)]
    if any(join.side or join.kind not in ("", "INNER", "CROSS") or join.method for join in block.joins):
        return None
    if not all(isinstance(one, exp.Table) and not one.args.get("joins") for one in sources):
        return None
    if any(one.args["alias"].args.get("columns") for one in sources):
        return None
    aliases = {int(block.tables[one.name].id): one.alias for one in sources}
    return aliases if len(aliases) == len(sources) else None


def _parts(nodes: Mapping[int, Node], source: int) -> Parts | None:
    """What the row key of a source consists of: that of a join is the keys of its sides that are not looked up."""
    node = nodes.get(source)
    if isinstance(node, ProjectNode) and len(node.edges) == 1:
        return _parts_of(nodes, node.edges[0].source, len(node.key))
    if not isinstance(node, JoinNode) or node.kind != "inner" or any(len(side.edges) > 1 for side in node.sides):
        return None
    found: Parts = []
    for side in [side for side in node.sides if side.key]:
        below = _parts_of(nodes, side.edges[0].source, len(side.key))
        if below is None:
            return None
        found += below
    return found


def _parts_of(nodes: Mapping[int, Node], source: int, width: int) -> Parts | None:
    below = _parts(nodes, source) if source in nodes else [(source, part) for part in range(width)]
    return below if below is not None and len(below) == width else None
