"""The program of an epoch: what a view manager does with its part.

In: the epoch in flight and the store. Out: inputs of nodes by manager; receipts. Always: the same on the driver and in a
Spark task, with any number of managers; nothing is read but the stored ranges (R9). The plan is settled level by level, δ
over logs without before-images first; what a level gives goes to the managers that own it, before the next one begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.errors import InvariantBroken
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.plan.nodes import CopyNode, FoldNode, JoinNode, Node
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.views.blame import blamed
from viewkeeper.views.deltas import apply_deltas
from viewkeeper.views.duck import forget_relations
from viewkeeper.views.groups import settle_groups
from viewkeeper.views.images import Images
from viewkeeper.views.inputs import Gathering, Input, consolidate, deltas_for, read_unit
from viewkeeper.views.join import settle_join
from viewkeeper.views.parts import MAIN, feed_of_aside
from viewkeeper.views.settle import Changes, Settling, parts_by_node
from viewkeeper.views.top import settle_top
from viewkeeper.views.units import plan_units

DELTA_LEVEL = 0
_ROWS_HANDED_ON = 500_000  # what a level gives is handed on in pieces of about this many


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a manager did in an epoch; without all of them nothing is committed (R18a)."""

    manager: int
    units: tuple[int, ...]  # whose input reached it with an acknowledgement
    records: int


def split_by_manager(table: pa.Table, owners: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
    """A node's input by the manager that owns each record's place; `owners[place]` is a manager."""
    managers = np.asarray(owners)[np.asarray(table["hash"]) % len(owners)]
    for manager in np.unique(managers):
        yield int(manager), table.filter(pa.array(managers == manager))


def levels_of(plan: PhysicalPlan) -> list[int]:
    """The levels that are settled one after the other; the last is that of the views that depend on most."""
    first = [DELTA_LEVEL] if plan.deltas else []
    return first + list(range(1, max(plan.levels, default=0) + 1))


class Level:
    """One manager's part of one level: inputs in, inputs of the levels above out, and how many records were written."""

    def __init__(self, store: Store, plan: PhysicalPlan, epoch: Inflight, level: int, owned: frozenset[int]) -> None:
        self._store, self._plan, self._epoch = store, plan, epoch
        self._level, self._owned = level, owned
        self.records = 0

    def settle(self, inputs: Sequence[Input]) -> Iterator[list[Input]]:
        """Settle the level's nodes; gives what the levels above get, in pieces. Nothing is written before it is read out."""
        if self._level == DELTA_LEVEL:
            yield apply_deltas(self._store, self._plan, self._epoch, inputs, self._owned)
            return
        levels, gathering = self._plan.levels, Gathering(self._plan)
        settling = Settling(self._store, self._owned, self._epoch)
        yield [item for item in inputs if levels[item[0]] > self._level]
        mine = [item for item in inputs if levels[item[0]] == self._level]
        for number, parts in parts_by_node(mine).items():
            node = self._plan.nodes[number]
            readers = self._plan.readers(node.table)
            with blamed(node.table):
                whole = {
                    part: consolidate(self._plan, number, part, tables, self._store.places)
                    for part, tables in parts.items()
                }
                for given in _settle(settling, node, whole):
                    if isinstance(given, Images):
                        gathering.add_images(readers, given)
                    elif readers:
                        deltas_for(self._plan, self._epoch, node.table, *given.table(), gathering)
                    if gathering.rows >= _ROWS_HANDED_ON:
                        yield gathering.inputs()
        yield gathering.inputs()
        forget_relations()
        self.records = settling.write()
        failpoint("level.settled")


def apply_inputs(
    store: Store, plan: PhysicalPlan, epoch: Inflight, inputs: Sequence[Input], owned: frozenset[int]
) -> int:
    """Apply the inputs of the last level to the places in `owned`; answers how many records were written."""
    # a log without before-images has its δ also where there are no views yet: then that is the last level
    levels = levels_of(plan) or [1]
    level = Level(store, plan, epoch, levels[-1], owned)
    for handed_on in level.settle(inputs):
        if handed_on:
            raise InvariantBroken("the last level gave something to levels above it")
    return level.records


def run_here(store: Store, plan: PhysicalPlan, epoch: Inflight) -> list[Receipt]:
    """The whole epoch in this process, as one manager that owns every place."""
    units = plan_units(store, plan, epoch, pieces=1)
    everywhere = frozenset(range(store.places))
    inputs = [item for unit in units for item in read_unit(store, plan, epoch, unit)]
    written = 0
    for number in levels_of(plan):
        level = Level(store, plan, epoch, number, everywhere)
        inputs = [item for piece in level.settle(inputs) for item in piece]
        written += level.records
    return [Receipt(0, tuple(unit.number for unit in units), written)]


def _settle(settling: Settling, node: Node, parts: Mapping[int, pa.Table]) -> Iterator[Images | Changes]:
    """Settle a node's records; gives what that means to its readers."""
    for part, table in parts.items():
        feed = feed_of_aside(part)
        aside = node.feeds[feed].aside if feed is not None else None
        if aside is not None:
            _settle_events(settling, aside, table)
    if isinstance(node, JoinNode):
        yield from settle_join(settling, node, {part: table for part, table in parts.items() if part >= 0})
    elif MAIN not in parts:
        return
    elif isinstance(node, CopyNode):
        yield _settle_events(settling, node.table, parts[MAIN])
    elif isinstance(node, FoldNode):
        yield settle_groups(settling, node, parts)
    else:
        yield from settle_top(settling, node, parts[MAIN])


def _settle_events(settling: Settling, table: int, events: pa.Table) -> Changes:
    found = settling.find(table, events)
    return settling.put(found, found.input["row"].combine_chunks())
