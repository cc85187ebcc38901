"""Inputs: what changes and rows mean to the nodes that read them.

In: a unit, or deltas. Out: inputs (node, part, table), consolidated. Always: a view that is being filled sees the changes of
the rows it has, and only those (R12); the others come to it as rows of a later chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.keybatches import places_of_keys
from viewkeeper.model.positions import Position, Stream
from viewkeeper.plan.physical import CopyNode, FoldNode, Node, PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.views.blame import blamed
from viewkeeper.views.copy import events_of, last_events
from viewkeeper.views.duck import forget_relations
from viewkeeper.views.fold import (
    combine,
    combine_doubles,
    combine_entries,
    contribute,
    contribute_side,
    first_contribution,
    has_one_reader,
    sides,
)
from viewkeeper.views.images import Images, images_of_changes, images_of_rows
from viewkeeper.views.parts import ASIDE, MAIN, kind_of
from viewkeeper.views.rollup import RollingUp
from viewkeeper.views.units import Unit, chunk_of

_FEW_ROWS = 50_000  # are moved sooner than they are grouped

Input = tuple[int, int, pa.Table]  # node by its place in the plan (a DELTA: behind the nodes), part, rows


class Gathering:
    """Inputs collected from images, then consolidated."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self._parts: dict[tuple[int, int], list[pa.Table]] = {}
        self._rolling_up = RollingUp()

    def add(self, number: int, part: int, table: pa.Table) -> None:
        self._parts.setdefault((number, part), []).append(table)

    def add_images(self, numbers: Sequence[int], images: Images) -> None:
        nodes = {number: self._plan.nodes[number] for number in numbers}
        folds = {number: node for number, node in nodes.items() if isinstance(node, FoldNode)}
        for number, tables in self._rolling_up.contributions(folds, images.relation).items():
            del nodes[number]
            for table in tables:
                self.add(number, MAIN, table)
        simple = {n: node for n, node in nodes.items() if isinstance(node, FoldNode) and has_one_reader(node)}
        for sign, side in sides(images.relation) if simple else ():
            for number, node in simple.items():
                with blamed(node.table):
                    self.add(number, MAIN, contribute_side(node, side, sign))
        for number, other in nodes.items():
            if number not in simple:
                with blamed(other.table):
                    program = contribute(other, images) if isinstance(other, FoldNode) else events_of(other, images)
                    for part, table in program:
                        self.add(number, part, table)

    def inputs(self) -> list[Input]:
        """One table for each part."""
        return [(number, part, self._one(number, part, tables)) for (number, part), tables in self._sorted()]

    def _one(self, number: int, part: int, tables: Sequence[pa.Table]) -> pa.Table:
        """Contributions are put together where they are applied; before that only what is much, or copies."""
        is_fold = number < len(self._plan.nodes) and isinstance(self._plan.nodes[number], FoldNode) and part != ASIDE
        if is_fold and (len(tables) == 1 or sum(map(len, tables)) <= _FEW_ROWS):
            return pa.concat_tables(tables)
        return consolidate(self._plan, number, part, tables)

    def _sorted(self) -> list[tuple[tuple[int, int], list[pa.Table]]]:
        return sorted(self._parts.items(), key=lambda item: item[0])


def consolidate(plan: PhysicalPlan, number: int, part: int, tables: Sequence[pa.Table]) -> pa.Table:
    """All of a part's input as one row per record, in key order (R6)."""
    node: Node | None = plan.nodes[number] if number < len(plan.nodes) else None
    if node is None or part == ASIDE or isinstance(node, CopyNode):
        return last_events(tables)
    match kind_of(node, part):
        case "entries":
            return combine_entries(tables)
        case "doubles":
            return combine_doubles(tables)
    return combine(node, tables)


def read_unit(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit) -> list[Input]:
    """The input that a unit gives: of the log to nodes, or to DELTAs where the log has no before-images; of rows to nodes."""
    failpoint("unit.start")
    gathering = Gathering(plan)
    if unit.chunk is not None:
        _read_rows(store, plan, epoch, unit, gathering)
    else:
        for source, batch in store.read_log(Stream(unit.part), Position(unit.start), Position(unit.stop)):
            _read_changes(plan, epoch, source, batch, unit.part, gathering)
    failpoint("unit.read")
    inputs = gathering.inputs()
    forget_relations()
    return inputs


def _read_changes(
    plan: PhysicalPlan, epoch: Inflight, source: int, batch: pa.RecordBatch, stream: int, gathering: Gathering
) -> None:
    for place, table in enumerate(plan.deltas):
        if table.id == source:
            hashes = pa.array(places_of_keys(table.key_columns, batch["key"]))
            events = {"key": batch["key"], "hash": hashes, "ord": batch["position"], "row": batch["after"]}
            gathering.add(len(plan.nodes) + place, MAIN, pa.table(events))
            return
    for chunk, numbers in _readers(plan, epoch, source):
        flowing = batch
        if chunk is not None and stream in epoch.chunks[chunk].borders:
            low = epoch.chunks[chunk].borders[stream][0]
            flowing = batch.filter(pc.less_equal(batch["key"], pa.scalar(low, pa.binary())))
        add_changes(plan, source, flowing, numbers, gathering)


def add_changes(
    plan: PhysicalPlan, source: int, changes: pa.RecordBatch | pa.Table, numbers: Sequence[int], gathering: Gathering
) -> None:
    """Changes (position, key, before, after) to the given nodes."""
    if len(changes):
        schema = next(table for table in plan.tables if table.id == source)
        gathering.add_images(numbers, images_of_changes(schema, changes, _wanted(plan, numbers)))


def deltas_for(
    plan: PhysicalPlan, epoch: Inflight, source: int, changes: pa.Table, places: np.ndarray, gathering: Gathering
) -> None:
    """Deltas that came out of a DELTA; `places` says where each row's lies. A chunk's rows are as of the epoch before."""
    for chunk, numbers in _readers(plan, epoch, source):
        flowing = changes
        if chunk is not None:
            flows = np.ones(len(changes), bool)
            for place, keys in epoch.chunks[chunk].borders.items():
                if keys[-1] is not None:
                    below = pc.less_equal(changes["key"], pa.scalar(keys[-1], pa.binary()))
                    flows &= (places != place) | np.asarray(below)
            flowing = changes.filter(pa.array(flows))
        add_changes(plan, source, flowing, numbers, gathering)


def _read_rows(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit, gathering: Gathering) -> None:
    """Rows of a chunk: as of the epoch's end from the base, as of the epoch before from DELTA (R12)."""
    chunk = epoch.chunks[unit.chunk or 0]
    numbers = [number for number, node in enumerate(plan.nodes) if node.table in chunk.tables]
    for batch in _rows(store, plan, epoch, unit, chunk.source):
        if len(batch):
            schema = next(table for table in plan.tables if table.id == chunk.source)
            gathering.add_images(numbers, images_of_rows(schema, batch, _wanted(plan, numbers)))
    for number in numbers if unit.opens else ():
        node = plan.nodes[number]
        if isinstance(node, FoldNode) and node.always:
            gathering.add(number, MAIN, first_contribution(node))


def _rows(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit, source: int) -> Iterable[pa.RecordBatch]:
    delta = next((table.delta for table in plan.deltas if table.id == source), None)
    if delta is None:
        return store.scan_as_of(source, Stream(unit.part), Position(unit.stop), unit.low, unit.high)
    return store.scan_versions(unit.part, delta, epoch.epoch - 1, epoch.void, unit.low, unit.high)


def _readers(plan: PhysicalPlan, epoch: Inflight, source: int) -> Iterator[tuple[int | None, list[int]]]:
    """The nodes that read a table, by the chunk that fills them: one set of images serves all of one chunk."""
    readers: dict[int | None, list[int]] = {}
    for number, node in enumerate(plan.nodes):
        if node.source == source:
            readers.setdefault(chunk_of(epoch, node.table), []).append(number)
    yield from readers.items()


def _wanted(plan: PhysicalPlan, numbers: Sequence[int]) -> list[int]:
    return sorted({position for number in numbers for position in plan.nodes[number].columns})
