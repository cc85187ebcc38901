"""Defects of HBase's adapter, each a patch that breaks one of its rules: what schedules over HBase must find.

In: nothing. Out: more of `DEFECTS`. Always: as in `defects.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.support.simulation.defects import patch, shows
from tests.support.simulation.world import HBASE
from viewkeeper.coordinator.coordinator import Coordinator, _SwappedLate
from viewkeeper.coordinator.steps import Action, Fact, Found
from viewkeeper.errors import Fenced, RowsMoved
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.read_frontier import ReadFrontier
from viewkeeper.operators.apply import Applier
from viewkeeper.settings import WorkSettings
from viewkeeper.stores.hbase import records, snapshot_reads
from viewkeeper.stores.hbase.meta import MetaPart, PipelineLease, read_lease
from viewkeeper.stores.hbase.record_cache import RecordCache
from viewkeeper.stores.hbase.records import RecordsPart
from viewkeeper.stores.hbase.snapshot_reads import CellSnapshot
from viewkeeper.stores.hbase.store_tables import JOURNAL, STORE
from viewkeeper.stores.hbase.thrift_cells import GONE_VALUE, delete_of, times, versions_in

# Each took more than ten schedules to be found: deep runs look for them.
SLOW = (
    *("hbase_is_not_asked_what_is_in_flight", "hbase_is_asked_before_the_reads", "hbase_is_purged_by_committed"),
    *("readers_do_not_look_at_the_floor_again", "a_known_frontier_is_read_as_of", "tombstones_of_hbase_do_not_wait"),
    "a_view_is_replaced_before_it_is_filled",
)


def _catalog_version(store: Any, epoch: int) -> int:
    """What VALIDATE returns, whatever is in flight."""
    return int(store._rows.read(STORE, "versions")["versions"].partition(b".")[2])


@shows(HBASE, first=104)
def nobody_tells_what_it_writes() -> Iterator[None]:
    """Recent: others keep records that this process writes."""
    with patch(RecordCache, "tell", lambda self, table, partitions, epoch: None):
        yield


@shows(HBASE, first=111)
def what_others_told_is_not_read() -> Iterator[None]:
    """Recent: records are kept whoever wrote them since."""

    def deaf(self: RecordCache, memory: Any, table: int) -> None:
        memory.ended.setdefault(table, {})

    with patch(RecordCache, "_look", deaf):
        yield


@shows(HBASE, first=78)
def hbase_is_not_asked_what_is_in_flight() -> Iterator[None]:
    """V1: no VALIDATE."""
    with patch(MetaPart, "validate", _catalog_version):
        yield


@shows(HBASE, first=331)
def hbase_is_asked_before_the_reads() -> Iterator[None]:
    """V1: a task VALIDATEs when it starts, and not again."""
    start = Applier.__init__

    def ask_first(self: Applier, store: Any, owned: frozenset[int], epoch: Inflight, settings: WorkSettings) -> None:
        inflight = store.read_epoch_record().inflight
        if inflight is None or inflight.epoch != epoch.epoch:
            raise Fenced("it is no longer in flight")
        start(self, store, owned, epoch, settings)

    with patch(Applier, "__init__", ask_first), patch(MetaPart, "validate", _catalog_version):
        yield


@shows(HBASE, first=107)
def tasks_read_what_their_epoch_wrote() -> Iterator[None]:
    """V7: a task reads as of its own epoch."""
    with patch(records, "times", lambda since, until: times(since, until + 1)):
        yield


@shows(HBASE, first=109)
def hbase_is_purged_by_committed() -> Iterator[None]:
    """V4: what the newest committed epoch does not need goes."""
    purge = RecordsPart.purge

    def early(self: RecordsPart, record: EpochRecord, *, records_max: int) -> int:
        return purge(self, replace(record, floor=record.committed), records_max=records_max)

    with patch(RecordsPart, "purge", early):
        yield


@shows(HBASE, first=549)
def tombstones_of_hbase_do_not_wait() -> Iterator[None]:
    """V3: a tombstone goes with the floor, while puts of earlier epochs may be under way."""
    with patch(RecordsPart, "_settled", lambda self, last: last + 1):
        yield


@shows(HBASE, first=105)
def a_tombstone_is_a_delete() -> Iterator[None]:
    """V5: a tombstone takes the versions below it away, which readers of older epochs need."""
    mutations = RecordsPart._mutations

    def deleting(self: RecordsPart, write: Any, epoch: Inflight, catalog: Any) -> Any:
        found = mutations(self, write, epoch, catalog)
        puts = zip(found.puts.rows.to_pylist(), found.puts.values.to_pylist(), strict=True)
        found.deletes.extend((row, epoch.epoch - 1) for row, value in puts if value == GONE_VALUE)
        return found

    with patch(RecordsPart, "_mutations", deleting):
        yield


@shows(HBASE, first=120)
def no_entry_comes_to_the_journal() -> Iterator[None]:
    """The journal: an entry is lost, and what it tells of is purged by nobody."""
    put = RecordsPart._put

    def losing(self: RecordsPart, table: int, puts: Any, validate: Callable[[], object]) -> bool:
        return True if table == JOURNAL else put(self, table, puts, validate)

    with patch(RecordsPart, "_put", losing):
        yield


@shows(HBASE, first=114)
def a_version_too_many_is_deleted() -> Iterator[None]:
    """Version counts: who writes over a version deletes it with those below, though readers may see it."""
    with patch(records, "delete_of", lambda row, up_to: delete_of(row, up_to + 1)):
        yield


@shows(HBASE, first=102)
def a_known_frontier_is_read_as_of() -> Iterator[None]:
    """decision 0049: what was committed since a read frontier that is known is not seen."""

    def as_of_known(result: Any, frontier: ReadFrontier) -> Any:
        versions = () if result is None else versions_in(result)
        seen = [row for at, row in versions if at not in frontier.aborted and at <= frontier.committed]
        return (seen[0], frontier) if seen else None

    with patch(snapshot_reads, "_committed", as_of_known):
        yield


@shows(HBASE, first=121)
def readers_do_not_look_at_the_floor_again() -> Iterator[None]:
    """R4: what a purge took away while it was read is taken for what never was."""
    with patch(CellSnapshot, "_require_kept", lambda self, since=None: None):
        yield


@shows(HBASE, first=115)
def a_claim_is_not_renewed() -> Iterator[None]:
    """Claims: a beat looks whether the claim is ours, and leaves it as it is."""

    def look(self: PipelineLease, waits: str = "") -> None:
        found = read_lease(self._rows)
        if found is None or not self._is_ours(found):
            beat(self, waits)

    beat = PipelineLease.beat
    with patch(PipelineLease, "beat", look):
        yield


@shows(HBASE, first=297)
def a_late_swap_is_taken_for_anothers() -> Iterator[None]:
    """R5: a pipeline ends where a swap of its own, that got no reply, was done after it had looked."""

    def told(self: Coordinator, action: Action) -> Fact | None:
        try:
            return self._act(action)
        except RowsMoved:
            return Found(self._held.look())
        except _SwappedLate as error:
            raise Fenced("its epoch is no longer in flight") from error

    with patch(Coordinator, "_do", told):
        yield


@shows(HBASE, first=101)
def columns_are_not_shown_for_tombstones() -> Iterator[None]:
    """Shown columns: a tombstone leaves those of the version below to be seen."""
    put = RecordsPart._put

    def bare(self: RecordsPart, table: int, puts: Any, validate: Callable[[], object]) -> bool:
        gone: Sequence[bool] = [value == GONE_VALUE for value in puts.values.to_pylist()]
        done = put(self, table, replace(puts, columns=()) if any(gone) and table != JOURNAL else puts, validate)
        return done

    with patch(RecordsPart, "_put", bare):
        yield
