"""`make soak-services`: a soak over a real HBase from the command line; the exit code is 0 only if nothing was wrong."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.hbase_soak.run import BIG_ROWS, Asked, soak
from tests.support.services.__main__ import FOLDER
from tests.support.services.failure import ServicesFailed
from tests.support.services.hbase import Cluster, free_port_base, started

SEEDS = 1_000_000_000
SERVERS = {"region_servers": 3, "thrift_servers": 2}


@contextmanager
def running() -> Iterator[Cluster]:
    """The HBase of `make services`, if it runs and can lose a region server; else one of our own."""
    found = Cluster.find(FOLDER, tell=_tell)
    if found and found.running() and found.layout.region_servers > 1:
        found.start()
        yield found
        return
    with tempfile.TemporaryDirectory(prefix="viewkeeper-soak-") as folder:
        with started(Path(folder) / "hbase", port_base=free_port_base(), tell=_tell, **SERVERS) as cluster:
            yield cluster


def _tell(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.hbase_soak")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule and the writers; a new one if left out")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--big-rows", type=int, default=BIG_ROWS, help="of the table that is staged under writers")
    asked = parser.parse_args()
    seed = random.randrange(SEEDS) if asked.seed is None else asked.seed
    _tell(f"seed {seed}, {asked.minutes:g} minutes")
    try:
        with running() as cluster:
            summary = soak(cluster, Asked(seed, minutes=asked.minutes, big_rows=asked.big_rows), _tell)
    except ServicesFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    _tell(summary.text())
    return int(bool(summary.violation))


if __name__ == "__main__":
    sys.exit(main())
