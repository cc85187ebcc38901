"""Table vertices: which tables a plan keeps, and which records stand in them (paper 3, section 3).

In: a plan and a place. Out: the tables that the node there keeps. Always: pure, in the order in which a plan shows them;
rows set aside and groups that do not fit are lists of exceptions, and no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.plan.logical import (
    STORED,
    Delta,
    Fold,
    Join,
    LogicalPlan,
    Project,
    ReverseJoin,
    Top,
    View,
    columns_at,
)
from viewkeeper.plan.naming import order_text, text_over
from viewkeeper.plan.zones import join_key_text, key_at
from viewkeeper.sql.expressions import Aggregate


@dataclass(frozen=True, slots=True)
class KeptTable:
    """`name` of a table, and its records as `(key) → row`; `passes_on`: whether further nodes are fed by it."""

    name: str
    records: str
    passes_on: bool = False


def tables_at(plan: LogicalPlan, place: int) -> tuple[KeptTable, ...]:
    """The tables kept by the node at `place`; a base table is kept by its clients."""
    match plan.nodes[place]:
        case Delta(old_rows=old_rows) if old_rows == STORED:
            return (KeptTable("DELTA", _records(plan, place, "row as of the last epoch"), passes_on=True),)
        case Fold() as fold:
            return (*_entries(plan, place, fold), *_groups(plan, place, fold))
        case ReverseJoin():
            return (KeptTable("REVERSE-JOIN", _records(plan, place, "row")),)
        case Join() as join:
            return _counts(plan, place, join)
        case Top(input=source, order=order):
            parts = ", ".join((*(order_text(plan, source, part) for part in order), *key_at(plan, source)))
            return (KeptTable("TOP-N", f"({parts}) → row"),)
        case View(stored=stored) if stored is not None and _shown_before(plan, place, stored) is not None:
            return ()
        case View(input=source, name=name):
            return (KeptTable(f"view {name}", _records(plan, place, ", ".join(_shown(plan, source)))),)
    return ()


def _shown_before(plan: LogicalPlan, place: int, stored: int) -> str | None:
    """The view before the node at `place` that has the same table."""
    views = (node for node in plan.nodes[:place] if isinstance(node, View))
    return next((view.name for view in views if view.stored == stored), None)


def _records(plan: LogicalPlan, place: int, row: str) -> str:
    key = f"({', '.join(key_at(plan, place))})"
    return f"{key} → {row}" if row else key


def _entries(plan: LogicalPlan, place: int, fold: Fold) -> list[KeptTable]:
    """PRE-AGGREGATION: one for all of MIN, MAX and COUNT(DISTINCT) over the same arguments."""
    values = dict.fromkeys(
        _argument_text(plan, fold.input, aggregate)
        for aggregate in fold.grouping.aggregates
        if aggregate.distinct or aggregate.function in ("min", "max")
    )
    groups = key_at(plan, place)
    return [KeptTable("PRE-AGGREGATION", f"({', '.join((*groups, value))}) → multiplicity") for value in values]


def _argument_text(plan: LogicalPlan, source: int, aggregate: Aggregate) -> str:
    text = ", ".join(text_over(plan, source, arg) for arg in aggregate.args)
    return text if aggregate.filter is None else f"{text} where {text_over(plan, source, aggregate.filter)}"


def _groups(plan: LogicalPlan, place: int, fold: Fold) -> list[KeptTable]:
    """The groups have a table of their own where no view's records are theirs: with HAVING, and inside a query."""
    if _is_shown(plan, place, fold.stored):
        return []
    row = dict.fromkeys(("count(*)", *(text_over(plan, fold.input, part) for part in fold.grouping.aggregates)))
    return [KeptTable("groups", _records(plan, place, ", ".join(row)), passes_on=True)]


def _is_shown(plan: LogicalPlan, place: int, stored: int | None) -> bool:
    """Whether a view shows the records themselves: nothing but π stands between the node and that view."""
    for reader in plan.readers(place):
        node = plan.nodes[reader]
        if isinstance(node, View) and node.stored == stored:
            return True
        if isinstance(node, Project) and _is_shown(plan, reader, stored):
            return True
    return False


def _counts(plan: LogicalPlan, place: int, join: Join) -> tuple[KeptTable, ...]:
    """To know which rows have no match, a join that is not inner counts them."""
    if join.kind == "inner":
        return ()
    key = join_key_text(plan, plan.reverse_join(place))
    records = f"({key}) → rows of each side" if join.residual is None else f"({key}, side, key) → matches"
    return (KeptTable("match counts", records),)


def _shown(plan: LogicalPlan, source: int) -> list[str]:
    """The columns that a view stores: one that its key holds is not stored again."""
    key = {part.lower() for part in key_at(plan, source)}
    node = plan.nodes[source]
    if isinstance(node, Project):
        texts = [text_over(plan, node.input, output.expression) for output in node.outputs]
        return [output.name for output, text in zip(node.outputs, texts, strict=True) if text.lower() not in key]
    return [column.name for column in columns_at(plan, source) if column.name.lower() not in key]
