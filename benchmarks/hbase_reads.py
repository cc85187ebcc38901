"""HBase reads: what a client waits for a count, by scan and from a view (paper 1, figure 9).

In: table sizes. Out: seconds of a client's scan and of a scan with a filter in HBase's servers; milliseconds of
`view.get` beside a plain get of a base row, p50 and p99. Always: one table that grows; single gets of both kinds take
turns; all three ways say the same count.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.hbase_case import GROUPS, Y_MAX, Base, base_tables, run, store_over
from benchmarks.hbase_site import FAMILY, keys_of, running, values_of
from benchmarks.hbase_views import VIEWS
from benchmarks.options import Options
from benchmarks.recompute import WrongResult
from benchmarks.results import quantile
from viewkeeper.client.database import Database

_SCANS = 3
_LOADED = 5_000  # rows that are put between runs of the pipeline


def measure(options: Options) -> dict[str, Any]:
    sizes = options.hbase_sizes
    with running() as hbase, base_tables(hbase, replace(options.hbase_workload(), rows=sizes[0])) as base:
        with store_over(base, [VIEWS["7"]["COUNT"]]) as db:
            found = [_size(base, db, options, sizes[0])]
            for before, size in pairwise(sizes):
                _grow(base, db, before, size, options.seed)
                found.append(_size(base, db, options, size))
    return {"seed": options.seed, "gets": options.hbase_gets, "sizes": found}


def _grow(base: Base, db: Database, before: int, size: int, seed: int) -> None:
    random = np.random.default_rng((seed, size))
    with base.hbase.client() as client:
        for start in range(before, size, _LOADED):
            numbers = np.arange(start, min(start + _LOADED, size))
            x, y = random.integers(0, GROUPS, len(numbers)), random.integers(0, Y_MAX, len(numbers))
            base.hbase.put(client, base.names["r"], base.hbase.puts(keys_of(numbers), values_of(x, y)))
    run(base, db)


def _size(base: Base, db: Database, options: Options, rows: int) -> dict[str, Any]:
    group, view = "x00017", db.view("v1")
    client_scan, by_client = _timed(lambda: _scan_by_client(base)[group])
    server_scan, by_server = _timed(lambda: _count_in_servers(base, group))
    in_view = (view.get(group) or {"n": 0})["n"]
    if not by_client == by_server == in_view:
        raise WrongResult(f"{group}: {by_client} by a client's scan, {by_server} in servers, {in_view} in the view")
    _gets(base, db, options.hbase_gets, rows, options.seed)  # warms up
    gets = _gets(base, db, options.hbase_gets, rows, options.seed)
    return {"rows": rows, "client_scan_seconds": client_scan, "server_scan_seconds": server_scan, **gets}


def _timed(read: Callable[[], int]) -> tuple[float, int]:
    """The shortest of some times, and what was read."""
    seconds, found = [], 0
    for _ in range(_SCANS):
        began = time.perf_counter()
        found = read()
        seconds.append(time.perf_counter() - began)
    return round(min(seconds), 4), found


def _scan_by_client(base: Base) -> Counter[str]:
    with base.hbase.client() as client:
        return Counter(x for _, x in base.hbase.rows(client, base.names["r"], ["x"]))


def _count_in_servers(base: Base, group: str) -> int:
    """All regions at once look for the group's rows, and tell their keys alone."""
    types, table = base.hbase.cluster.types, base.names["r"].encode()
    condition = f"SingleColumnValueFilter('{FAMILY.decode()}', 'x', =, 'binary:{group}', true, true)".encode()
    with base.hbase.client() as client:
        starts = sorted(one.regionInfo.startKey or b"" for one in client.getAllRegionLocations(table))

    def count(span: tuple[bytes, bytes]) -> int:
        column = types.TColumn(FAMILY, b"x")
        scan = types.TScan(
            startRow=span[0], stopRow=span[1] or None, columns=[column], filterString=condition, caching=10_000
        )
        with base.hbase.client() as own:
            return len(own.getScannerResults(table, scan, 10_000))

    with ThreadPoolExecutor(len(starts)) as pool:
        return sum(pool.map(count, pairwise([*starts, b""])))


def _gets(base: Base, db: Database, count: int, rows: int, seed: int) -> dict[str, Any]:
    """Milliseconds of single gets, one of a base row and one of the view in turn."""
    random, types, view = np.random.default_rng((seed, 9)), base.hbase.cluster.types, db.view("v1")
    table, plain, viewed = base.names["r"].encode(), [], []
    keys = keys_of(random.integers(0, rows, count))
    groups = values_of(random.integers(0, GROUPS, count), np.zeros(count, int))["x"]
    with base.hbase.client() as client:
        for key, group in zip(keys, groups, strict=True):
            began = time.perf_counter()
            client.get(table, types.TGet(row=key.encode()))
            between = time.perf_counter()
            view.get(group)
            plain.append((between - began) * 1000)
            viewed.append((time.perf_counter() - between) * 1000)
    found = {
        f"{name}_p{share}": round(quantile(values, share / 100), 3)
        for share in (50, 99)
        for name, values in (("plain_get_ms", plain), ("view_get_ms", viewed))
    }
    return {**found, "ratio_p50": round(found["view_get_ms_p50"] / found["plain_get_ms_p50"], 2)}


def tell(figures: Mapping) -> Iterator[str]:
    for one in figures["sizes"]:
        scans = f"client scan {one['client_scan_seconds']:.3f} s, in servers {one['server_scan_seconds']:.3f} s"
        view, plain = ([one[f"{name}_get_ms_p{share}"] for share in (50, 99)] for name in ("view", "plain"))
        told = f"view.get {view[0]:.2f} ms (p99 {view[1]:.2f}), plain get {plain[0]:.2f} ms (p99 {plain[1]:.2f})"
        yield f"{one['rows']:,} rows: {scans}; {told}: {one['ratio_p50']:.2f}x"
