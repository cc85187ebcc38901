"""In HBase: what must be so of the adapter's own state, beside what views hold.

In: a world over HBase. Out: nothing, or `Wrong`. Always: looked at while the network is calm; what is under way goes on.
"""

from __future__ import annotations

from contextlib import suppress

from tests.support.hostile_hbase import SETTLED_SECONDS
from tests.support.simulation.processes import ProcessStore
from tests.support.simulation.world import World, Wrong
from viewkeeper.errors import Fenced, PipelineRunning, StoreUnavailable
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.stores.hbase.meta import PipelineLease
from viewkeeper.stores.hbase.records import JournalEntry
from viewkeeper.stores.hbase.store_tables import JOURNAL
from viewkeeper.stores.hbase.thrift_cells import OLDER_MAX, RECORD

FAULTS = (  # what must befall requests and servers, in many schedules
    *("lost", "silent", "late", "twice", "partial", "doubled", "major compactions", "regions moved", "servers died"),
    *("gets", "claims", "surplus looked for", "snapshots lost"),
)
HEARTBEAT_SECONDS, LEASE_SECONDS = 40, 75  # the lease is 60 s; clocks of servers differ by up to 12
VERSIONS_MAX = 2 * (1 + OLDER_MAX)  # of a record, at or below the floor: one who crashes leaves what it was to delete


def require_gets(
    world: World, table: int, epoch: int, rows: dict[bytes, tuple[int, bytes]], known: dict[bytes, int]
) -> None:
    """What a client gets of a few keys, by a read frontier that it knows, is what `epoch` left; all keys with partitions."""
    for key in world.random.sample(sorted(known), min(3, len(known))):
        found = world.store.get_committed(known[key], table, key)
        expected = rows[key][1] if key in rows else None
        if world.record().committed != epoch:  # a commit that was late
            return
        if found is not None and found[0] != expected:
            raise Wrong(f"a get of {key!r} in table {table} gives {found[0]!r}, and there is {expected!r}")
        world.note("gets", table)


def require_right_columns(world: World) -> None:
    """What people see of a view in HBase's own tools."""
    for view in world.db.catalog().views:
        if wrong := list(world.store.wrong_columns(view.node.table)):
            raise Wrong(f"{view.name} shows other columns than its records: {wrong}")


def require_little_surplus(world: World) -> None:
    """Once nothing is under way, purges leave no tombstone that nobody needs, few old versions, and no entry of theirs."""
    assert world.hbase is not None
    record = world.record()
    with world.process() as store:
        store.purge(record, records_max=10_000)
        world.hbase.pass_time(SETTLED_SECONDS)
        while store.purge(record, records_max=10_000):
            pass
    for name, table in world.hbase.tables.items():
        number = name.rpartition(b".")[2]
        if b"." in name and int(number) == JOURNAL:
            _require_no_entries(
                record, [key for key in table.keys if table.visible(key, None, None, 1, world.hbase.ms)]
            )
        elif b"." in name:
            for key in table.keys:
                cells = table.visible(key, None, None, 1 << 31, world.hbase.ms)
                _require_few(record, name, key, [cell for cell in cells if cell.family == RECORD])
    world.note("surplus looked for")


def _require_few(record: EpochRecord, name: bytes, key: bytes, cells: list) -> None:
    versions = [cell for cell in cells if cell.timestamp not in record.aborted]
    if not versions:
        return
    newest, old = versions[0], [cell for cell in versions if cell.timestamp <= record.floor]
    if not newest.value and newest.timestamp <= min(record.floor, record.last - 1):
        raise Wrong(f"the tombstone of {key!r} in {name!r}, of epoch {newest.timestamp}, is still there")
    if len(old) > VERSIONS_MAX:
        raise Wrong(f"{len(old)} versions of {key!r} in {name!r} are left that nobody reads")


def _require_no_entries(record: EpochRecord, keys: list[bytes]) -> None:
    entries = [JournalEntry.of(key) for key in keys]
    if left := [entry for entry in entries if entry.epoch <= min(record.floor, record.last - 1)]:
        raise Wrong(f"the journal still has {left[0]}, and {len(left) - 1} more")


def contend(world: World) -> None:
    """Two pipelines want the claim, and one has it at the end; one that beats keeps it, and one that does not loses it."""
    assert world.hbase is not None
    with world.process() as one, world.process() as other:
        claims = [claim for store in (one, other) if (claim := _claimed(store)) is not None]
        with world.hbase.calm():
            world.hbase.pass_time(SETTLED_SECONDS)
            holding = [claim for claim in claims if _heartbeats(claim)]
            if len(holding) > 1:
                raise Wrong("two pipelines have the claim")
            for claim in holding:
                _require_lease(world, claim, one if claim is claims[-1] and len(claims) > 1 else other)
    world.note("claims", len(claims))


def _claimed(store: ProcessStore) -> PipelineLease | None:
    with suppress(StoreUnavailable, PipelineRunning):
        return store.claim(take_over=True)
    return None


def _heartbeats(claim: PipelineLease) -> bool:
    try:
        claim.beat()
    except Fenced:
        return False
    return True


def _require_lease(world: World, claim: PipelineLease, other: ProcessStore) -> None:
    assert world.hbase is not None
    for _ in range(3):
        world.hbase.pass_time(HEARTBEAT_SECONDS)
        claim.beat()
    with suppress(PipelineRunning):
        other.claim(take_over=False)
        raise Wrong("a claim that is beaten was taken by one that does not take over")
    world.hbase.pass_time(LEASE_SECONDS)
    try:
        taken = other.claim(take_over=False)
    except PipelineRunning as error:
        raise Wrong(f"a claim that nobody beats is kept: {error}") from error
    if _heartbeats(claim):
        raise Wrong("a pipeline that lost its claim beats")
    taken.release()
