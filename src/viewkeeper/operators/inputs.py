"""Inputs: what changes and rows mean for the nodes that read them.

In: a split, or a node's output. Out: input of channels. Always: a view that is being filled sees the changes of the
rows it has, and only those (R12); it gets the others as rows of a later chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.failpoints import failpoint
from viewkeeper.model.asides import DROPPED, AsideRequest
from viewkeeper.model.counts import Counts, Kinds, add_up
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.fills import Chunk
from viewkeeper.model.images import image_batch
from viewkeeper.operators.apply import Changes
from viewkeeper.operators.asides import list_events, listed_keys
from viewkeeper.operators.blame import blamed
from viewkeeper.operators.cell_delta import cell_events
from viewkeeper.operators.channels import GROUPS, ROWS, Channel, Input
from viewkeeper.operators.contributions import first_contribution
from viewkeeper.operators.delta import log_events
from viewkeeper.operators.delta_rows import Delta, delta_of_changes, delta_of_rows
from viewkeeper.operators.duck import forget_relations
from viewkeeper.operators.operator import Reader
from viewkeeper.operators.registry import EDGE_OPERATORS, OPERATORS
from viewkeeper.operators.repair import differences
from viewkeeper.operators.splits import Split, chunk_of, opening_chunk
from viewkeeper.plan.nodes import AggregateNode, AppliedNode, CellDeltaNode, DeltaNode
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.log import CELLS_SCHEMA
from viewkeeper.ports.store import Store
from viewkeeper.settings import WorkSettings


class DeltaCollector:
    """Collects the input that deltas give the nodes that read them."""

    def __init__(self, plan: PhysicalPlan, epoch: Inflight, settings: WorkSettings) -> None:
        self._plan, self._epoch, self._settings = plan, epoch, settings
        self._readers = {kind: operator(settings) for kind, operator in EDGE_OPERATORS.items()}
        self._tables: dict[tuple[int, Channel], list[pa.Table]] = {}
        self.rows = 0  # collected and not handed on yet

    def add(self, table: int, channel: Channel, rows: pa.Table) -> None:
        """Rows for a channel of the node that writes `table`."""
        self._tables.setdefault((table, channel), []).append(rows)
        self.rows += len(rows)

    def add_delta(self, readers: Sequence[Reader], delta: Delta) -> None:
        """The input that delta rows give each of the readers of their source."""
        together: dict[type, list[Reader]] = {}
        for node, number in readers:
            together.setdefault(type(node), []).append((node, number))
        for kind, mine in together.items():
            for given in self._readers[kind].read(mine, delta):
                self.add(*given)

    def add_output(self, node: AppliedNode, given: Delta | Changes) -> None:
        """A node's output, for its readers. The rows of a backfill's chunk are as of the epoch before."""
        if isinstance(given, Delta):
            self.add_delta(self._plan.readers(node.gives), given)
            return
        readers = list(_readers(self._plan, self._epoch, node.gives))
        if not readers:
            return
        changes, partitions = given.table()
        for chunk, some in readers:
            self.add_changes(node.gives, changes if chunk is None else self._flowing(changes, partitions, chunk), some)

    def add_changes(self, source: int, changes: pa.RecordBatch | pa.Table, readers: Sequence[Reader]) -> None:
        """Changes (position, key, before, after), for the given readers."""
        if len(changes):
            schema, most = self._plan.schema(source), self._settings.decoded_rows
            self.add_delta(readers, delta_of_changes(schema, changes, _wanted(readers), rows_max=most))

    def inputs(self) -> list[Input]:
        """One table for each channel; the collector starts over empty."""
        found, self._tables, self.rows = self._tables, {}, 0
        return [
            Input(table, channel, OPERATORS[type(node)](self._settings).lessen(node, channel, rows))
            for (table, channel), rows in sorted(found.items(), key=lambda item: item[0])
            for node in (self._plan.node(table),)
        ]

    def _flowing(self, changes: pa.Table, partitions: np.ndarray, chunk: int) -> pa.Table:
        """The changes of rows that a backfill has, or gets with its chunk."""
        flows = np.ones(len(changes), bool)
        for partition, keys in self._epoch.chunks[chunk].borders.items():
            if keys[-1] is not None:
                below = pc.less_equal(changes["key"], pa.scalar(keys[-1], pa.binary()))
                flows &= (partitions != partition) | np.asarray(below)
        return changes.filter(pa.array(flows))


def read_split(
    store: Store, plan: PhysicalPlan, epoch: Inflight, split: Split, settings: WorkSettings
) -> tuple[list[Input], Counts]:
    """The input that a split gives (log changes for nodes or DELTAs, rows for nodes), and what was read for it."""
    failpoint("split.start")
    collector = DeltaCollector(plan, epoch, settings)
    reader = _SplitReader(store, plan, epoch, split, collector)
    if plan.repairs:
        counts = reader.read_differences()
    elif plan.aside is not None:
        counts = reader.read_aside(plan.aside)
    else:
        counts = reader.read_changes() if split.chunk is None else reader.read_rows(epoch.chunks[split.chunk])
    failpoint("split.read")
    inputs = collector.inputs()
    forget_relations()
    return inputs, counts


@dataclass(frozen=True, slots=True)
class _SplitReader:
    store: Store
    plan: PhysicalPlan
    epoch: Inflight
    split: Split
    collector: DeltaCollector

    def read_changes(self) -> Counts:
        """The changes of a range of the log."""
        found: dict[int, Kinds] = {}
        rows = 0
        for source, batch in self.store.read_log(self.split.stream, self.split.start, self.split.stop):
            rows += batch.num_rows
            delta = self.plan.delta_of(source)
            if delta is None and batch.schema.equals(CELLS_SCHEMA):
                continue  # of a table that was mapped since the epoch was planned: its rows are staged later
            counted = _counted(batch, delta)
            found[source] = add_up([found.get(source, Kinds()), counted])
            if delta is not None:
                self.collector.add(delta.table, ROWS, _events(delta, batch))
                continue
            for chunk, readers in _readers(self.plan, self.epoch, source):
                flowing = batch if chunk is None else self._filled(batch, self.epoch.chunks[chunk])
                self.collector.add_changes(source, flowing, readers)
        return Counts(rows_read=rows, changes=found)

    def _filled(self, changes: pa.RecordBatch, chunk: Chunk) -> pa.RecordBatch:
        """The changes of rows that a backfill had before this chunk."""
        borders = chunk.borders.get(self.store.part_of(self.split.stream))
        if borders is None:
            return changes
        return changes.filter(pc.less_equal(changes["key"], pa.scalar(borders[0], pa.binary())))

    def read_rows(self, chunk: Chunk) -> Counts:
        """Rows of a chunk: as of the epoch's end from the base, as of the epoch before from records (R12)."""
        plan, split, epoch, count = self.plan, self.split, self.epoch, 0
        readers = [(node, number) for node, number in plan.readers(chunk.source) if node.backfill in chunk.tables]
        schema, wanted, stored = plan.schema(chunk.source), _wanted(readers), plan.stored_in(chunk.source)
        if stored is None:
            rows = self.store.scan_as_of(chunk.source, split.part, epoch.stop.positions, split.low, split.high)
        else:
            rows = self.store.scan_versions(split.part, stored, epoch.epoch - 1, epoch.aborted, split.low, split.high)
        for batch in map(partial(image_batch, schema), rows) if schema.foreign else rows:
            count += len(batch)
            if len(batch):
                self.collector.add_delta(readers, delta_of_rows(schema, batch, wanted))
        for node in plan.nodes if split.opens else ():
            if isinstance(node, AggregateNode) and node.always and opening_chunk(epoch, node.backfill) == split.chunk:
                self.collector.add(node.table, GROUPS, first_contribution(node))
        return Counts(rows_read=count)

    def read_aside(self, request: AsideRequest) -> Counts:
        """Rows that are listed as set aside: as they are in their source, as if they came now; or marked as dropped.

        The view does not have them, so that nothing goes for them. What still fails is listed again.
        """
        reader = self.plan.edge_with_aside(request.table)
        node, number = reader
        with blamed(node.table):
            keys, source = listed_keys(self.store, request, self.epoch), node.edges[number].source
            if request.ending == "drop":
                self.collector.add(
                    node.table, Channel("aside", number), list_events(node.edges[number].key, keys, DROPPED)
                )
                return Counts(rows_read=len(keys))
            self.collector.add(node.table, Channel("aside", number), list_events(node.edges[number].key, keys, None))
            for rows in self._source_rows(source):
                if len(mine := rows.filter(pc.is_in(rows["key"], value_set=keys))):
                    delta = delta_of_rows(self.plan.schema(source), mine, _wanted([reader]))
                    self.collector.add_delta([reader], delta)
        return Counts(rows_read=len(keys))

    def _source_rows(self, source: int) -> Iterator[pa.RecordBatch]:
        """All rows of a source, as of the epoch before."""
        epoch, stored = self.epoch, self.plan.stored_in(source)
        if stored is None:
            for part in self.store.parts(source):
                yield from self.store.scan_as_of(source, part, epoch.start)
            return
        for partition in range(self.store.partitions):
            yield from self.store.scan_versions(partition, stored, epoch.epoch - 1, epoch.aborted)

    def read_differences(self) -> Counts:
        """What is to be put right in the tables of a repair, in one partition; how large they are is counted anew."""
        found = {}
        for node in self.plan.repairs:
            with blamed(node.twin):
                events, found[int(node.table)] = differences(self.store, node, self.split.part, self.epoch)
                self.collector.add(node.table, ROWS, events)
        return Counts(found=found)


def _readers(plan: PhysicalPlan, epoch: Inflight, source: int) -> Iterator[tuple[int | None, list[Reader]]]:
    """The readers of a table, by the chunk that fills them from it: one set of delta rows serves all of one chunk."""
    found: dict[int | None, list[Reader]] = {}
    for node, number in plan.readers(source):
        found.setdefault(chunk_of(epoch, node.backfill, source), []).append((node, number))
    yield from found.items()


def _events(delta: DeltaNode, changes: pa.RecordBatch) -> pa.Table:
    return cell_events(delta, changes) if isinstance(delta, CellDeltaNode) else log_events(delta, changes)


def _counted(changes: pa.RecordBatch, delta: DeltaNode | None) -> Kinds:
    if isinstance(delta, CellDeltaNode):
        return Kinds(updates=len(changes))
    inserts, deletes = changes["before"].null_count if delta is None else 0, changes["after"].null_count
    return Kinds(inserts, len(changes) - inserts - deletes, deletes)


def _wanted(readers: Sequence[Reader]) -> list[int]:
    return sorted({position for node, number in readers for position in node.edges[number].columns})
