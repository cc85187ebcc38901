"""The pipeline over HBase in a process of its own, to be killed: `python -m benchmarks.hbase_pipeline URL`.

In: a store's URL; the end of the standard input stops it. Out: `ready` when it owns the store; for each commit a line of
JSON with the moment and the changes. Always: it takes the store over from whoever had it; a failure that passes is told
and tried again.
"""

from __future__ import annotations

import sys
import time

import viewkeeper as vk
from benchmarks import beside
from viewkeeper.errors import StoreUnavailable
from viewkeeper.events import Committed, Event

_POLL_SECONDS = 0.05


def main(arguments: list[str]) -> int:
    def listen(event: Event) -> None:
        if isinstance(event, Committed):
            beside.tell({"moment": time.monotonic(), "changes": event.changes})

    with vk.connect(arguments[0]) as db, db.pipeline(take_over=True, events=listen) as pipeline:
        is_over = beside.until_told()
        while not is_over.wait(_POLL_SECONDS):
            try:
                pipeline.run_available()
            except StoreUnavailable as error:
                print(error, file=sys.stderr)
        pipeline.run_available()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
