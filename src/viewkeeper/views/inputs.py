"""Inputs: what changes and rows mean to the nodes that read them.

In: a unit, or what a node gave. Out: input of channels. Always: a view that is being filled sees the changes of the rows it
has, and only those (R12); the others come to it as rows of a later chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Stream
from viewkeeper.plan.nodes import DeltaNode, FoldNode, Node
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.settings import WorkSettings
from viewkeeper.views.aside import aside_events, without_failing
from viewkeeper.views.channels import GROUPS, ROWS, Channel, Input, aside
from viewkeeper.views.deltas import log_events
from viewkeeper.views.duck import forget_relations, run_feed
from viewkeeper.views.fold import first_contribution
from viewkeeper.views.images import Images, images_of_changes, images_of_rows
from viewkeeper.views.operator import Operator, Reader
from viewkeeper.views.operators import OPERATORS
from viewkeeper.views.settle import Changes
from viewkeeper.views.units import Unit, chunk_of, opening_chunk


class Gathering:
    """Collects what deltas mean to the nodes that read them."""

    def __init__(self, plan: PhysicalPlan, epoch: Inflight, settings: WorkSettings) -> None:
        self._plan, self._epoch, self._settings = plan, epoch, settings
        self._operators: dict[type, Operator] = {}
        self._tables: dict[tuple[int, Channel], list[pa.Table]] = {}
        self.rows = 0  # gathered and not handed on yet

    def add(self, table: int, channel: Channel, rows: pa.Table) -> None:
        """Rows for a channel of the node that writes `table`."""
        self._tables.setdefault((table, channel), []).append(rows)
        self.rows += len(rows)

    def add_images(self, readers: Sequence[Reader], images: Images) -> None:
        """What images mean to each of the readers of their source."""
        together: dict[type, list[Reader]] = {}
        for node, number in readers:
            together.setdefault(type(node), []).append((node, number))
        for kind, mine in together.items():
            self._operator(kind).read(mine, images, self)

    def add_output(self, node: Node | DeltaNode, given: Images | Changes) -> None:
        """What a node gave, to those who read it. The rows of a backfill's chunk are as of the epoch before."""
        if isinstance(given, Images):
            self.add_images(self._plan.readers(node.gives), given)
            return
        readers = list(_readers(self._plan, self._epoch, node.gives))
        if not readers:
            return
        changes, places = given.table()
        for chunk, some in readers:
            self.add_changes(node.gives, changes if chunk is None else self._flowing(changes, places, chunk), some)

    def add_changes(self, source: int, changes: pa.RecordBatch | pa.Table, readers: Sequence[Reader]) -> None:
        """Changes (position, key, before, after) to the given readers."""
        if len(changes):
            schema, most = self._plan.schema(source), self._settings.decoded_rows
            self.add_images(readers, images_of_changes(schema, changes, _wanted(readers), rows_max=most))

    def passing(self, node: Node, number: int, images: Images) -> pa.Table:
        """The rows that pass an edge; those on which its expressions fail are set aside."""
        feed = node.feeds[number]
        rows = run_feed(feed.rows, images.relation)
        if feed.aside is not None:
            failing = aside_events(images, rows)
            if failing is not None:
                self.add(node.table, aside(number), failing)
                rows = without_failing(rows)
        return rows

    def inputs(self) -> list[Input]:
        """One table for each channel; the gathering begins anew."""
        found, self._tables, self.rows = self._tables, {}, 0
        return [
            Input(table, channel, self._operator(type(node)).lessen(node, channel, rows))
            for (table, channel), rows in sorted(found.items(), key=lambda item: item[0])
            for node in (self._plan.node(table),)
        ]

    def _operator(self, kind: type) -> Operator:
        if kind not in self._operators:
            self._operators[kind] = OPERATORS[kind](self._settings)
        return self._operators[kind]

    def _flowing(self, changes: pa.Table, places: np.ndarray, chunk: int) -> pa.Table:
        """The changes of rows that a backfill has, or gets with its chunk."""
        flows = np.ones(len(changes), bool)
        for place, keys in self._epoch.chunks[chunk].borders.items():
            if keys[-1] is not None:
                below = pc.less_equal(changes["key"], pa.scalar(keys[-1], pa.binary()))
                flows &= (places != place) | np.asarray(below)
        return changes.filter(pa.array(flows))


def read_unit(
    store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit, settings: WorkSettings
) -> tuple[list[Input], int]:
    """The input that a unit gives: of the log to nodes, or to DELTAs; of rows to nodes. And how many rows were read."""
    failpoint("unit.start")
    gathering, count = Gathering(plan, epoch, settings), 0
    if unit.chunk is not None:
        count = _read_rows(store, plan, epoch, unit, gathering)
    else:
        for source, batch in store.read_log(unit.stream, unit.start, unit.stop):
            _read_changes(store, plan, epoch, source, batch, unit.stream, gathering)
            count += len(batch)
    failpoint("unit.read")
    inputs = gathering.inputs()
    forget_relations()
    return inputs, count


def _read_changes(
    store: Store,
    plan: PhysicalPlan,
    epoch: Inflight,
    source: int,
    batch: pa.RecordBatch,
    stream: Stream,
    gathering: Gathering,
) -> None:
    delta = plan.delta_of(source)
    if delta is not None:
        gathering.add(delta.table, ROWS, log_events(delta, batch))
        return
    for chunk, readers in _readers(plan, epoch, source):
        flowing = batch
        if chunk is not None and (part := store.part_of(stream)) in epoch.chunks[chunk].borders:
            low = epoch.chunks[chunk].borders[part][0]
            flowing = batch.filter(pc.less_equal(batch["key"], pa.scalar(low, pa.binary())))
        gathering.add_changes(source, flowing, readers)


def _read_rows(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit, gathering: Gathering) -> int:
    """Rows of a chunk: as of the epoch's end from the base, as of the epoch before from records (R12)."""
    chunk, count = epoch.chunks[unit.chunk or 0], 0
    readers = [(node, number) for node, number in plan.readers(chunk.source) if node.backfill in chunk.tables]
    schema, wanted = plan.schema(chunk.source), _wanted(readers)
    for batch in _rows(store, plan, epoch, unit, chunk.source):
        count += len(batch)
        if len(batch):
            gathering.add_images(readers, images_of_rows(schema, batch, wanted))
    for node in plan.nodes if unit.opens else ():
        if isinstance(node, FoldNode) and node.always and opening_chunk(epoch, node.backfill) == unit.chunk:
            gathering.add(node.table, GROUPS, first_contribution(node))
    return count


def _rows(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit, source: int) -> Iterable[pa.RecordBatch]:
    stored = plan.stored_in(source)
    if stored is None:
        return store.scan_as_of(source, unit.part, epoch.stop.positions, unit.low, unit.high)
    return store.scan_versions(unit.part, stored, epoch.epoch - 1, epoch.void, unit.low, unit.high)


def _readers(plan: PhysicalPlan, epoch: Inflight, source: int) -> Iterator[tuple[int | None, list[Reader]]]:
    """Who reads a table, by the chunk that fills them from it: one set of images serves all of one chunk."""
    found: dict[int | None, list[Reader]] = {}
    for node, number in plan.readers(source):
        found.setdefault(chunk_of(epoch, node.backfill, source), []).append((node, number))
    yield from found.items()


def _wanted(readers: Sequence[Reader]) -> list[int]:
    return sorted({position for node, number in readers for position in node.feeds[number].columns})
