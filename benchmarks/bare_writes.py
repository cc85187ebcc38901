"""Bare writes: what it costs LMDB by itself to change records of a table, whatever the records mean.

In: how many records there are, and the numbers of those that change. Out: microseconds for each of them. Always: a record is
about as long as one of V3's view; all changes are one synced transaction in the order of the keys, each a get and a put
by one cursor; the first run, which finds cold pages, does not count.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import lmdb
import numpy as np

from benchmarks.results import median

_RECORD = b"v" * 60
_MAP_BYTES = 1 << 40


def microseconds_per_record(folder: Path, rows: int, changed: Sequence[np.ndarray]) -> float:
    """The median over the runs, of which each changes its own records; the first one is a warm-up."""
    took = []
    with lmdb.open(str(folder), map_size=_MAP_BYTES) as environment:
        with environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(((b"k%09d" % number, _RECORD) for number in range(rows)), append=True)
        for numbers in changed:
            keys = [b"k%09d" % number for number in np.sort(numbers).tolist()]
            began = time.perf_counter()
            with environment.begin(write=True) as transaction:
                cursor = transaction.cursor()
                for key in keys:
                    cursor.put(key, cursor.get(key)[::-1])
            took.append((time.perf_counter() - began) / len(keys) * 1e6)
    return median(took[1:], 2)
