"""Planted errors: does a check find every one, and a repair put it right, while writes and epochs go on?

In: sizes. Out: how many of the planted errors were found, what else was (nothing may be), seconds of each check and of the
repair, and how fast the writer was meanwhile. Always: errors are planted where records are stored, behind the back of the
pipeline, in records that the writer leaves alone, so that each stays as it was planted.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.pipeline_runs import start_session
from tests.support.planting import chain_of, change_record, change_stored, stored_records

if TYPE_CHECKING:
    from viewkeeper.check.report import CheckReport, RepairReport
    from viewkeeper.client.database import Database

TABLES = """
CREATE TABLE r (k STRING PRIMARY KEY, x INT, y INT);
CREATE TABLE s (x INT PRIMARY KEY, region STRING, weight INT);
CREATE MATERIALIZED VIEW chosen AS SELECT k, x, y FROM r WHERE y >= 500;
CREATE MATERIALIZED VIEW sums AS SELECT x, COUNT(*) AS n, SUM(y) AS total FROM r GROUP BY x;
CREATE MATERIALIZED VIEW ends AS SELECT x, MIN(y) AS lo, MAX(y) AS hi FROM r GROUP BY x;
CREATE MATERIALIZED VIEW joined AS SELECT r.k, r.y, s.region FROM r JOIN s ON r.x = s.x WHERE r.y >= 500;
CREATE MATERIALIZED VIEW regions AS SELECT s.region, COUNT(*) AS n, SUM(r.y * s.weight) AS load FROM r JOIN s ON r.x = s.x
  GROUP BY s.region
"""
BY_ROW, BY_GROUP = ("chosen", "joined"), ("sums", "ends")
_BATCH = 200  # rows in one write of the writer
_PAUSE_SECONDS = 0.05
_GROUPS_PER_REGION = 5
Planted = set[tuple[str, tuple, str]]  # a view, a key and a kind of error


@contextmanager
def repeating(work: Callable[[], object]) -> Iterator[None]:
    """Until the block ends a thread does the work again and again."""
    stop, failed = threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not stop.wait(_PAUSE_SECONDS):
                work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


class Judge(NamedTuple):
    """Checks of all views, since the last one or as a whole, and repairs."""

    check: Callable[[Any], CheckReport]
    repair: Callable[[], RepairReport]


@dataclass
class Lab:
    """A store under load. Groups are cold (nobody changes them), then touched once, then hot: the writer changes those."""

    db: Database
    rows: int
    seed: int
    groups: int = field(init=False)
    rng: random.Random = field(init=False)
    written: int = 0

    def __post_init__(self) -> None:
        self.groups, self.rng = max(200, self.rows // 100), random.Random(self.seed)

    @property
    def cold(self) -> range:
        return range(self.groups * 8 // 10)

    @property
    def touched(self) -> range:
        return range(self.cold.stop, self.groups * 9 // 10)

    @property
    def hot(self) -> range:
        return range(self.touched.stop, self.groups)

    def load(self) -> None:
        self.db.execute(TABLES)
        at = np.arange(self.groups)
        regions = [f"region{group // _GROUPS_PER_REGION}" for group in at.tolist()]
        weights = pa.array(at % 7, pa.int32())
        self.db.table("s").put_many(pa.table({"x": pa.array(at, pa.int32()), "region": regions, "weight": weights}))
        self.db.table("r").put_many(self.table_of(np.arange(self.rows), np.random.default_rng(self.seed)))

    def table_of(self, numbers: np.ndarray, draw: np.random.Generator) -> pa.Table:
        """Rows in their groups with new values; half of them are in views that choose."""
        values = draw.integers(0, 1_000, len(numbers))
        keys = [row_key(number) for number in numbers.tolist()]
        groups = pa.array(numbers % self.groups, pa.int32())
        return pa.table({"k": keys, "x": groups, "y": pa.array(values, pa.int32())})

    def rows_in(self, groups: range, count: int, draw: np.random.Generator) -> np.ndarray:
        """The numbers of some rows of these groups."""
        rounds = max(1, self.rows // self.groups)
        chosen = draw.integers(groups.start, groups.stop, count) + self.groups * draw.integers(0, rounds, count)
        return np.unique(chosen)

    def write(self) -> None:
        """Change some rows of hot groups."""
        draw = np.random.default_rng(self.seed + self.written)
        rows = self.table_of(self.rows_in(self.hot, _BATCH, draw), draw)
        self.db.table("r").put_many(rows)
        self.written += len(rows)

    def touch(self, count: int, round_: int) -> np.ndarray:
        """Change rows of touched groups, and return which; rows of new groups and regions come and go again."""
        draw, new = np.random.default_rng(self.seed + 2 + round_), range(count // 20)
        table, others = self.db.table("r"), self.db.table("s")
        numbers = self.rows_in(self.touched, count, draw)
        table.put_many(self.table_of(numbers, draw))
        table.put_many([{"k": gone_key(n), "x": self.groups + n, "y": 900} for n in new])
        others.put_many([{"x": self.groups + n, "region": gone_key(n), "weight": 1} for n in new])
        token = table.delete_many([gone_key(n) for n in new]) | others.delete_many([self.groups + n for n in new])
        self.db.wait_for(token, timeout=600)
        return numbers


def row_key(number: int) -> str:
    return f"{number:08d}"


def gone_key(number: int) -> str:
    return f"gone{number}"


def plant(lab: Lab, rows: np.ndarray, count: int, extra: Callable[[str, int], tuple]) -> Planted:
    """Errors in records of these rows, of every kind and in every view: `extra` gives keys under which there is none."""
    views, kinds = (*BY_ROW, *BY_GROUP, "regions"), ("missing", "wrong", "extra")
    found: dict[tuple[str, tuple], str] = {}
    while len(found) < count:
        number = len(found)
        view, kind = views[number % len(views)], kinds[number // len(views) % len(kinds)]
        key = extra(view, number) if kind == "extra" else some_key(lab, view, rows)
        other = some_key(lab, view, rows)
        shown, like = lab.db.view(view).get(*key), lab.db.view(view).get(*other)
        if (view, key) in found or like is None or (kind != "extra" and shown is None):
            continue
        if kind == "wrong" and values_of(view, shown) == values_of(view, like):
            continue
        change_record(lab.db, view, key, None if kind == "missing" else chain_of(lab.db, view, other))
        found[view, key] = kind
    return {(view, key, kind) for (view, key), kind in found.items()}


def plant_auxiliary(lab: Lab, count: int) -> int:
    """Take away, or exchange, records of auxiliary tables whose keys begin with a cold group; returns how many."""
    done = 0
    for view in ("ends", "joined"):
        catalog = lab.db.catalog()
        stored = {table for node in catalog.stored(catalog.view(view)) for table in node.tables} - {
            one.node.table for one in catalog.views
        }
        for table in sorted(stored):
            records = [one for one in stored_records(lab.db, table) if group_of(one[1]) in lab.cold]
            for number, (partition, key, _) in enumerate(lab.rng.sample(records, min(count, len(records)))):
                other = lab.rng.choice(records)[2]
                change_stored(lab.db, table, partition, key, None if number % 2 else other)
                done += 1
    return done


def group_of(key: bytes) -> int:
    """The group that a key begins with: an INT."""
    return int.from_bytes(key[1:5], "big") - (1 << 31)


def values_of(view: str, record: dict[str, object] | None) -> list[object]:
    return [value for name, value in (record or {}).items() if name not in ("k", "region" if view == "regions" else "")]


def some_key(lab: Lab, view: str, rows: np.ndarray) -> tuple:
    """The key of a record that one of these rows is in, or may be."""
    row = int(lab.rng.choice(rows))
    group = row % lab.groups
    if view == "regions":
        return (f"region{group // _GROUPS_PER_REGION}",)
    return (group,) if view in BY_GROUP else (row_key(row),)


def measured(lab: Lab, judge: Judge, *, errors: int, touches: int) -> dict[str, Any]:
    """All figures, while views are kept fresh; errors that were not found, and findings that are none, are listed."""
    figures: dict[str, Any] = {"rows": lab.rows, "errors": errors}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began, before, epoch = time.perf_counter(), lab.written, lab.db.epoch
        found = work()
        seconds = time.perf_counter() - began
        figures[name] = {
            "seconds": round(seconds, 2),
            "writes_per_second": round((lab.written - before) / seconds),
            "epochs": lab.db.epoch - epoch,
        }
        if (findings := getattr(found, "findings", None)) is not None:
            figures[name]["findings"] = len(findings)
        print(f"  {name}: {figures[name]}", file=sys.stderr, flush=True)  # a long run tells how far it is
        return found

    whole = timed("check", lambda: judge.check(None))
    figures["records"] = whole.records
    lab.touch(touches, 0)
    since = timed("check_since_last", lambda: judge.check("last"))
    figures["check_since_last"]["records"] = since.records
    figures["false_alarms"] = len(whole.findings) + len(since.findings)
    touched = plant(lab, lab.touch(touches, 1), errors // 5, lambda view, number: _gone(lab, view, number))
    found = timed("check_since_last_with_errors", lambda: judge.check("last"))
    _compare(figures["check_since_last_with_errors"], touched, found)
    cold = np.flatnonzero(np.arange(lab.rows) % lab.groups < lab.cold.stop)
    planted = touched | plant(lab, cold, errors - len(touched), lambda view, number: _nowhere(lab, view, number))
    found = timed("check_with_errors", lambda: judge.check(None))
    _compare(figures["check_with_errors"], planted, found)
    figures["auxiliary_errors"] = plant_auxiliary(lab, errors // 20)
    repaired = timed("repair", judge.repair)
    figures["repair"] |= {
        "records": sum(repaired.records.values()),
        "auxiliary": sum(repaired.auxiliary.values()),
        "found_after": len(repaired.after.findings),
        "ok": repaired.ok,
    }
    after = timed("check_after", lambda: judge.check(None))
    figures["check_after"]["ok"] = after.ok
    return figures


def _compare(figures: dict[str, Any], planted: Planted, report: CheckReport) -> None:
    found = {(finding.view, finding.key, finding.kind) for finding in report.findings}
    figures |= {
        "planted": len(planted),
        "found": len(planted & found),
        "not_found": sorted(map(repr, planted - found))[:10],
        "false_alarms": sorted(map(repr, found - planted))[:10],
        "since": len(report.since),
    }


def _gone(lab: Lab, view: str, number: int) -> tuple:
    """A key whose rows came and went."""
    return (lab.groups + number,) if view in BY_GROUP else (gone_key(number),)


def _nowhere(lab: Lab, view: str, number: int) -> tuple:
    if view == "regions":
        return (f"nowhere{number}",)
    return (2 * lab.groups + number,) if view in BY_GROUP else (f"nowhere{number}",)


def measure(options: Options) -> dict[str, Any]:
    spark, errors = start_session(options.view_managers), options.rows // 1_000
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        with vk.connect(f"embedded:{Path(folder) / 'store'}") as db:
            lab = Lab(db, options.rows, options.seed)
            judge = Judge(lambda since: db.check(spark=spark, since=since), lambda: db.repair(spark=spark))
            lab.load()
            with db.pipeline(spark=spark) as pipeline:
                pipeline.run_available()
                with repeating(pipeline.run_available), repeating(lab.write):
                    return measured(lab, judge, errors=errors, touches=options.changes_per_refresh)


def tell(figures: Mapping) -> Iterator[str]:
    yield f"{figures['rows']:,} rows, {figures['records']:,} records of five views, a writer and the pipeline at work"
    for name in (
        "check",
        "check_since_last",
        "check_since_last_with_errors",
        "check_with_errors",
        "repair",
        "check_after",
    ):
        one = figures[name]
        found = (
            f"; found {one['found']} of {one['planted']}, {len(one['false_alarms'])} others" if "found" in one else ""
        )
        told = f"; {one['records']} records and {one['auxiliary']} auxiliary ones written" if name == "repair" else ""
        yield f"{name}: {one['seconds']} s, {one['writes_per_second']:,} rows written a second{found}{told}"
    yield f"false alarms without an error: {figures['false_alarms']}; after the repair: {figures['repair']['found_after']}"
