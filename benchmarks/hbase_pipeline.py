"""The pipeline over HBase in a process of its own, to be stopped or killed: `python -m benchmarks.hbase_pipeline URL`.

In: a store's URL; the end of the standard input stops it. Out: `ready` when it owns the store; for each commit a line of
JSON with the moment and the changes. Always: it takes the store over from whoever had it, and runs as `viewkeeper run`
does under `nice -n 19`; the kernel may weigh sessions instead of threads (autogroups), so its session has that priority too.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import viewkeeper as vk
from benchmarks import beside
from viewkeeper.events import Committed, Event

_LOWEST = 19


def main(arguments: list[str]) -> int:
    def listen(event: Event) -> None:
        if isinstance(event, Committed):
            beside.tell({"moment": time.monotonic(), "changes": event.changes})

    os.setsid()
    os.nice(_LOWEST)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_LOWEST))
    with vk.connect(arguments[0]) as db, db.pipeline(take_over=True, events=listen) as pipeline:
        pipeline.start()
        beside.until_told().wait()
        pipeline.stop()
        pipeline.run_available()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
