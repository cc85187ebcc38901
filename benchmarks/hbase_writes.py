"""HBase writes: how much longer does it take to write a base table while its views are maintained (paper 1, figure 12)?

In: seconds. Out: the time that puts take with the pipeline at work and without, in turns, and their ratio: one by one and in
batches, as fast as HBase takes them, and at a steady rate. Always: writer and pipeline each have cores of their own, HBase's
servers run on all; the pipeline runs as `nice -n 19 viewkeeper run`, has caught up before each turn, and is stopped by
SIGSTOP in those without it; how far it is behind at the end of a turn stands beside. A turn in which a virtual machine's host
took more than a fiftieth of the cores' time is done again, as long as there is patience; how often stands beside.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from benchmarks import beside
from benchmarks.cores import on_cores, one_each, stolen
from benchmarks.hbase_case import Base, base_tables, require_views, run, store_over
from benchmarks.hbase_site import running
from benchmarks.options import Options
from benchmarks.views import V1
from viewkeeper.client.database import Database

KINDS = {
    "one by one": (1, 0),
    "batches of 100": (100, 0),
    "batches of 100, steady": (100, 2_000),
}  # size, rows a second
_POLL_SECONDS = 0.2
_STOLEN_MAX = 0.02
_PATIENCE = 4  # turns for each that counts


def measure(options: Options) -> dict[str, Any]:
    writer_cores, pipeline_cores = one_each()
    with running() as hbase, base_tables(hbase, options.hbase_workload()) as base, store_over(base, [V1]) as db:
        with on_cores(pipeline_cores):
            pipeline = beside.start("hbase_pipeline", db.store.url, stderr=None)
        try:
            found = {kind: _kind(base, db, options, kind, writer_cores, pipeline) for kind in KINDS}
        finally:
            pipeline.started.communicate()
        run(base, db)
        require_views(base, db, [V1], "after the writes")
    return {
        "rows": options.hbase_rows,
        "seed": options.seed,
        "writer_cores": len(writer_cores),
        "pipeline_cores": len(pipeline_cores),
        "kinds": found,
    }


def _kind(
    base: Base, db: Database, options: Options, kind: str, cores: set[int], pipeline: beside.Process
) -> dict[str, Any]:
    """Turns of one kind: without the pipeline, with it, with it, without it, …"""
    size, rate = KINDS[kind]
    arguments = (base.hbase.cluster.layout.folder, base.names["r"], options.hbase_rows, options.seed, size, 0)
    took: dict[bool, list[float]] = {False: [], True: []}
    behind, repeated = [], 0
    with on_cores(cores):
        writer = beside.start("hbase_writer", *arguments, stderr=None)
    try:
        _write(writer, options.hbase_write_seconds, rate)  # warms up
        while (turn := len(took[True]) + len(took[False])) < 2 * options.hbase_turns:
            is_on = turn % 4 in (1, 2)
            _wait_until_caught_up(db)
            with _going(pipeline) if is_on else _stopped(pipeline):
                with stolen() as taken:
                    seconds = _write(writer, options.hbase_write_seconds, rate)
                if taken.share > _STOLEN_MAX and repeated < (_PATIENCE - 1) * 2 * options.hbase_turns:
                    repeated += 1
                    continue
                took[is_on].append(seconds)
                behind += [_behind(db)] if is_on else []
    finally:
        assert writer.started.stdin is not None
        writer.started.stdin.close()
        writer.started.wait()
    without, with_ = (1e6 * median(took[is_on]) for is_on in (False, True))
    return {
        "rows_per_second_asked": rate,
        "us_a_row_without": [round(1e6 * one, 1) for one in took[False]],
        "us_a_row_with": [round(1e6 * one, 1) for one in took[True]],
        "puts_per_second_without": round(1e6 / without),
        "puts_per_second_with": round(1e6 / with_),
        "ratio": round(with_ / without, 3),
        "cells_behind": behind,
        "turns_repeated": repeated,
    }


def _write(writer: beside.Process, seconds: int, rate: int) -> float:
    """Have the writer put rows for so long; the seconds that a row took."""
    pipe, told = writer.started.stdin, writer.started.stdout
    assert pipe is not None and told is not None
    pipe.write(f"{seconds} {rate}\n")
    pipe.flush()
    found = json.loads(told.readline())
    return found["seconds"] / found["rows"]


def _behind(db: Database) -> int:
    return db.store.describe(db.store.read_epoch_record().positions).changes


def _wait_until_caught_up(db: Database) -> None:
    while _behind(db):
        time.sleep(_POLL_SECONDS)


@contextmanager
def _stopped(pipeline: beside.Process) -> Iterator[None]:
    """All processes of the pipeline's session: its JVM too."""
    os.killpg(pipeline.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(pipeline.pid, signal.SIGCONT)


@contextmanager
def _going(pipeline: beside.Process) -> Iterator[None]:
    yield


def tell(figures: Mapping) -> Iterator[str]:
    yield f"writer on {figures['writer_cores']} core(s), pipeline on {figures['pipeline_cores']}, HBase on all"
    for kind, one in figures["kinds"].items():
        speeds = f"{one['puts_per_second_without']:,} puts/s without maintenance, {one['puts_per_second_with']:,} with"
        yield f"{kind}: {speeds}: {one['ratio']:.2f} times as long"
