"""HBase writes: how much longer does it take to write a base table while its views are maintained (paper 1, figure 12)?

In: sizes. Out: base rows put per second with the pipeline at work and without, in turns, and their ratio; by size of the
client's batches. Always: writer and pipeline each have cores of their own, HBase's servers run on all; the pipeline is
called again and again while it is at work, and has caught up before each turn; how far it is behind at the end of a turn
stands beside.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import Any

from benchmarks import beside
from benchmarks.cores import on_cores, one_each
from benchmarks.hbase_case import Base, base_tables, require_views, store_over
from benchmarks.hbase_site import running
from benchmarks.options import Options
from benchmarks.results import spread
from benchmarks.views import V1
from viewkeeper.client.database import Database
from viewkeeper.client.pipeline import Pipeline

SIZES = (1, 100)  # rows in a batch of the client
_ONE_BY_ONE = 10  # of that many rows one is put where they are put one by one
_POLL_SECONDS = 0.05


def measure(options: Options) -> dict[str, Any]:
    writer_cores, pipeline_cores = one_each()
    with running() as hbase, base_tables(hbase, options.hbase_workload()) as base, on_cores(pipeline_cores):
        with store_over(base, [V1]) as db:
            found = {str(size): _size(base, db, options, size, writer_cores) for size in SIZES}
            require_views(base, db, [V1], "after the writes")
    return {
        "rows": options.hbase_rows,
        "seed": options.seed,
        "writer_cores": len(writer_cores),
        "pipeline_cores": len(pipeline_cores),
        "batches": found,
    }


def _size(base: Base, db: Database, options: Options, size: int, cores: set[int]) -> dict[str, Any]:
    """Turns of batches of one size: without the pipeline, with it, with it, without it, …"""
    count = options.hbase_writes if size > 1 else max(1, options.hbase_writes // _ONE_BY_ONE)
    arguments = (base.hbase.cluster.layout.folder, base.names["r"], options.hbase_rows, options.seed, size, 0)
    took: dict[bool, list[float]] = {False: [], True: []}
    behind = []
    with on_cores(cores):
        writer = beside.start("hbase_writer", *arguments, stderr=None)
    try:
        with db.pipeline() as pipeline:
            _write(writer, count)  # warms up
            for turn in range(2 * options.hbase_turns):
                is_on = turn % 4 in (1, 2)
                pipeline.run_available()
                with _at_work(pipeline) if is_on else _idle():
                    took[is_on].append(_write(writer, count))
                    behind += [db.store.waiting(db.store.read_epoch_record().positions).changes] if is_on else []
            pipeline.run_available()
    finally:
        assert writer.started.stdin is not None
        writer.started.stdin.close()
        writer.started.wait()
    return {
        "puts": count,
        "without_seconds": spread(took[False]),
        "with_seconds": spread(took[True]),
        "puts_per_second_without": round(count / median(took[False])),
        "puts_per_second_with": round(count / median(took[True])),
        "ratio": round(median(took[True]) / median(took[False]), 3),
        "cells_behind": behind,
    }


def _write(writer: beside.Process, count: int) -> float:
    """Have the writer put so many rows; the seconds it took."""
    pipe, told = writer.started.stdin, writer.started.stdout
    assert pipe is not None and told is not None
    pipe.write(f"{count}\n")
    pipe.flush()
    return json.loads(told.readline())["seconds"]


@contextmanager
def _at_work(pipeline: Pipeline) -> Iterator[None]:
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(_POLL_SECONDS):
            pipeline.run_available()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            is_over.set()
        done.result()


@contextmanager
def _idle() -> Iterator[None]:
    yield


def tell(figures: Mapping) -> Iterator[str]:
    yield f"writer on {figures['writer_cores']} core(s), pipeline on {figures['pipeline_cores']}, HBase on all"
    for size, one in figures["batches"].items():
        speeds = f"{one['puts_per_second_without']:,} puts/s without maintenance, {one['puts_per_second_with']:,} with"
        yield f"batches of {size}: {speeds}: {one['ratio']:.2f} times as long"
