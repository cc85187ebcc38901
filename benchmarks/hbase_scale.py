"""HBase scale: region servers, skew and many views (paper 1, figures 10, 11 and 13).

In: sizes. Out: changes per second with 3, 2, 1 and again 3 region servers; seconds to write and to maintain uniform and
zipf changes, by managers; changes per second by the number of views. Always: region servers are ended in an orderly way
and started again; of three turns the fastest counts; every view is compared with a recomputation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarks import live_run
from benchmarks.hbase_case import TURNS, Base, base_tables, fastest, require_views, run, store_over
from benchmarks.hbase_site import SERVERS, HBase, running
from benchmarks.hbase_views import HERE, MANAGERS, VIEWS
from benchmarks.options import Options
from tests.support.services.waiting import say_nothing, wait_until
from viewkeeper.client.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVED = {"selection": VIEWS["6"]["selection 50 %"], "COUNT": VIEWS["7"]["COUNT"], "INDEX": VIEWS["7"]["INDEX"]}
SERVED_BY = (3, 2, 1, 3)
COUNT = VIEWS["7"]["COUNT"]
_MOVED_SECONDS_MAX = 120.0


def measure(options: Options) -> dict[str, Any]:
    spark = live_run.session_with(max(MANAGERS))
    with running() as hbase:
        return {
            "rows": options.hbase_rows,
            "changes": options.hbase_changes,
            "seed": options.seed,
            "views": _by_views(hbase, options),
            "skew": {name: _by_managers(hbase, options, name, spark) for name in ("uniform", "zipf")},
            "servers": _by_servers(hbase, options),
        }


def views_of(count: int) -> list[str]:
    """Views over one table that share their DELTA and nothing else by text: each has a condition of its own."""
    return [f"SELECT x, COUNT(*) AS n FROM r WHERE y >= {place} GROUP BY x" for place in range(count)]


def _by_views(hbase: HBase, options: Options) -> list[dict[str, float]]:
    found = []
    with base_tables(hbase, options.hbase_workload()) as base:
        for count in options.hbase_counts:
            with store_over(base, views_of(count)) as db:
                run(base, db, base.write(options.hbase_changes // 10))
                ran = fastest(base, db, options.hbase_changes)
                require_views(base, db, views_of(count), f"{count} views")
            found.append(
                {"views": count, "changes_per_second": ran.changes_per_second, "seconds": round(ran.seconds, 2)}
            )
    return found


def _by_managers(hbase: HBase, options: Options, distribution: str, spark: SparkSession) -> dict[str, Any]:
    """Seconds to write the changes and to bring the view up to date, by managers."""
    found: dict[str, Any] = {}
    with base_tables(hbase, options.hbase_workload(distribution)) as base, store_over(base, [COUNT]) as db:
        run(base, db, base.write(options.hbase_changes // 10), spark, max(MANAGERS))
        for managers in (0, *MANAGERS):
            turns = [_turn(base, db, options.hbase_changes, spark, managers) for _ in range(TURNS)]
            found[str(managers) if managers else HERE] = min(turns, key=lambda turn: turn["maintain_seconds"])
        require_views(base, db, [COUNT], distribution)
    return found


def _turn(base: Base, db: Database, count: int, spark: SparkSession, managers: int) -> dict[str, float]:
    began = time.perf_counter()
    changes = base.write(count)
    written = time.perf_counter() - began
    ran = run(base, db, changes, spark if managers else None, managers or 1)
    return {
        "write_seconds": round(written, 2),
        "maintain_seconds": round(ran.seconds, 2),
        "changes_per_second": ran.changes_per_second,
    }


def _by_servers(hbase: HBase, options: Options) -> list[dict[str, Any]]:
    with base_tables(hbase, options.hbase_workload()) as base, ExitStack() as stack:
        stores = {name: stack.enter_context(store_over(base, [sql])) for name, sql in SERVED.items()}
        for db in stores.values():
            run(base, db)
        try:
            found = [_with_servers(base, stores, options, count) for count in SERVED_BY]
        finally:
            _have_servers(base, SERVERS)
        for name, db in stores.items():
            require_views(base, db, [SERVED[name]], f"{name}, by servers")
    return found


def _with_servers(base: Base, stores: Mapping[str, Database], options: Options, count: int) -> dict[str, Any]:
    _have_servers(base, count)
    changes = base.write(options.hbase_changes // 10)  # wakes up whoever was moved
    for db in stores.values():
        run(base, db, changes)
    written, speeds = [], dict.fromkeys(stores, 0)
    for _ in range(TURNS):
        began = time.perf_counter()
        changes = base.write(options.hbase_changes)
        written.append(changes / (time.perf_counter() - began))
        ran = {name: run(base, db, changes).changes_per_second for name, db in stores.items()}
        speeds = {name: max(ran[name], speed) for name, speed in speeds.items()}
    return {"servers": count, "writes_per_second": round(max(written)), "changes_per_second": speeds}


def _have_servers(base: Base, count: int) -> None:
    """End or start region servers until there are so many, and no region is on one that is gone."""
    cluster = base.hbase.cluster
    names = [f"regionserver-{number}" for number in range(1, SERVERS + 1)]
    for name in names[count:]:
        if cluster.processes.is_running(name):
            cluster.processes.end(name, seconds_max=60)
    for name in names[:count]:
        cluster.run(name)
    ports = {cluster.layout.port(name) for name in names[:count]}
    if not wait_until(
        lambda: _places(base) <= ports, seconds_max=_MOVED_SECONDS_MAX, state=lambda: "regions move", tell=say_nothing
    ):
        raise RuntimeError(f"regions are not on {count} servers after {_MOVED_SECONDS_MAX} s")


def _places(base: Base) -> set[int]:
    """The ports of the servers that have regions of the base table."""
    with base.hbase.client() as client:
        return {one.serverName.port for one in client.getAllRegionLocations(base.names["r"].encode())}


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, {figures['changes']:,} changes a turn; changes/s"
    for turn in figures["servers"]:
        told = ", ".join(f"{name} {speed:,}" for name, speed in turn["changes_per_second"].items())
        yield f"  {turn['servers']} region servers: {told}; base writes {turn['writes_per_second']:,}"
    for name, turns in figures["skew"].items():
        told = ", ".join(f"{managers}: {one['changes_per_second']:,}" for managers, one in turns.items())
        yield f"  {name}, by managers: {told}"
    for one in figures["views"]:
        yield f"  {one['views']} views: {one['changes_per_second']:,}"
