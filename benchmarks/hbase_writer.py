"""A writer of HBase in a process of its own: `python -m benchmarks.hbase_writer FOLDER TABLE ROWS SEED SIZE RATE`.

In: the cluster's folder. With rate 0, lines with seconds and how many rows to put in a second, 0 = as many as HBase takes;
else so many rows a second are put until the end, later where HBase makes it wait. The end of the standard input ends it.
Out: `ready`; for each line how many rows were put and the seconds that took, without those of making and pacing them; with a
rate, in the end, when each batch was done. Always: rows of the table are put anew, at random, in batches of SIZE.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import beside
from benchmarks.hbase_case import GROUPS, Y_MAX
from benchmarks.hbase_site import HBase, keys_of, values_of
from tests.support.services.hbase import Cluster

_BATCHES = 100  # that a writer with a rate makes at once


def main(arguments: list[str]) -> int:
    folder, table = arguments[:2]
    rows, seed, size, rate = map(int, arguments[2:])
    cluster = Cluster.find(Path(folder))
    assert cluster is not None
    hbase, random = HBase(cluster), np.random.default_rng((seed, 12))
    with hbase.client() as client:
        if rate:
            _at_rate(hbase, client, table, rows, random, size, rate)
        else:
            _by_lines(hbase, client, table, rows, random, size)
    return 0


def _by_lines(hbase: HBase, client: Any, table: str, rows: int, random: np.random.Generator, size: int) -> None:
    print(beside.READY, flush=True)
    for line in sys.stdin:
        seconds, pace = map(int, line.split())
        count, took, began = 0, 0.0, time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            puts = _puts(hbase, rows, size, random)
            time.sleep(max(0.0, began + count / pace - now) if pace else 0.0)
            sent = time.perf_counter()
            hbase.put(client, table, puts, size)
            took, count = took + time.perf_counter() - sent, count + size
        beside.tell({"rows": count, "seconds": took})


def _at_rate(
    hbase: HBase, client: Any, table: str, rows: int, random: np.random.Generator, size: int, rate: int
) -> None:
    moments: list[float] = []
    puts = _puts(hbase, rows, size * _BATCHES, random)
    is_over, began = beside.until_told(), time.monotonic()
    while not is_over.is_set():
        place = len(moments) % _BATCHES
        if moments and not place:
            puts = _puts(hbase, rows, size * _BATCHES, random)
        is_over.wait(began + len(moments) * size / rate - time.monotonic())
        hbase.put(client, table, puts[place * size : (place + 1) * size], size)
        moments.append(time.monotonic())
    beside.tell({"moments": moments, "size": size})


def _puts(hbase: HBase, rows: int, count: int, random: np.random.Generator) -> list[Any]:
    x, y = random.integers(0, GROUPS, count), random.integers(0, Y_MAX, count)
    return hbase.puts(keys_of(random.integers(0, rows, count)), values_of(x, y))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
