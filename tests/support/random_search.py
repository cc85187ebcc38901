"""Random search: many sets of random views over wide worlds, on all cores, with a summary.

In: `python -m tests.support.random_search --count 3000 --first 1`. Out: how many sets ran, what they contained, and each that
was wrong or stopped with its seed; exit code 1 if there is one. Always: seeds replay.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.support.random_plans import RandomOracle, plan_wide_world
from tests.support.random_worlds import RandomWorld, Tally

_ORACLES: list[RandomOracle] = []  # one for each process


def run_wide_world(seed: int) -> tuple[int, str, Tally]:
    """Run the world of a seed; returns the seed, what went wrong, if anything, and what the world contained."""
    if not _ORACLES:
        _ORACLES.append(RandomOracle())
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        try:
            world = RandomWorld(Path(folder) / "world", plan_wide_world(seed, _ORACLES[0]), _ORACLES[0], tally)
            try:
                world.run()
            finally:
                world.db.close()
        except Exception:
            return seed, traceback.format_exc(limit=-3), tally
    return seed, "", tally


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.random_search")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    asked = parser.parse_args(arguments)
    whole, failed, seen = Tally(), dict[int, str](), Counter[str]()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=200) as pool:
        seeds = range(asked.first, asked.first + asked.count)
        for done, (seed, error, tally) in enumerate(pool.imap_unordered(run_wide_world, seeds, chunksize=4), 1):
            for name in ("worlds", "views", "joins", "nested", "non_empty", "refused", "comparisons"):
                setattr(whole, name, getattr(whole, name) + getattr(tally, name))
            whole.features.update(tally.features)
            whole.events.update(tally.events)
            seen["optimized"] += tally.events["views optimized"] > 0
            if error:
                failed[seed] = error
                print(f"seed {seed}: {error}", flush=True)
            if done % 100 == 0:
                print(f"{done} of {asked.count} sets, {len(failed)} failed", flush=True)
    print(*whole.lines(), sep="\n")
    print(
        f"{asked.count} sets, {seen['optimized']} with OPTIMIZE VIEWS between epochs; failed: {sorted(failed) or 'none'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
