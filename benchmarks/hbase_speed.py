"""HBase speed: how much faster is an epoch than the papers' per-operation algorithm over the same HBase?

In: sizes. Out: changes per second of both, for three views, and their ratio. Always: both start from the same base rows
and get the same operations; the papers' algorithm runs with 1, 4 and 8 managers and its best counts, the pipeline in one
process and by two managers on Spark, and its best counts, of three turns each; every result is compared with a recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from benchmarks import hbase_per_operation as per_operation
from benchmarks import live_run
from benchmarks.hbase_case import TURNS, Base, base_tables, fastest, require_views, run, store_over
from benchmarks.hbase_site import keys_of, running, values_of
from benchmarks.hbase_views import HERE, VIEWS
from benchmarks.options import Options
from benchmarks.recompute import require_equal
from benchmarks.views import V1

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from viewkeeper.client.database import Database

CASES = {"COUNT and SUM": V1, "MIN": VIEWS["7"]["MIN"], "selection": VIEWS["6"]["selection 50 %"]}
MANAGERS = (1, 4, 8)
ON_SPARK = 2


def measure(options: Options) -> dict[str, Any]:
    spark = live_run.session_with(ON_SPARK)
    with running() as hbase, base_tables(hbase, options.hbase_workload()) as base:
        cases = {view: _case(base, view, sql, options, spark) for view, sql in CASES.items()}
    sizes = {"rows": options.hbase_rows, "changes": options.hbase_changes, "operations": options.hbase_operations}
    return {**sizes, "seed": options.seed, "cases": cases}


def _case(base: Base, view: str, sql: str, options: Options, spark: SparkSession) -> dict[str, Any]:
    with store_over(base, [sql]) as db:
        each, written = _per_operation(base, view, sql, options)
        at_once = run(base, db, written)  # what the papers' algorithm has done in all its turns
        ours = _pipeline(base, db, options, spark)
        require_views(base, db, [sql], f"pipeline, {view}")
    best, theirs = max(ours.values()), max(each.values())
    return {
        "per_operation": each,
        "pipeline": ours,
        "pipeline_at_once": {"changes": written, "changes_per_second": at_once.changes_per_second},
        "ratio": round(best / theirs, 1),
        "ratio_at_once": round(at_once.changes_per_second / theirs, 1),
    }


def _pipeline(base: Base, db: Database, options: Options, spark: SparkSession) -> dict[str, int]:
    run(base, db, base.write(options.hbase_changes // 10), spark, ON_SPARK)
    found = {}
    for managers in (0, ON_SPARK):
        ran = fastest(base, db, options.hbase_changes, spark if managers else None, managers or 1)
        found[str(managers) if managers else HERE] = ran.changes_per_second
    return found


def _per_operation(base: Base, view: str, sql: str, options: Options) -> tuple[dict[str, int], int]:
    """Changes per second by managers, and how many there were in all."""
    hbase, tables = base.hbase, per_operation.Tables.new()
    speeds, written = {}, 0
    try:
        for name in tables.names:
            hbase.create(name)
        per_operation.load(hbase, tables, view, base.rows()["r"])
        for managers in MANAGERS:
            turns = []
            for _ in range(TURNS):
                operations = _write(base, options.hbase_operations)
                turns.append(round(len(operations) / per_operation.run(hbase, tables, view, operations, managers)))
                written += len(operations)
            speeds[str(managers)] = max(turns)
        found = per_operation.records(hbase, tables, view)
        require_equal(base.rows(), sql, found, f"per operation, {view}")
    finally:
        hbase.drop(tables=tables.names)
    return speeds, written


def _write(base: Base, count: int) -> list[per_operation.Operation]:
    """Write about so many changes to the base; returns them."""
    done: list[per_operation.Operation] = []
    with base.hbase.client() as client:
        while len(done) < count:
            step = next(base.steps)
            base.hbase.write_step(client, base.names["r"], step)
            x = values_of(step.x, step.y)["x"]
            done += zip(keys_of(step.puts), x, step.y.tolist(), strict=True)
            done += [(key, None, 0) for key in keys_of(step.deletes)]
    return done


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows; changes/s"
    for view, case in figures["cases"].items():
        each = ", ".join(f"{managers}: {speed:,}" for managers, speed in case["per_operation"].items())
        ours = ", ".join(f"{managers}: {speed:,}" for managers, speed in case["pipeline"].items())
        once = case["pipeline_at_once"]
        yield f"  {view}: per operation, by managers {each}"
        told = f"{once['changes']:,} changes at once: {once['changes_per_second']:,}"
        yield f"  {'':{len(view)}}  pipeline, by managers {ours} ({told})"
        yield f"  {'':{len(view)}}  {case['ratio']} times as many ({case['ratio_at_once']} at once)"
