"""Inputs: the splits that an epoch reads, and what changes and rows mean for the nodes that read them.

In: the plan and the epoch in flight; a split, or a node's output. Out: splits (ranges of the log, and of rows that fill
views), each read by one task; input of channels. Always: together the splits are exactly the epoch's input, whatever
their number (R9, R12). A view that is being filled sees the changes of the rows it has, and gets the others as rows of a
later chunk (R12). Lists of rows set aside are read as of the epoch before, so that a re-run finds the same (R7).
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
from viewkeeper.model.foreign_rows import CELLS_SCHEMA, foreign_row_batch
from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.model.positions import START, Chunk, Position, Stream, part_of
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
from viewkeeper.ports.log import LogSource
from viewkeeper.ports.records import VersionedTables
from viewkeeper.ports.store import Store
from viewkeeper.settings import WorkSettings

_NO_STREAM, _FIRST_POSITION = Stream(""), Position(0)


@dataclass(frozen=True, slots=True)
class Split:
    """A range (start, stop] of a stream; `staged` chunks; or, with `chunk`, the rows of a key range: low < key <= high.

    In an epoch of repairs: a partition, `part`. In one for rows set aside: all of these.
    """

    number: int
    stream: Stream = _NO_STREAM
    start: Position = _FIRST_POSITION
    stop: Position = _FIRST_POSITION
    staged: tuple[str, ...] = ()
    chunk: int | None = None
    part: int = 0
    low: bytes = START
    high: bytes | None = None
    opens: bool = False  # also emits the records that exist over an empty base


def plan_splits(
    log: LogSource, plan: PhysicalPlan, epoch: Inflight, *, pieces: int, partitions: int = 0
) -> list[Split]:
    """The splits of an epoch; each stream's range is cut in about `pieces`, and staged chunks in as many."""
    splits = [Split(part, part=part) for part in range(partitions if plan.repairs else 1 if plan.aside else 0)]
    if plan.reads_log(epoch.chunks) and not plan.aside:
        for stream, stop in sorted(epoch.stop.positions.items()):
            start = epoch.start.get(stream, _FIRST_POSITION)
            borders = log.pieces(stream, start, stop, count=pieces) if start < stop else []
            ranges = enumerate(itertools.pairwise(borders), len(splits))
            splits += [Split(number, stream, *some) for number, some in ranges]
        staged = (epoch.stop.staged[piece::pieces] for piece in range(pieces))
        splits += [Split(number, staged=some) for number, some in enumerate(filter(None, staged), len(splits))]
    for number, chunk in enumerate(epoch.chunks):
        opens = chunk.opens
        for part, keys in sorted(chunk.borders.items()):
            for low, high in itertools.pairwise(keys):
                splits.append(Split(len(splits), chunk=number, part=part, low=low or START, high=high, opens=opens))
                opens = False
    return splits


def chunk_of(epoch: Inflight, backfill: int, source: int) -> int | None:
    """The epoch's chunk that brings rows of a source to a backfill."""
    return next((i for i, one in enumerate(epoch.chunks) if one.source == source and backfill in one.tables), None)


def opening_chunk(epoch: Inflight, backfill: int) -> int | None:
    """The chunk with which a backfill begins in this epoch, if any: one of those that open its sources."""
    return next((i for i, one in enumerate(epoch.chunks) if one.opens and backfill in one.tables), None)


_BEFORE_ALL_ROWS = -(1 << 63)  # before all rows: one that still fails is listed again after it


def listed_keys(store: VersionedTables, request: AsideRequest, epoch: Inflight) -> pa.Array:
    """The keys of rows that are set aside and asked for: those named, or all but those dropped."""
    asked, dropped = pa.array(request.keys, pa.binary()), pa.scalar(DROPPED, pa.binary())
    found = [pa.array([], pa.binary())]
    for partition in range(store.partitions):
        for batch in store.scan_versions(partition, request.table, epoch.epoch - 1, epoch.aborted):
            keys = batch["key"]
            named = pc.is_in(keys, value_set=asked) if request.keys else pc.not_equal(batch["row"], dropped)
            found.append(keys.filter(named))
    return pa.concat_arrays(found)


def list_events(columns: Sequence[Column], keys: pa.Array, row: bytes | None) -> pa.Table:
    """Events (key, hash, ord, row) that set the records of a list to `row`."""
    hashes = pa.array(hashes_of_keys(columns, keys))
    order, rows = pa.repeat(_BEFORE_ALL_ROWS, len(keys)), pa.repeat(pa.scalar(row, pa.binary()), len(keys))
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
        elif readers := _readers(self._plan, self._epoch, node.gives):
            changes, partitions = given.table()
            for chunk, some in readers.items():
                mine = changes if chunk is None else self._flowing(changes, partitions, chunk)
                self.add_changes(node.gives, mine, some)

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
        """The changes of a range of the log, or of what was staged."""
        found, rows = dict[int, Kinds](), 0
        store, split, staged = self.store, self.split, self.split.staged
        read = store.read_staged(staged) if staged else store.read_log(split.stream, split.start, split.stop)
        for source, batch in read:
            rows += batch.num_rows
            delta = self.plan.delta_of(source)
            if delta is None and batch.schema.equals(CELLS_SCHEMA):
                continue  # of a table that was mapped since the epoch was planned: its rows are staged later
            counted = _counted(batch, delta)
            found[source] = add_up([found.get(source, Kinds()), counted])
            if delta is not None:
                events = cell_events(delta, batch) if isinstance(delta, CellDeltaNode) else log_events(delta, batch)
                self.collector.add(delta.table, ROWS, events)
                continue
            for chunk, readers in _readers(self.plan, self.epoch, source).items():
                flowing = batch if chunk is None else self._filled(batch, self.epoch.chunks[chunk])
                self.collector.add_changes(source, flowing, readers)
        return Counts(rows_read=rows, changes=found)

    def _filled(self, changes: pa.RecordBatch, chunk: Chunk) -> pa.RecordBatch:
        """The changes of rows that a backfill had before this chunk."""
        borders = chunk.borders.get(part_of(self.split.stream))
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
        """Rows that are listed as set aside: read from their source as if they were inserted now, or marked as dropped.

        The view does not have them, so nothing is deleted for them. Rows that still fail are listed again.
        """
        reader = node, number = self.plan.edge_with_aside(request.table)
        edge, is_drop = node.edges[number], request.ending == "drop"
        with attribute_errors_to(node.table):
            keys = listed_keys(self.store, request, self.epoch)
            events = list_events(edge.key, keys, DROPPED if is_drop else None)
            self.collector.add(node.table, Channel("aside", number), events)
            for rows in () if is_drop else self._source_rows(edge.source):
                if len(mine := rows.filter(pc.is_in(rows["key"], value_set=keys))):
                    delta = delta_of_rows(self.plan.schema(edge.source), mine, _wanted([reader]))
                    self.collector.add_delta([reader], delta)
        return Counts(rows_read=len(keys))

    def _source_rows(self, source: int) -> Iterator[pa.RecordBatch]:
        """All rows of a source, as of the epoch before."""
        epoch, store, stored = self.epoch, self.store, self.plan.stored_in(source)
        for part in store.parts(source) if stored is None else range(store.partitions):
            if stored is None:
                yield from store.scan_as_of(source, part, epoch.start)
            else:
                yield from store.scan_versions(part, stored, epoch.epoch - 1, epoch.aborted)

    def read_differences(self) -> Counts:
        """The records to correct in the tables of a repair, in one partition; the tables' sizes are counted again."""
        found = {}
        for node in self.plan.repairs:
            with attribute_errors_to(node.twin):
                events, found[int(node.table)] = differences(self.store, node, self.split.part, self.epoch)
                self.collector.add(node.table, ROWS, events)
        return Counts(found=found)


def _readers(plan: PhysicalPlan, epoch: Inflight, source: int) -> dict[int | None, list[Reader]]:
    """The readers of a table, by the chunk that fills them from it: one set of delta rows serves all of one chunk."""
    found: dict[int | None, list[Reader]] = {}
    for node, number in plan.readers(source):
        found.setdefault(chunk_of(epoch, node.backfill, source), []).append((node, number))
    return found


def _counted(changes: pa.RecordBatch, delta: DeltaNode | None) -> Kinds:
    if isinstance(delta, CellDeltaNode):
        return Kinds(updates=len(changes))
    inserts, deletes = changes["before"].null_count if delta is None else 0, changes["after"].null_count
    return Kinds(inserts, len(changes) - inserts - deletes, deletes)


def _wanted(readers: Sequence[Reader]) -> list[int]:
    return sorted({position for node, number in readers for position in node.edges[number].columns})
