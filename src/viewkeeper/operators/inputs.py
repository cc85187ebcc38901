"""Inputs: what an epoch reads, cut into splits, and what changes and rows mean for the nodes that read them.

In: the plan and the epoch in flight; a split, or a node's output. Out: splits (ranges of the log, and ranges of rows
that fill views), each read by one task; input of channels. Always: together the splits are exactly the epoch's input,
whatever their number (R9, R12). A view that is being filled sees the changes of the rows it has, and only those (R12);
it gets the others as rows of a later chunk. A request for rows set aside reads their lists as of the epoch before, so
that a re-run finds the same (R7).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import DROPPED, AsideRequest, Inflight
from viewkeeper.model.foreign_rows import foreign_row_batch
from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.model.positions import START, Chunk, Position, Stream
from viewkeeper.model.schema import Column
from viewkeeper.model.work_stats import Counts, Kinds, add_up
from viewkeeper.operators.apply import AppliedChanges
from viewkeeper.operators.contributions import first_contribution
from viewkeeper.operators.delta_rows import Delta, delta_of_changes, delta_of_rows
from viewkeeper.operators.duck import forget_relations
from viewkeeper.operators.keyed_copies import cell_events, log_events
from viewkeeper.operators.messages import GROUPS, ROWS, Channel, Input
from viewkeeper.operators.operator import Reader, attribute_errors_to
from viewkeeper.operators.registry import EDGE_OPERATORS, OPERATORS
from viewkeeper.operators.repair import differences
from viewkeeper.plan.nodes import AggregateNode, AppliedNode, CellDeltaNode, DeltaNode
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.log import CELLS_SCHEMA, LogSource
from viewkeeper.ports.records import VersionedTables
from viewkeeper.ports.store import Store
from viewkeeper.settings import WorkSettings

_NO_STREAM, _FIRST_POSITION = Stream(""), Position(0)


@dataclass(frozen=True, slots=True)
class Split:
    """A range (start, stop] of a stream; or, with `chunk`, the rows of a key range with low < key <= high.

    In an epoch of repairs: a partition, `part`. In one for rows set aside: all of these.
    """

    number: int
    stream: Stream = _NO_STREAM
    start: Position = _FIRST_POSITION
    stop: Position = _FIRST_POSITION
    chunk: int | None = None
    part: int = 0
    low: bytes = START
    high: bytes | None = None
    opens: bool = False  # also emits the records that exist over an empty base


def plan_splits(
    log: LogSource, plan: PhysicalPlan, epoch: Inflight, *, pieces: int, partitions: int = 0
) -> list[Split]:
    """The input work of an epoch; each stream's range is cut in about `pieces`."""
    splits = [Split(part, part=part) for part in range(partitions if plan.repairs else 1 if plan.aside else 0)]
    if plan.reads_log(epoch.chunks) and not plan.aside:
        for stream, stop in sorted(epoch.stop.positions.items()):
            start = epoch.start.get(stream, _FIRST_POSITION)
            borders = log.pieces(stream, start, stop, count=pieces) if start < stop else []
            for low, high in itertools.pairwise(borders):
                splits.append(Split(len(splits), stream, low, high))
    for number, chunk in enumerate(epoch.chunks):
        opens = chunk.opens
        for part, keys in sorted(chunk.borders.items()):
            for first, last in zip(keys, keys[1:], strict=False):
                split = Split(len(splits), chunk=number, part=part, low=first or START, high=last, opens=opens)
                splits.append(split)
                opens = False
    return splits


def chunk_of(epoch: Inflight, backfill: int, source: int) -> int | None:
    """The epoch's chunk that brings rows of a source to a backfill."""
    chunks = enumerate(epoch.chunks)
    return next((number for number, chunk in chunks if chunk.source == source and backfill in chunk.tables), None)


def opening_chunk(epoch: Inflight, backfill: int) -> int | None:
    """The chunk with which a backfill begins in this epoch, if any: one of those that open its sources."""
    chunks = enumerate(epoch.chunks)
    return next((number for number, chunk in chunks if chunk.opens and backfill in chunk.tables), None)


_BEFORE_ALL_ROWS = -(1 << 63)  # before all rows: one that still fails is listed again after it


def listed_keys(store: VersionedTables, request: AsideRequest, epoch: Inflight) -> pa.Array:
    """The keys of rows that are set aside and asked for: those named, or all but those dropped."""
    asked, found = pa.array(request.keys, pa.binary()), [pa.array([], pa.binary())]
    for partition in range(store.partitions):
        for batch in store.scan_versions(partition, request.table, epoch.epoch - 1, epoch.aborted):
            wanted = (
                pc.is_in(batch["key"], value_set=asked)
                if request.keys
                else pc.not_equal(batch["row"], pa.scalar(DROPPED, pa.binary()))
            )
            found.append(batch["key"].filter(wanted))
    return pa.concat_arrays(found)


def list_events(columns: Sequence[Column], keys: pa.Array, row: bytes | None) -> pa.Table:
    """Events (key, hash, ord, row) that set the records of a list to `row`."""
    hashes = pa.array(hashes_of_keys(columns, keys))
    order, rows = (
        pa.array(np.full(len(keys), _BEFORE_ALL_ROWS)),
        pa.array([row], pa.binary()).take(pa.array(np.zeros(len(keys), np.int64))),
    )
    return pa.table({"key": keys, "hash": hashes, "ord": order, "row": rows})


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

    def add_output(self, node: AppliedNode, given: Delta | AppliedChanges) -> None:
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
            Input(table, channel, OPERATORS[type(node)](self._settings).pre_combine(node, channel, rows))
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
        for batch in map(partial(foreign_row_batch, schema), rows) if schema.foreign else rows:
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
        with attribute_errors_to(node.table):
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
            with attribute_errors_to(node.twin):
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
