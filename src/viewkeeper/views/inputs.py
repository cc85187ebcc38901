"""Inputs: what changes and rows mean to the nodes that read them.

In: a unit, or deltas. Out: inputs (node, part, table), consolidated. Always: a view that is being filled sees the changes of
the rows it has, and only those (R12); the others come to it as rows of a later chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.keybatches import places_of_keys
from viewkeeper.model.positions import Stream
from viewkeeper.plan.nodes import CopyNode, Feed, FoldNode, JoinNode, Node
from viewkeeper.plan.physical import PhysicalPlan
from viewkeeper.ports.store import Store
from viewkeeper.views.aside import aside_events, without_failing
from viewkeeper.views.blame import blamed
from viewkeeper.views.copy import events_of, fewer_events, last_events
from viewkeeper.views.duck import forget_relations, run_feed, run_sql
from viewkeeper.views.few import are_few
from viewkeeper.views.fold import (
    combine,
    combine_doubles,
    combine_entries,
    contribute,
    contribute_each,
    contribute_side,
    first_contribution,
    has_one_reader,
    sides,
)
from viewkeeper.views.images import Images, images_of_changes, images_of_rows
from viewkeeper.views.parts import MAIN, aside_part, kind_of
from viewkeeper.views.rollup import RollingUp
from viewkeeper.views.side_rows import entry_events
from viewkeeper.views.top import ranked_events
from viewkeeper.views.units import Unit, chunk_of, opening_chunk

_FEW_ROWS = 50_000  # are moved sooner than they are grouped

Input = tuple[int, int, pa.Table]  # node by its place in the plan (a DELTA: behind the nodes), part, rows


Reader = tuple[int, int]  # a node and one of its feeds, by their places


class Gathering:
    """Inputs collected from images, then consolidated."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self._parts: dict[tuple[int, int], list[pa.Table]] = {}
        self._rolling_up = RollingUp()
        self.rows = 0  # gathered and not handed on yet

    def add(self, number: int, part: int, table: pa.Table) -> None:
        self._parts.setdefault((number, part), []).append(table)
        self.rows += len(table)

    def add_images(self, readers: Sequence[Reader], images: Images) -> None:
        """What images mean to each of the readers of their source."""
        waiting = self._add_few(readers, images) if are_few([images.relation]) else list(readers)
        rolled = {n: node for n, place in waiting if isinstance(node := self._plan.nodes[n], FoldNode) and place == 0}
        for number, tables in self._rolling_up.contributions(rolled, images.relation).items():
            waiting.remove((number, 0))
            for table in tables:
                self.add(number, MAIN, table)
        simple = [reader for reader in waiting if self._reads_once(*reader)]
        for sign, side in sides(images.relation) if simple else ():
            for number, place in simple:
                self._add_side(number, place, side, sign)
        for number, place in waiting:
            if (number, place) not in simple:
                with blamed(self._plan.nodes[number].table):
                    self._add_rows(number, place, images)

    def _add_few(self, readers: Sequence[Reader], images: Images) -> list[Reader]:
        """Few images to each γ, row by row: grouping costs more than it saves. Gives the readers that are left."""
        for number, place in readers:
            node = self._plan.nodes[number]
            if isinstance(node, FoldNode):
                with blamed(node.table):
                    self._contribute_each(number, place, node, images)
        return [reader for reader in readers if not isinstance(self._plan.nodes[reader[0]], FoldNode)]

    def _contribute_each(self, number: int, place: int, node: FoldNode, images: Images) -> None:
        feed = node.feeds[place]
        if feed.aside is None:
            given = run_sql(f"WITH rows AS ({feed.rows}) {node.contribute_each}", images=images.relation)
        else:
            given = run_sql(node.contribute_each, rows=self._passing(number, place, feed, images))
        if len(given):
            for part, table in contribute_each(node, given):
                self.add(number, part, table)

    def inputs(self) -> list[Input]:
        """One table for each part; the gathering begins anew."""
        parts, self._parts, self.rows = self._parts, {}, 0
        ordered = sorted(parts.items(), key=lambda item: item[0])
        return [(number, part, self._one(number, part, tables)) for (number, part), tables in ordered]

    def _reads_once(self, number: int, place: int) -> bool:
        node = self._plan.nodes[number]
        return isinstance(node, FoldNode) and has_one_reader(node, node.feeds[place])

    def _add_side(self, number: int, place: int, side: pa.Table, sign: int) -> None:
        node = self._plan.nodes[number]
        if isinstance(node, FoldNode):
            with blamed(node.table):
                self.add(number, MAIN, contribute_side(node, node.feeds[place], side, sign))

    def _add_rows(self, number: int, place: int, images: Images) -> None:
        node = self._plan.nodes[number]
        rows = self._passing(number, place, node.feeds[place], images)
        if isinstance(node, FoldNode):
            for part, table in contribute(node, rows):
                self.add(number, part, table)
        elif isinstance(node, CopyNode):
            self.add(number, MAIN, events_of(node, rows))
        elif isinstance(node, JoinNode):
            side = node.side_of(place)
            self.add(number, side, entry_events(node, side, rows))
        else:
            self.add(number, MAIN, ranked_events(node, rows))

    def _passing(self, number: int, place: int, feed: Feed, images: Images) -> pa.Table:
        """The rows that pass a feed; those on which its expressions fail are set aside."""
        rows = run_feed(feed.rows, images.relation)
        if feed.aside is not None:
            aside = aside_events(images, rows)
            if aside is not None:
                self.add(number, aside_part(place), aside)
                rows = without_failing(rows)
        return rows

    def _one(self, number: int, part: int, tables: Sequence[pa.Table]) -> pa.Table:
        """Contributions are put together where they are applied; before that only what is much, or events."""
        if kind_of(_node_at(self._plan, number), part) == "events":
            return fewer_events(tables)
        if len(tables) == 1 or sum(map(len, tables)) <= _FEW_ROWS:
            return pa.concat_tables(tables)
        return _combined(_node_at(self._plan, number), part, tables)


def consolidate(plan: PhysicalPlan, number: int, part: int, tables: Sequence[pa.Table], places: int) -> pa.Table:
    """All that gatherings gave a part as one row per record, in key order (R6); events by their places first."""
    node = _node_at(plan, number)
    if kind_of(node, part) == "events":
        return last_events(tables, places)
    return _combined(node, part, tables)


def _combined(node: Node | None, part: int, tables: Sequence[pa.Table]) -> pa.Table:
    """Contributions, entries and doubles: one row per record."""
    match kind_of(node, part):
        case "entries":
            return combine_entries(tables)
        case "doubles":
            return combine_doubles(tables)
        case "contributions" if isinstance(node, FoldNode):
            return combine(node, tables)
    raise InvariantBroken(f"part {part} of {node!r} is not to be added up")


def _node_at(plan: PhysicalPlan, number: int) -> Node | None:
    return plan.nodes[number] if number < len(plan.nodes) else None


def read_unit(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit) -> list[Input]:
    """The input that a unit gives: of the log to nodes, or to DELTAs where the log has no before-images; of rows to nodes."""
    failpoint("unit.start")
    gathering = Gathering(plan)
    if unit.chunk is not None:
        _read_rows(store, plan, epoch, unit, gathering)
    else:
        for source, batch in store.read_log(unit.stream, unit.start, unit.stop):
            _read_changes(store, plan, epoch, source, batch, unit.stream, gathering)
    failpoint("unit.read")
    inputs = gathering.inputs()
    forget_relations()
    return inputs


def _read_changes(
    store: Store,
    plan: PhysicalPlan,
    epoch: Inflight,
    source: int,
    batch: pa.RecordBatch,
    stream: Stream,
    gathering: Gathering,
) -> None:
    for place, table in enumerate(plan.deltas):
        if table.id == source:
            hashes = pa.array(places_of_keys(table.key_columns, batch["key"]))
            events = {"key": batch["key"], "hash": hashes, "ord": batch["position"], "row": batch["after"]}
            gathering.add(len(plan.nodes) + place, MAIN, pa.table(events))
            return
    for chunk, readers in _readers(plan, epoch, source):
        flowing = batch
        if chunk is not None and (part := store.part_of(stream)) in epoch.chunks[chunk].borders:
            low = epoch.chunks[chunk].borders[part][0]
            flowing = batch.filter(pc.less_equal(batch["key"], pa.scalar(low, pa.binary())))
        add_changes(plan, source, flowing, readers, gathering)


def add_changes(
    plan: PhysicalPlan, source: int, changes: pa.RecordBatch | pa.Table, readers: Sequence[Reader], gathering: Gathering
) -> None:
    """Changes (position, key, before, after) to the given readers."""
    if len(changes):
        gathering.add_images(readers, images_of_changes(plan.schema(source), changes, _wanted(plan, readers)))


def deltas_for(
    plan: PhysicalPlan, epoch: Inflight, source: int, changes: pa.Table, places: np.ndarray, gathering: Gathering
) -> None:
    """Deltas of records, of a DELTA or a node; `places` says where each lies. A chunk's rows are as of the epoch before."""
    for chunk, readers in _readers(plan, epoch, source):
        flowing = changes
        if chunk is not None:
            flows = np.ones(len(changes), bool)
            for place, keys in epoch.chunks[chunk].borders.items():
                if keys[-1] is not None:
                    below = pc.less_equal(changes["key"], pa.scalar(keys[-1], pa.binary()))
                    flows &= (places != place) | np.asarray(below)
            flowing = changes.filter(pa.array(flows))
        add_changes(plan, source, flowing, readers, gathering)


def _read_rows(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit, gathering: Gathering) -> None:
    """Rows of a chunk: as of the epoch's end from the base, as of the epoch before from records (R12)."""
    chunk = epoch.chunks[unit.chunk or 0]
    readers = [reader for reader in plan.readers(chunk.source) if plan.nodes[reader[0]].backfill in chunk.tables]
    schema, wanted = plan.schema(chunk.source), _wanted(plan, readers)
    for batch in _rows(store, plan, epoch, unit, chunk.source):
        if len(batch):
            gathering.add_images(readers, images_of_rows(schema, batch, wanted))
    for number, node in enumerate(plan.nodes) if unit.opens else ():
        if isinstance(node, FoldNode) and node.always and opening_chunk(epoch, node.backfill) == unit.chunk:
            gathering.add(number, MAIN, first_contribution(node))


def _rows(store: Store, plan: PhysicalPlan, epoch: Inflight, unit: Unit, source: int) -> Iterable[pa.RecordBatch]:
    stored = plan.stored_in(source)
    if stored is None:
        return store.scan_as_of(source, unit.part, epoch.stop.positions, unit.low, unit.high)
    return store.scan_versions(unit.part, stored, epoch.epoch - 1, epoch.void, unit.low, unit.high)


def _readers(plan: PhysicalPlan, epoch: Inflight, source: int) -> Iterator[tuple[int | None, list[Reader]]]:
    """Who reads a table, by the chunk that fills them from it: one set of images serves all of one chunk."""
    found: dict[int | None, list[Reader]] = {}
    for reader in plan.readers(source):
        found.setdefault(chunk_of(epoch, plan.nodes[reader[0]].backfill, source), []).append(reader)
    yield from found.items()


def _wanted(plan: PhysicalPlan, readers: Sequence[Reader]) -> list[int]:
    return sorted({position for number, place in readers for position in plan.nodes[number].feeds[place].columns})
