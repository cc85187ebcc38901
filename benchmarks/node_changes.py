"""Node changes: a node is added to the store and removed again under load (paper 1, table 1).

In: sizes, seconds and a rate of writing. Out: changes written per second, how far the views are behind, and the longest time
without a commit, before, between and after. Always: the pipeline has two managers and its own choice of driver or Spark; the
writer puts each row with a version that grows. Judged in the end: the log as a whole, in which the changes of each row must
form one chain of versions from the first to the last, without a gap and none twice; the base rows, against numpy's; the
views, by DuckDB; and what a reader saw meanwhile, who misses no row in any snapshot and never sees one grow older.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import viewkeeper as vk
from benchmarks import live_run
from benchmarks.beside import beside
from benchmarks.live_load import COPY, VIEWS, LiveLoad, Model, prepare
from benchmarks.options import Options
from benchmarks.recompute import WrongResult, require_views
from viewkeeper.model.positions import Positions
from viewkeeper.model.rowbatches import decode_columns

MANAGERS = 2
PARTS = ("one node", "ADD NODE", "REMOVE NODE 1")
_SAMPLE_SECONDS = 0.25


def measure(options: Options) -> dict[str, object]:
    load = live_run.load_of(options)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        url = f"embedded:{Path(folder) / 'store'}"
        prepare(url, load, COPY)
        lags = Lags(url)
        with vk.connect(url) as db, live_run.running(url, options, view_managers=MANAGERS) as (_, commits):
            filled = db.store.ends()
            with beside(*live_run.writer_arguments(url, options, rate=options.rate)) as writer:
                commits.wait_for(live_run.WARM_UP_EPOCHS)
                with beside(*live_run.reader_arguments(url, options, "versions")) as reader, lags:
                    parts = [_part(db, part, options.part_seconds) for part in PARTS]
        _require_right(url, load, filled, writer.told["last"], reader.told)
    return {
        "rows": options.live_rows,
        "seed": options.seed,
        "view_managers": MANAGERS,
        "changes_per_epoch": live_run.size_of(options),
        "part_seconds": options.part_seconds,
        "rate": options.rate,
        **_figures(commits, writer.told, lags, parts, options.part_seconds),
        "snapshots": reader.told,
        "views_right": True,
    }


def tell(figures: Mapping) -> Iterator[str]:
    for part in figures["parts"]:
        lag = f"lag at most {part['lag_changes_max']:8,} changes, {part['lag_seconds_max']:5.2f} s"
        pause = f"longest without a commit {part['longest_pause_seconds']:5.2f} s"
        moved = f"   rows moved in {part['alter_seconds']:.2f} s" if part["alter_seconds"] else ""
        yield f"{part['part']:14} {part['written_per_second']:8,} written/s   {lag}   {pause}{moved}"
    yield f"{figures['changes']:,} changes: every row one chain of versions, none lost; all views right at the end"
    yield f"{figures['snapshots']['reads']:,} snapshots read meanwhile, {figures['snapshots']['wrong']} wrong"


class Lags:
    """How far the views are behind, looked at four times a second while the block runs."""

    def __init__(self, url: str) -> None:
        self._url, self._is_over = url, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.moments: list[float] = []
        self.changes: list[int] = []
        self.seconds: list[float] = []

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        with vk.connect(self._url, read_only=True) as db:
            while not self._is_over.wait(_SAMPLE_SECONDS):
                waiting = db.store.describe(db.store.read_epoch_record().positions)
                self.moments.append(time.monotonic())
                self.changes.append(waiting.changes)
                age = 0 if waiting.oldest is None else db.store.now() - waiting.oldest
                self.seconds.append(max(0.0, age / 1e9))

    def within(self, values: list, began: float, ended: float) -> list:
        return [value for moment, value in zip(self.moments, values, strict=True) if began <= moment < ended]


def _part(db: vk.Database, part: str, seconds: float) -> tuple[str, float, float]:
    """Change the nodes, and watch; when it began, and how long the statement took."""
    began = time.monotonic()
    took = 0.0
    if part.endswith(("NODE", "1")):
        db.execute(f"ALTER STORE {part}")
        took = time.monotonic() - began
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return part, began, took


def _figures(
    commits: live_run.Commits, told: Mapping, lags: Lags, parts: list[tuple[str, float, float]], seconds: float
) -> dict[str, object]:
    figures = []
    for part, began, took in parts:
        written = live_run.by_second(told["moments"], told["changes"], began, seconds)
        behind = lags.within(lags.changes, began, began + seconds)
        figures.append(
            {
                "part": part,
                "alter_seconds": round(took, 2),
                "written_per_second": round(sum(written) / len(written)),
                "lag_changes_max": max(behind),
                "lag_seconds_max": round(max(lags.within(lags.seconds, began, began + seconds)), 2),
                "longest_pause_seconds": live_run.longest_pause(commits.moments, began, began + seconds),
                "written": written,
                "committed": live_run.by_second(commits.moments, commits.changes, began, seconds),
                "lag_changes": behind,
            }
        )
    return {"changes": sum(told["changes"]), "parts": figures}


def _require_right(url: str, load: LiveLoad, filled: Positions, last: int, read: Mapping) -> None:
    if read["wrong"]:
        raise WrongResult(f"of {read['reads']} snapshots {read['wrong']} lacked a row or had an older one")
    require_views(url, (*VIEWS, COPY), "after the nodes came and went")
    model = Model(load)
    model.advance(last)
    with vk.connect(url, read_only=True) as db:
        rows = db.table("r").to_arrow().sort_by("k")
        if not all((np.asarray(rows[name]) == getattr(model, name)).all() for name in "xy"):
            raise WrongResult("base rows are not what was written last")
        require_chains(db, filled, model)


def require_chains(db: vk.Database, start: Positions, model: Model) -> None:
    """Raise unless the changes of each row since `start` lead from version 0 to its last one, each from the one before."""
    schema = db.table("r").schema
    found = []
    for stream, end in db.store.ends().items():
        for _, batch in db.store.read_log(stream, start.get(stream, 0), end):
            olds, news = (decode_columns(schema, ["k", "y"], batch["key"], batch[side]) for side in ("before", "after"))
            keys = np.asarray([int(key[1:]) for key in olds[0].to_pylist()])
            found.append((keys, np.asarray(olds[1]), np.asarray(news[1])))
    keys, olds, news = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((news, keys))
    keys, olds, news = keys[order], olds[order], news[order]
    is_first = np.concatenate([[True], keys[1:] != keys[:-1]])
    befores = np.where(is_first, 0, np.concatenate([[0], news[:-1]]))
    is_last = np.concatenate([is_first[1:], [True]])
    if not ((olds == befores).all() and (news > olds).all() and (news[is_last] == model.y[keys[is_last]]).all()):
        raise WrongResult("a row has a change that is lost, twice there or out of order")
