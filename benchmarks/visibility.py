"""Visibility: how long until a single put is seen in a view?

In: a number of puts. Out: median and p90 of the time from the return of `put` to the first `view.get` that shows it.
Always: the pipeline runs in the background on an idle store, puts come at random moments, and the reader polls about
every millisecond, so the poll adds at most about that.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from benchmarks.options import Options
from benchmarks.results import quantile
from benchmarks.views import V1
from benchmarks.workload import TABLE

if TYPE_CHECKING:
    from viewkeeper.client.views import View

WARM_UP_PUTS = 5
PAUSE_SECONDS = (0.2, 0.4)
_POLL_SECONDS = 0.001
_PATIENCE_SECONDS = 60.0


class NeverSeen(Exception):
    """A put did not reach the view in a minute."""


def measure(options: Options) -> dict[str, object]:
    delays = delays_of(puts=options.puts)
    return {
        "puts": options.puts,
        "median_seconds": round(statistics.median(delays), 4),
        "p90_seconds": round(quantile(delays, 0.9), 4),
        "min_seconds": round(min(delays), 4),
        "max_seconds": round(max(delays), 4),
    }


def tell(figures: Mapping) -> Iterator[str]:
    seconds = f"median {figures['median_seconds']} s, p90 {figures['p90_seconds']} s"
    yield f"put to visible, {figures['puts']} single puts: {seconds}"


def delays_of(*, puts: int, seed: int = 1) -> list[float]:
    """Seconds from put to visible, one for each put."""
    moments = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder:
        with vk.connect(f"embedded:{Path(folder) / 'store'}") as db:
            db.execute(TABLE)
            db.execute(f"CREATE MATERIALIZED VIEW v1 AS {V1}")
            table, view = db.table("r"), db.view("v1")
            with db.pipeline() as pipeline:
                pipeline.run_available()  # fills the view: a read before that is refused
                pipeline.start()
                delays = []
                for number in range(WARM_UP_PUTS + puts):
                    time.sleep(moments.uniform(*PAUSE_SECONDS))
                    table.put(f"k{number}", {"x": number, "y": 1})
                    delays.append(_seconds_until_seen(view, number))
    return delays[WARM_UP_PUTS:]


def _seconds_until_seen(view: View, key: int) -> float:
    began = time.perf_counter()
    while view.get(key) is None:
        if time.perf_counter() - began > _PATIENCE_SECONDS:
            raise NeverSeen(f"put {key} is not in the view after {_PATIENCE_SECONDS} s")
        time.sleep(_POLL_SECONDS)
    return time.perf_counter() - began
