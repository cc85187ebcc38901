"""Leftovers: records that a store would not have if all had gone well.

In: a world in which everything is committed. Out: nothing, or `Wrong`. Always: every table of every stored node is compared,
auxiliary ones too, with those of a new store over the same base in which the same views were filled once.
"""

from __future__ import annotations

import math
from contextlib import closing, suppress

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.running import keep_up
from tests.support.simulation.kinds import COLUMNS, TABLES, with_their_sources
from tests.support.simulation.world import World, Wrong
from tests.support.sizes import counted, walked
from viewkeeper.client.connection import moment_of
from viewkeeper.client.database import Database
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.errors import StoreUnavailable
from viewkeeper.settings import GcSettings
from viewkeeper.stores.hbase.store_tables import JOURNAL

Records = dict[tuple[str, int], list[tuple[bytes, bytes]]]  # by the text of a node and the place of its table


def require_no_leftovers(world: World) -> None:
    with vk.connect(f"memory:?{world.options}") as fresh:
        for ddl in TABLES.values():
            fresh.execute(ddl)
        for name, rows in zip(TABLES, world.base.newest, strict=True):
            for row in rows:
                fresh.table(name).put(row[0], dict(zip(list(COLUMNS[name])[1:], row[1:], strict=True)))
        for kind in with_their_sources(list(world.views)):
            if kind.name in world.views:
                fresh.execute(kind.create)
        keep_up(fresh)
        expected, found = records_of(fresh), records_of(world.db)
    both = expected.keys() & found.keys()
    world.note("tables compared with those of a new store", len(both))
    for node in sorted(both):
        if found[node] != expected[node]:
            raise Wrong(f"table {node[1]} of {node[0]} holds {found[node]}, but in a new store {expected[node]}")
    if (told := counted(world.store)) != (there := walked(world.store)):
        raise Wrong(f"{told} was counted, but there is {there}")
    _require_known_tables(world)


def records_of(database: Database) -> Records:
    """The records as of the committed epoch."""
    store, catalog = database.store, database.catalog()
    partitions = range(store.partitions)
    with closing(store.hold(moment_of(store, "snapshot", 0), partitions)) as held:
        return {
            (node.text, place): sorted(held.scan(partitions, table, b"", None))
            for node in catalog.nodes
            for place, table in enumerate(node.tables)
        }


def _require_known_tables(world: World) -> None:
    """Dropped tables are gone, whoever wrote to them late."""
    with suppress(StoreUnavailable):  # what it has not removed is still listed as dropped
        collect_garbage(world.store, GcSettings(seconds_max=math.inf))
    catalog = world.db.catalog()
    known = {table for node in catalog.nodes for table in node.tables}
    known |= {table for schema in catalog.tables for table in schema.tables}
    if not catalog.dropped and (lost := _held_tables(world) - known):
        raise Wrong(f"records are left of tables {sorted(lost)}, which nobody knows")


def _held_tables(world: World) -> set[int]:
    """The tables that have records, or tombstones, in some partition."""
    if world.hbase is not None:
        numbers = (name.rpartition(b".")[2] for name in world.hbase.tables if b"." in name)
        return {int(number) for number in numbers} - {JOURNAL}
    return {table for table, _, _ in dump(world.store)}
