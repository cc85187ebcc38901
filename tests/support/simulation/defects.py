"""Defects, each a patch that breaks one rule of the protocol or of an operator: what the simulation must find.

In: nothing. Out: a context in which the defect is there, and the stores over which it can show. Always: one rule is broken,
and nothing else; the docstring names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.support.simulation import pipelines
from tests.support.simulation.world import HBASE, STORES
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator import coordinator, gc
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.steps import Draft
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.positions import Cut, part_of
from viewkeeper.model.read_frontier import EPOCH_MAX
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators import aggregate, inputs, join, operator, pre_aggregation, topn
from viewkeeper.operators.apply import AppliedChanges, Applier, FoundRecords
from viewkeeper.operators.delta_rows import Delta
from viewkeeper.operators.keyed_copies import DeltaOperator
from viewkeeper.operators.receipts import Receipt
from viewkeeper.plan.planner import physical_plan
from viewkeeper.stores import version_chains
from viewkeeper.stores.local.local_store import LocalStore
from viewkeeper.stores.local.partition import Partition

Context = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Defect:
    """A patch, the store over which its schedules run (any, if none is named), and the seed from which to look for it."""

    plant: Context
    store: str
    first: int

    @property
    def name(self) -> str:
        return self.plant.__name__

    def seeds(self) -> range:
        """Seeds from the first one on, of the stores that show it."""
        if self.store in ("", HBASE):
            return range(self.first, self.first + SCHEDULES_MAX)
        start = self.first + (STORES.index(self.store) - self.first) % len(STORES)
        return range(start, start + SCHEDULES_MAX * len(STORES), len(STORES))


SCHEDULES_MAX = 2_000  # within which each must be found
DEFECTS: list[Defect] = []


def shows(store: str = "", *, first: int = 0) -> Callable[[Callable[[], Iterator[None]]], None]:
    """List a defect; `first` is a seed that found it, so that every run need not search."""

    def listed(plant: Callable[[], Iterator[None]]) -> None:
        DEFECTS.append(Defect(contextmanager(plant), store, first))

    return listed


patch = mock.patch.object


# fences and versions


@shows("embedded", first=62)
def no_fence() -> Iterator[None]:
    """R1a: a late task is not told that it is late."""
    with patch(Partition, "_require_fence", lambda *_: None):
        yield


@shows("memory")
def fences_are_not_raised() -> Iterator[None]:
    """R1a: an epoch is admitted nowhere."""
    with patch(Partition, "admit", lambda self, epoch: None):
        yield


@shows("memory", first=21)
def a_rerun_adds() -> Iterator[None]:
    """A record that the epoch wrote is taken for one of the epoch before."""
    read = LocalStore.read_versions

    def own(self: Any, *args: Any) -> Any:
        found = read(self, *args)
        return replace(found, rows=found.now, applied=np.zeros(len(found.keys), bool))

    with patch(LocalStore, "read_versions", own):
        yield


@shows(first=8)
def a_rerun_emits_nothing() -> Iterator[None]:
    """What an epoch wrote before is not emitted again, though operators that read it may not have seen it."""
    put = Applier.put

    def silent(self: Applier, found: FoundRecords, rows: pa.Array) -> AppliedChanges:
        changes = put(self, found, rows)
        done = pa.array(found.versions.applied)
        return replace(changes, after=pc.if_else(done, found.rows, changes.after))

    with patch(Applier, "put", silent):
        yield


@shows("memory", first=111)
def versions_below_the_epoch_are_dropped() -> Iterator[None]:
    """R4: a write keeps no older version, as if the floor were at its own epoch."""
    push = version_chains.push
    with patch(
        version_chains, "push", lambda chains, rows, epoch, floor, aborted: push(chains, rows, epoch, epoch, aborted)
    ):
        yield


@shows("memory", first=93)
def tombstones_are_purged_too_early() -> Iterator[None]:
    """R4: a deleted row is gone for readers of the epoch before too."""
    purge = Partition._purge
    with patch(Partition, "_purge", lambda self, epoch: purge(self, replace(epoch, floor=epoch.epoch - 1))):
        yield


@shows(first=14)
def aborted_epochs_are_not_listed() -> Iterator[None]:
    """R8: tasks and readers see what an aborted epoch wrote."""
    abort = epochs.abort

    def unlisted(record: EpochRecord, *args: Any) -> EpochRecord:
        return replace(abort(record, *args), aborted=record.aborted)

    with patch(epochs, "abort", unlisted):
        yield


@shows("memory")
def readers_see_what_is_in_flight() -> Iterator[None]:
    """R4: a snapshot is of the newest versions."""
    with patch(version_chains, "version_at", lambda chain, epoch, aborted: _version_at(chain, EPOCH_MAX, aborted)):
        yield


_version_at = version_chains.version_at


@shows("memory", first=69)
def writes_to_dropped_tables() -> Iterator[None]:
    """A late task brings records of a table back that was removed."""
    with patch(Partition, "is_dropped", lambda *_: False):
        yield


# epochs


@shows(first=108)
def failures_are_overlooked() -> Iterator[None]:
    """R18a: an epoch is committed with the receipts that came."""

    def any_receipts(tasks: Any, got: Any) -> Counts:
        return Counts.total(one.counts for one in got if isinstance(one, Receipt))

    with patch(pipelines, "require_all", any_receipts):
        yield


@shows(first=1)
def an_epoch_found_in_flight_is_taken_for_done() -> Iterator[None]:
    """Take over: an epoch of another one is committed without a run."""
    run, begin = Coordinator._run, Coordinator._begin

    def began(self: Coordinator, planned: Any) -> Any:
        begun = begin(self, planned)
        self.began = begun.record.inflight.epoch
        return begun

    def only_own(self: Coordinator, epoch: Inflight) -> Any:
        if getattr(self, "began", 0) == epoch.epoch:
            return run(self, epoch)
        self._store.admit(epoch)
        return coordinator.steps.Ran(epoch, Counts())

    with patch(Coordinator, "_run", only_own), patch(Coordinator, "_begin", began):
        yield


@shows(first=1)
def a_rerun_cuts_the_log_anew() -> Iterator[None]:
    """R9: a run reads up to where the log ends now."""
    run = Coordinator._run

    def further(self: Coordinator, epoch: Inflight) -> Any:
        stop = replace(epoch.stop, positions=self._store.ends())
        result = run(self, replace(epoch, stop=stop))
        return replace(result, epoch=epoch)

    with patch(Coordinator, "_run", further):
        yield


@shows(first=35)
def a_rerun_makes_its_plan_anew() -> Iterator[None]:
    """R9: a run follows the catalog as it is now, not the plan that the epoch was begun with."""

    def planned(self: Coordinator, epoch: Inflight) -> Any:
        record = self._held.look()
        return physical_plan(self._held.catalog, filling=record.filling, stopped=record.stopped)

    with patch(Coordinator, "_plan_of", planned):
        yield


@shows()
def positions_stay() -> Iterator[None]:
    """Commit: the next epoch reads the same changes again."""
    commit = epochs.commit

    def forgetful(record: EpochRecord, *args: Any) -> EpochRecord:
        done = commit(record, *args)
        return replace(done, positions=record.positions, checksums=record.checksums) if record.committed else done

    with patch(epochs, "commit", forgetful):
        yield


@shows(first=42)
def a_cut_falls_into_a_transaction() -> Iterator[None]:
    """R17: an epoch ends before the last change of a group."""
    cut = LocalStore.cut

    def short(self: Any, start: Any, **limits: Any) -> Cut:
        found = cut(self, start, **limits)
        ends = {
            stream: end - (end > start.get(stream, 0) + 1 and self.node(part_of(stream)).find_entry(end)[1].count > 1)
            for stream, end in found.positions.items()
        }
        return replace(found, positions=ends)

    with patch(LocalStore, "cut", short):
        yield


@shows(first=8)
def the_catalog_is_not_read_after_the_cut() -> Iterator[None]:
    """Begin: an epoch is planned by the catalog that was known before its cut."""
    cut = Coordinator._cut
    with patch(
        Coordinator, "_cut", lambda me, draft: (old := me._held.catalog) and replace(cut(me, draft), catalog=old)
    ):
        yield


@shows(first=5)
def the_log_is_truncated_to_its_end() -> Iterator[None]:
    """gc: changes go that no epoch has read."""
    collect = gc.collect_garbage

    def all_of_it(store: Any, *args: Any, **named: Any) -> int:
        store.truncate_log(store.ends(), older_than_seconds=0, entries_max=5_000)
        return collect(store, *args, **named)

    with patch(pipelines, "collect_garbage", all_of_it):
        yield


# backfills and replaced views


@shows(first=124)
def changes_of_a_chunks_first_border_do_not_flow() -> Iterator[None]:
    """R12: the last row of the chunk before gets no changes."""

    def below(self: Any, changes: pa.RecordBatch, chunk: Any) -> pa.RecordBatch:
        borders = chunk.borders.get(part_of(self.split.stream))
        return (
            changes if borders is None else changes.filter(pc.less(changes["key"], pa.scalar(borders[0], pa.binary())))
        )

    with patch(inputs._SplitReader, "_filled", below):
        yield


@shows(first=28)
def a_backfill_reads_rows_as_of_now() -> Iterator[None]:
    """R12: rows hold changes that the log brings again."""
    scan = LocalStore.scan_as_of

    def now(self: Any, table: int, part: int, positions: Any, *borders: Any) -> Any:
        return scan(self, table, part, self.ends(), *borders)

    with patch(LocalStore, "scan_as_of", now):
        yield


@shows(first=320)
def a_view_is_replaced_before_it_is_filled() -> Iterator[None]:
    """The replacement takes the view's place with the next commit."""
    swap = Catalog.with_replaced

    def at_once(self: Catalog, filled: Any, epoch: int) -> Catalog:
        return swap(self, {view.node.backfill for view in self.replacements}, epoch)

    with patch(Catalog, "with_replaced", at_once):
        yield


@shows("embedded", first=200)
def rows_that_move_between_two_cuts_are_not_noticed() -> Iterator[None]:
    """R12: a fill reads the rows that a node had before an earlier cut, though they are on another one by the last."""
    cut = Coordinator._cut

    def forgetful(self: Coordinator, draft: Draft) -> Draft:
        return cut(self, replace(draft, stop=None, have_moved=False))

    with patch(Coordinator, "_cut", forgetful):
        yield


# operators


@shows()
def delta_is_not_written() -> Iterator[None]:
    """δ: DELTA does not learn what it emitted."""
    apply = DeltaOperator.apply

    def forgetful(self: DeltaOperator, applier: Applier, *args: Any) -> Any:
        yield from apply(self, applier, *args)
        applier._writes.pop()

    with patch(DeltaOperator, "apply", forgetful):
        yield


@shows()
def the_first_event_of_a_record_wins() -> Iterator[None]:
    """Keyed copy: of several events of a key the earliest is its state."""
    last = operator.last_events

    def first(parts: Any, partitions: int) -> pa.Table:
        turned = [part.set_column(2, "ord", pc.negate(part["ord"])) for part in parts]
        return last(turned, partitions)

    with patch(operator, "last_events", first):
        yield


@shows(first=3)
def a_group_without_rows_stays() -> Iterator[None]:
    """γ: a group whose count is 0 is not deleted."""
    with patch(aggregate, "_live_groups", lambda node, kept: np.ones(len(kept[0]), bool)):
        yield


@shows()
def a_deleted_value_stays_a_minimum() -> Iterator[None]:
    """γ min/max: multiplicities only grow."""
    apply = pre_aggregation.MultiplicityChanges.of

    def growing(group_keys: pa.Array, parts: Any) -> Any:
        found = apply(group_keys, parts)
        return replace(found, counts=np.maximum(found.counts, 0))

    with patch(pre_aggregation.MultiplicityChanges, "of", staticmethod(growing)):
        yield


@shows(first=47)
def changed_rows_are_joined_as_unchanged_too() -> Iterator[None]:
    """⋈: a pair of two changed rows is emitted twice."""
    unchanged, none = join.unchanged_rows, np.zeros(0, np.int64)

    def every(applier: Applier, node: Any, side: int, under: Any, changed: Any) -> Any:
        nobody = replace(changed, touched=changed.touched[:0], partitions=none)
        return unchanged(applier, node, side, under, nobody)

    with patch(join, "unchanged_rows", every):
        yield


@shows(first=54)
def a_lost_match_is_not_counted() -> Iterator[None]:
    """⋈: match counts of unchanged rows only grow."""
    change = join.change_matches

    def growing(applier: Applier, table: int, rows: Any, less: np.ndarray, more: np.ndarray) -> Any:
        return change(applier, table, rows, np.zeros_like(less), more)

    with patch(join, "change_matches", growing):
        yield


@shows(first=68)
def nobody_moves_up_in_a_top() -> Iterator[None]:
    """Top-n: only as many entries are read as are shown, however many of them go."""
    first = topn._first_entries

    def few(applier: Applier, node: Any, partition: int, wanted: int) -> Any:
        keys, rows = first(applier, node, partition, wanted)
        return keys[: node.limit], rows[: node.limit]

    with patch(topn, "_first_entries", few):
        yield


@shows(first=11)
def rows_set_aside_are_not_listed() -> Iterator[None]:
    """A row on which an expression fails is absent, and nobody is told."""
    passing = Delta.passing
    with patch(Delta, "passing", lambda self, edge: (passing(self, edge)[0], None)):
        yield
