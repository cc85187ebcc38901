"""The program of an epoch: which work it has, and what a view manager does with its part.

In: the epoch in flight and the store. Out: units of input work; parts of a node's input, by manager; receipts. Always:
the same on the driver and in a Spark task, with any number of managers; nothing is read but the stored ranges (R9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Position, Stream
from viewkeeper.plan.physical import CopyNode, FoldNode, Node, PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.views.copy import events_of, last_events
from viewkeeper.views.fold import combine, combine_doubles, combine_entries, contribute, first_contribution
from viewkeeper.views.groups import settle_groups
from viewkeeper.views.images import Images, images_of_changes, images_of_rows
from viewkeeper.views.parts import ASIDE, MAIN, kind_of
from viewkeeper.views.settle import Settling, parts_by_node

Input = tuple[int, int, pa.Table]  # node by its place in the plan, part, rows


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of an epoch's input: a range of a log, or with `table` the rows of a base table to fill views from."""

    number: int
    stream: int
    start: int
    stop: int
    table: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a manager did in an epoch; without all of them nothing is committed (R18a)."""

    manager: int
    units: tuple[int, ...]  # whose input reached it with an acknowledgement
    records: int


def plan_units(plan: PhysicalPlan, epoch: Inflight, *, pieces: int) -> list[Unit]:
    """The input work of an epoch; each stream's range is cut in about `pieces`."""
    units: list[Unit] = []
    filled = {node.source for node in plan.nodes if node.table in epoch.backfill}
    if any(node.table not in epoch.backfill for node in plan.nodes):
        for stream, stop in sorted(epoch.stop.positions.items()):
            start = epoch.start.get(stream, Position(0))
            borders = np.linspace(start, stop, min(pieces, max(stop - start, 1)) + 1).astype(int).tolist()
            for low, high in zip(borders, borders[1:], strict=False):
                if low < high:
                    units.append(Unit(len(units), stream, low, high))
    for table in sorted(filled):
        for stream, stop in sorted(epoch.stop.positions.items()):
            units.append(Unit(len(units), stream, 0, stop, table))
    return units


def read_unit(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit) -> list[Input]:
    """The input that a unit gives to each part of each node (by its place in the plan), consolidated."""
    failpoint("unit.start")
    parts: dict[tuple[int, int], list[pa.Table]] = {}
    wanted = [
        number
        for number, node in enumerate(plan.nodes)
        if (node.table in epoch.backfill) == (unit.table is not None) and unit.table in (None, node.source)
    ]
    for source, batch in _batches(store, plan, unit):
        nodes = [number for number in wanted if plan.nodes[number].source == source]
        if nodes:
            images = _images(plan, unit, source, batch, [plan.nodes[number] for number in nodes])
            for number in nodes:
                for part, table in _input_of(plan.nodes[number], images):
                    parts.setdefault((number, part), []).append(table)
    if unit.table is not None:
        for number in wanted:
            node = plan.nodes[number]
            # one stream of the table's gives the record that stands over an empty base too
            if isinstance(node, FoldNode) and node.always and unit.stream == 0:
                parts.setdefault((number, MAIN), []).append(first_contribution(node))
    failpoint("unit.read")
    return [
        (number, part, consolidate(plan.nodes[number], part, tables))
        for (number, part), tables in sorted(parts.items())
    ]


def split_by_manager(table: pa.Table, owners: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
    """A node's input by the manager that owns each record's place; `owners[place]` is a manager."""
    managers = np.asarray(owners)[np.asarray(table["hash"]) % len(owners)]
    for manager in np.unique(managers):
        yield int(manager), table.filter(pa.array(managers == manager))


def consolidate(node: Node, part: int, tables: Sequence[pa.Table]) -> pa.Table:
    """All of a part's input as one row per record, in key order (R6)."""
    if part == ASIDE or isinstance(node, CopyNode):
        return last_events(tables)
    match kind_of(node, part):
        case "entries":
            return combine_entries(tables)
        case "doubles":
            return combine_doubles(tables)
    return combine(node, tables)


def apply_inputs(
    store: Store, plan: PhysicalPlan, epoch: Inflight, inputs: Sequence[Input], owned: frozenset[int]
) -> int:
    """Apply inputs to the places in `owned`; answers how many records were written."""
    settling = Settling(store, owned, epoch)
    for number, parts in parts_by_node(inputs).items():
        node = plan.nodes[number]
        # what a single unit read is consolidated already
        whole = {p: tables[0] if len(tables) == 1 else consolidate(node, p, tables) for p, tables in parts.items()}
        _settle(settling, node, whole)
    return settling.write()


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


def run_here(store: Store, plan: PhysicalPlan, epoch: Inflight) -> list[Receipt]:
    """The whole epoch in this process, as one manager that owns every place."""
    units = plan_units(plan, epoch, pieces=1)
    inputs = [item for unit in units for item in read_unit(store, plan, epoch, unit)]
    written = apply_inputs(store, plan, epoch, inputs, frozenset(range(store.places)))
    return [Receipt(0, tuple(unit.number for unit in units), written)]


def _batches(store: Store, plan: PhysicalPlan, unit: Unit) -> Iterator[tuple[int, pa.RecordBatch]]:
    if unit.table is None:
        yield from store.read_log(Stream(unit.stream), Position(unit.start), Position(unit.stop))
        return
    schema = next(table for table in plan.tables if table.id == unit.table)
    for batch in store.scan_as_of(schema, Stream(unit.stream), Position(unit.stop)):
        yield unit.table, batch


def _images(plan: PhysicalPlan, unit: Unit, source: int, batch: pa.RecordBatch, nodes: Sequence[Node]) -> Images:
    schema = next(table for table in plan.tables if table.id == source)
    wanted = sorted({position for node in nodes for position in node.columns})
    return (images_of_changes if unit.table is None else images_of_rows)(schema, batch, wanted)


def _input_of(node: Node, images: Images) -> Iterator[tuple[int, pa.Table]]:
    return contribute(node, images) if isinstance(node, FoldNode) else events_of(node, images)
