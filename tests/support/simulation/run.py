"""Many schedules: one after the other, or on several cores, by number or by time.

In: a first seed. Out: a summary. Always: seeds in a row, so that the first one and the number tell them all; one in a hundred
is drawn twice, and both histories must be the same; what nobody foresaw is told with its seed, and ends nothing.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

from tests.support.simulation.schedule import Schedule, again
from tests.support.simulation.summary import Summary
from tests.support.simulation.world import Wrong

TWICE_EACH = 100  # of so many schedules, one is drawn twice
PIECE = 50  # schedules that a worker does at once
WRONG_MAX = 20  # after so many nobody reads on


def simulate(first: int, count: int, store: str = "", *, is_over: Callable[[], bool] = lambda: False) -> Summary:
    """The schedules of seeds in a row, in this process; over all kinds of stores in turn, or one."""
    summary = Summary()
    for seed in range(first, first + count):
        if is_over() or len(summary.violations) + len(summary.unforeseen) >= WRONG_MAX:
            break
        try:
            _simulate_one(seed, store, summary, twice=seed % TWICE_EACH == 0)
        except Wrong as error:
            summary.violations.append(str(error))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            told = f"seed {seed}: {error!r} in {where.name} ({os.path.basename(where.filename)}:{where.lineno})"
            summary.unforeseen.append(f"{told}; again: {again(seed, store)}")
    return summary


def _simulate_one(seed: int, store: str, summary: Summary, *, twice: bool) -> None:
    started = time.process_time()
    outcome = Schedule(seed, store).run()
    summary.took(outcome, time.process_time() - started)
    if twice:
        summary.counts["drawn twice"] += 1
        if Schedule(seed, store).run().history != outcome.history:
            raise Wrong(f"seed {seed} has two histories; again: {again(seed, store)}")


def simulate_on_cores(
    first: int, count: int | None, store: str = "", *, minutes: float | None, workers: int
) -> Summary:
    """On several cores: so many schedules, or as many as there is time for."""
    until = None if minutes is None else time.time() + 60 * minutes
    summary, pieces = Summary(), _pieces(first, count)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting: set[Future[Summary]] = set()
        while True:
            while len(waiting) < workers and (until is None or time.time() < until) and (piece := next(pieces, None)):
                waiting.add(pool.submit(_simulate_until, *piece, store, until))
            if not waiting:
                return summary
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for one in done:
                summary.add(one.result())
                if len(summary.violations) + len(summary.unforeseen) >= WRONG_MAX:
                    until = 0.0


def _pieces(first: int, count: int | None) -> Iterator[tuple[int, int]]:
    done = 0
    while count is None or done < count:
        size = PIECE if count is None else min(PIECE, count - done)
        yield first + done, size
        done += size


def _simulate_until(first: int, count: int, store: str, until: float | None) -> Summary:
    return simulate(first, count, store, is_over=lambda: until is not None and time.time() >= until)
