"""`make sim` and `make soak`: schedules from the command line; the exit code is 0 only for the verdict `valid`."""

from __future__ import annotations

import argparse
import os
import random
import sys

from tests.support.simulation.run import PIECE, simulate, simulate_on_cores
from tests.support.simulation.world import STORES

SEEDS = 1_000_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulation")
    parser.add_argument("--seed", type=int, default=None, help="of the first schedule; a new one if left out")
    parser.add_argument("--count", type=int, default=400, help="of schedules")
    parser.add_argument("--minutes", type=float, default=None, help="go on for so long, whatever the count")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--store", choices=STORES, default="", help="of all schedules; without it all in turn")
    asked = parser.parse_args()
    first = random.randrange(SEEDS) if asked.seed is None else asked.seed
    print(f"seeds from {first} on", flush=True)
    if asked.minutes is None and asked.count <= PIECE:
        summary = simulate(first, asked.count, asked.store)
    else:
        count = asked.count if asked.minutes is None else None
        summary = simulate_on_cores(first, count, asked.store, minutes=asked.minutes, workers=asked.workers)
    print(summary.text())
    return 0 if summary.verdict == "valid" else 1


if __name__ == "__main__":
    sys.exit(main())
