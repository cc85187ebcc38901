"""Shared nodes: a node that is stored under the same canonical text is used again.

In: the lowered nodes of a view, and the stored nodes of a catalog. Out: the stored nodes that the view needs, old and new;
its nodes with their tables. Always: pure; a new node is filled only from the records of copies and γ, which alone hold all
their output so far.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from viewkeeper.catalog.catalog import ErrorList, StoredNode, with_dependents
from viewkeeper.errors import InvariantBroken
from viewkeeper.model.memo import Memo
from viewkeeper.model.schema import TableId
from viewkeeper.plan.lower import Lowered
from viewkeeper.plan.nodes import AggregateNode, Contribution, Node, OutputNode, Term


def share_nodes(
    lowered: Lowered, stored: Collection[StoredNode], without: Collection[int] = ()
) -> dict[str, StoredNode]:
    """N (e) and N (e) = one N (e): the stored nodes that a view can use, by text (paper 3, algorithm 2, step 1).

    From the view's own downwards, each with all that it reads. Using one adds no record and no write, so it never costs more.
    A new node can be filled from records only: so a join or top-n is used only by the nodes that already use it.
    """
    unusable = with_dependents(stored, without)
    newest = {one.text: one for one in stored if one.table not in unusable}
    by_table = {one.table: one for one in stored}
    readers = lowered.readers()
    refused: set[str] = set()
    while True:
        chosen: dict[str, StoredNode] = {}
        before = len(refused)
        for text, node in zip(reversed(lowered.texts), reversed(lowered.nodes), strict=True):
            users = [reader for reader in readers[text] if reader in chosen]
            inputs = [by_table[source] for user in users for source in chosen[user].reads if source in by_table]
            used = {one.table: one for one in inputs if one.text == text}
            has_records = isinstance(node, OutputNode)
            shared = len(users) < len(readers[text]) and not has_records
            if len(used) > 1 or (used and (shared or text in refused)):
                refused |= set(users)
                break
            if used:
                chosen[text] = next(iter(used.values()))
            elif has_records and text in newest and text not in refused:
                chosen[text] = newest[text]
        if len(refused) == before:
            return chosen


def assign(
    lowered: Lowered, stored: Collection[StoredNode], view: TableId, *, without: Collection[int] = ()
) -> tuple[StoredNode, ...]:
    """The stored nodes of a new view, its own last; new nodes have the ids after the view's. Those `without` are not used."""
    chosen = share_nodes(lowered, stored, without)
    placed: dict[int, TableId] = {}
    free = view + 1
    for text, node in zip(lowered.texts, lowered.nodes, strict=True):
        if text not in chosen:
            own = tuple(TableId(free + index) for index in range(len(node.tables)))
            free += len(own)
            placed |= zip(node.tables, own, strict=True)
            chosen[text] = _stored(with_tables(node, placed), text, view)
        placed |= zip(node.tables, chosen[text].tables, strict=True)
    return tuple(chosen[text] for text in lowered.texts)


def placed_nodes(lowered: Lowered, needed: Sequence[StoredNode]) -> tuple[Node, ...]:
    """The nodes of a lowered view with the tables, and the backfill, of the stored nodes that it needs."""
    return _placed.of((lowered, *needed), lambda: _place(lowered, needed))


_placed = Memo[tuple[Node, ...]](kept_max=8192)


def _place(lowered: Lowered, needed: Sequence[StoredNode]) -> tuple[Node, ...]:
    by_text = {one.text: one for one in needed}
    placed: dict[int, TableId] = {}
    found: list[Node] = []
    for text, node in zip(lowered.texts, lowered.nodes, strict=True):
        if text not in by_text:
            raise InvariantBroken(f"no table is assigned to {text}")
        placed |= zip(node.tables, by_text[text].tables, strict=True)
        found.append(replace(with_tables(node, placed), backfill=by_text[text].backfill))
    return tuple(found)


def _stored(node: Node, text: str, view: TableId) -> StoredNode:
    exceptions = [ErrorList("aside", edge.aside, edge.key) for edge in node.edges if edge.aside is not None]
    if isinstance(node, AggregateNode) and node.degraded is not None:
        exceptions.append(ErrorList("degraded", node.degraded, node.key))
    reads = tuple(dict.fromkeys(edge.source for edge in node.edges))
    key, row = (node.key, node.row) if isinstance(node, OutputNode) else ((), ())
    return StoredNode(node.table, text, reads, node.tables, view, key, row, tuple(exceptions))


def with_tables(value: Any, placed: Mapping[int, TableId]) -> Any:
    """A node, or a part of one, with tables of its own in place of those from lowering."""
    if isinstance(value, tuple):
        return tuple(with_tables(item, placed) for item in value)
    if not is_dataclass(value) or isinstance(value, (type, Contribution, Term)):
        return value
    changes = {}
    for field in fields(value):
        part = getattr(value, field.name)
        is_table = field.type in ("TableId", "TableId | None")
        changes[field.name] = placed.get(part, part) if is_table else with_tables(part, placed)
    return replace(value, **changes)
