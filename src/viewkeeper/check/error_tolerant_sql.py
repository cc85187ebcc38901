"""Error-tolerant SQL: a query on which Spark does not stop where a view has a result.

In: the blocks of a query. Out: the same blocks, changed in place: what can fail is wrapped in a TRY, and a row of which
a part fails is left out. Always: as in a view (`docs/sql.md`): a row on which an expression fails is absent from the
block that computes it, a value of a group that fails is NULL, a group that HAVING fails on is not shown. Spark alone
decides which rows these are; what the pipeline set aside is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import expressions as exp

from viewkeeper.algebra.aggregates import AGGREGATE_FUNCTIONS, NODES, OF_CONDITIONS
from viewkeeper.check.query_blocks import Block, known, parsed, parts_of, text_of
from viewkeeper.errors import EpochFailed

TRY = "viewkeeper_try"  # Catalyst's TryEval: NULL where its argument fails
# What never fails by itself; anything else may fail.
_SAFE = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Star, exp.Paren, exp.Alias, exp.Tuple,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Is, exp.Between, exp.In, exp.Exists, exp.Case, exp.If, exp.Coalesce, exp.Nullif,
    *OF_CONDITIONS, exp.Distinct, exp.Filter, exp.Where, exp.Ordered,
    *(node for node, name in NODES.items() if not AGGREGATE_FUNCTIONS[name].has_try),
)  # fmt: skip


def make_error_tolerant(block: Block) -> None:
    """Make sure that nothing in the block stops Spark."""
    guards = [*_join_guards(block), *_where_guards(block)]
    guards += _guard_groups(block) if block.is_grouped else _guard_items(block)
    where = block.tree.args.get("where")
    if where is not None:
        where.set("this", _tried_conjuncts(where.this))
    if guards:
        block.tree.where(_holds(guards), copy=False)


def can_fail(node: exp.Expression | None) -> bool:
    return any(not isinstance(part, _SAFE) and not _is_tried(part) for part in _unguarded(node))


def _unguarded(node: exp.Expression | None) -> Iterator[exp.Expression]:
    """The parts of an expression outside any TRY."""
    if node is None or isinstance(node, exp.Query):
        return
    yield node
    if not _is_tried(node):
        for part in node.iter_expressions():
            yield from _unguarded(part)


def _is_tried(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == TRY


def _tried(node: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this=TRY, expressions=[node.copy()]) if can_fail(node) else node.copy()


def _holds(guards: Iterable[exp.Expression]) -> exp.Expression:
    """Whether all can be computed; a TRY of their row is NULL when one fails."""
    texts = dict.fromkeys(f"({text_of(guard)})" for guard in guards)  # without brackets `x = y` is y under the name x
    row = parsed(f"{TRY}(STRUCT({', '.join(texts)}))")
    return exp.not_(exp.Is(this=row, expression=exp.Null()))


def _tried_conjuncts(condition: exp.Expression) -> exp.Expression:
    """The same nodes where nothing can fail: queries inside are changed in place."""
    return exp.and_(*(_tried_condition(part) for part in _conjuncts(condition)), copy=False)


def _tried_condition(condition: exp.Expression) -> exp.Expression:
    """A condition that is not true where it fails; an equality stays one, so that Spark can join by it."""
    if any(isinstance(part, exp.Query) for part in condition.walk()):
        return _tried_operands(condition)
    if isinstance(condition, exp.EQ):
        return exp.EQ(this=_tried(condition.this), expression=_tried(condition.expression))
    return _tried(condition)


def _tried_operands(condition: exp.Expression) -> exp.Expression:
    """[NOT] IN (query) with its operands tried: a predicate over a query cannot be inside a TRY."""
    for part in list(parts_of(condition)):
        if isinstance(part, exp.In) and part.args.get("query"):
            operands = part.this.expressions if isinstance(part.this, exp.Tuple) else [part.this]
            for operand in operands:
                operand.replace(_tried(operand))
    return condition


def _where_guards(block: Block) -> list[exp.Expression]:
    """The operands of IN (query): where the query is empty, NOT IN would keep a row whose operand is NULL."""
    where = block.tree.args.get("where")
    operands = [part.this for part in parts_of(where) if isinstance(part, exp.In) and part.args.get("query")]
    flat = [one for part in operands for one in (part.expressions if isinstance(part, exp.Tuple) else [part])]
    return [one.copy() for one in flat if can_fail(one)]


def _guard_items(block: Block) -> list[exp.Expression]:
    tree, order = block.tree, block.tree.args.get("order")
    ordered = [block.meant(part.this) for part in order.expressions] if order else []
    guards = [item.unalias().copy() for item in (*tree.expressions, *ordered) if can_fail(item)]
    for item in [*tree.expressions, *(part.this for part in (order.expressions if order else []))]:
        if can_fail(value := item.unalias()):
            value.replace(_tried(value))
    return guards


def _guard_groups(block: Block) -> list[exp.Expression]:
    """Groups and arguments are computed from rows, and may remove them; what is computed from groups may be NULL."""
    tree = block.tree
    groups = [group.copy() for group in block.groups if can_fail(group)]
    guards = groups + [argument for call in list(block.aggregates()) for argument in _guard_arguments(call)]
    for part in (*tree.expressions, tree.args.get("group"), tree.args.get("having"), tree.args.get("order")):
        for node in list(parts_of(part)):
            if node in groups and not (node.parent is not None and _is_tried(node.parent)):
                node.replace(_tried(node))
    order = tree.args.get("order")
    kept = [part.this for part in (order.expressions if order else []) if can_fail(part.this)]
    if kept:  # a group without a place in the order is not among the first
        tree.having(_holds(part.copy() for part in kept), copy=False)
    having = tree.args.get("having")
    for node in [*(item.unalias() for item in tree.expressions), *kept, *([having.this] if having else [])]:
        if can_fail(node):
            node.replace(_tried(node))
    for call in list(block.aggregates()):
        if type(call) in NODES and known(call).has_try:  # NULL where the sum of DECIMALs does not fit
            call.replace(exp.Anonymous(this=f"try_{call.sql_name().lower()}", expressions=[call.this.copy()]))
    return guards


def _guard_arguments(call: exp.AggFunc) -> list[exp.Expression]:
    """The arguments of a call, tried; with FILTER they are evaluated only for the rows that pass it."""
    whole = call.parent if isinstance(call.parent, exp.Filter) else call
    condition = whole.expression.this if isinstance(whole, exp.Filter) else None
    arguments = call.this.expressions if isinstance(call.this, exp.Distinct) else [call.this]
    if not any(can_fail(part) for part in (*arguments, condition)):
        return []
    if condition is not None:
        first = exp.Literal.number(1) if isinstance(arguments[0], exp.Star) else arguments[0].copy()
        arguments[0].replace(exp.Case(ifs=[exp.If(this=condition.copy(), true=first)]))
        whole.replace(call)
        arguments = call.this.expressions if isinstance(call.this, exp.Distinct) else [call.this]
    guards = [part.copy() for part in arguments]
    for part in arguments:
        part.replace(_tried(part))
    return guards


def _join_guards(block: Block) -> list[exp.Expression]:
    """Let no ON fail; returns the keys of rows that a join keeps without a match: a NULL key would not remove them."""
    guards: list[exp.Expression] = []
    inside = block.tree.walk(prune=lambda node: isinstance(node, exp.Select) and node is not block.tree)
    for join in [node for node in inside if isinstance(node, exp.Join)]:
        condition = join.args.get("on")
        if condition is None or not can_fail(condition):
            continue
        keeping = join.side in ("LEFT", "RIGHT", "FULL") or join.kind == "ANTI"
        if keeping:
            guards += _kept_keys(block, join)
        join.set("on", _tried_conjuncts(condition))
    return guards


def _kept_keys(block: Block, join: exp.Join) -> list[exp.Expression]:
    """The keys of an outer join that can fail, on a side whose rows are kept without a match."""
    index = next((i for i, other in enumerate(block.joins) if other is join), None)
    later = [] if index is None else block.joins[index + 1 :]
    if index is None or any(other.side in ("RIGHT", "FULL") for other in later):
        raise EpochFailed("the key of an outer join inside another can fail, and Spark would stop at it")
    pairs = [part for part in _conjuncts(join.args["on"]) if isinstance(part, exp.EQ)]
    keys = [key for pair in pairs for key in (pair.this, pair.expression) if can_fail(key)]
    if join.side == "FULL":
        return [key.copy() for key in keys]
    before, is_left = block.joins[:index], join.side != "RIGHT"
    return [key.copy() for key in keys if block.binds([exp.alias_(key.copy(), "x")], before) is is_left]


def _conjuncts(condition: exp.Expression) -> list[exp.Expression]:
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
