"""The program of an epoch: what a view manager does with its part.

In: the epoch in flight and the store. Out: inputs of nodes by manager; receipts. Always: the same on the driver and in a
Spark task, with any number of managers; nothing is read but the stored ranges (R9). Where the log has no before-images,
the managers first settle DELTA and then hand on what came out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.model.epochs import Inflight
from viewkeeper.plan.physical import FoldNode, Node, PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.views.blame import blamed
from viewkeeper.views.deltas import apply_deltas
from viewkeeper.views.duck import forget_relations
from viewkeeper.views.groups import settle_groups
from viewkeeper.views.inputs import Input, consolidate, read_unit
from viewkeeper.views.parts import ASIDE, MAIN
from viewkeeper.views.settle import Settling, parts_by_node
from viewkeeper.views.units import plan_units


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


def apply_inputs(
    store: Store, plan: PhysicalPlan, epoch: Inflight, inputs: Sequence[Input], owned: frozenset[int]
) -> int:
    """Apply inputs to the places in `owned`; answers how many records were written."""
    settling = Settling(store, owned, epoch)
    for number, parts in parts_by_node(inputs).items():
        with blamed(plan.nodes[number].table):
            whole = {part: consolidate(plan, number, part, tables) for part, tables in parts.items()}
            _settle(settling, plan.nodes[number], whole)
    forget_relations()
    return settling.write()


def run_here(store: Store, plan: PhysicalPlan, epoch: Inflight) -> list[Receipt]:
    """The whole epoch in this process, as one manager that owns every place."""
    units = plan_units(plan, epoch, pieces=1)
    everywhere = frozenset(range(store.places))
    inputs = [item for unit in units for item in read_unit(store, plan, epoch, unit)]
    if plan.deltas:
        inputs = apply_deltas(store, plan, epoch, inputs, everywhere)
    written = apply_inputs(store, plan, epoch, inputs, everywhere)
    return [Receipt(0, tuple(unit.number for unit in units), written)]


def _settle(settling: Settling, node: Node, parts: Mapping[int, pa.Table]) -> None:
    if ASIDE in parts and node.aside is not None:
        _settle_events(settling, node.aside, parts[ASIDE])
    if MAIN not in parts:
        return
    if isinstance(node, FoldNode):
        settle_groups(settling, node, parts)
    else:
        _settle_events(settling, node.table, parts[MAIN])


def _settle_events(settling: Settling, table: int, events: pa.Table) -> None:
    found = settling.find(table, events)
    settling.put(found, found.input["row"].combine_chunks())
