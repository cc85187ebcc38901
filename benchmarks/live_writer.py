"""The writer of a live load, in a process of its own: `python -m benchmarks.live_writer URL ROWS STEP_ROWS SEED AHEAD RATE`.

In: a store's URL, sizes, and the end of the standard input, which stops it. Out: how many steps it wrote, and when each was
written. Always: it waits while more than AHEAD changes are not yet in the views, so that the pipeline always has something
to do and never too much; with a RATE it writes no more than that many changes in a second.
"""

from __future__ import annotations

import sys
import threading
import time

import viewkeeper as vk
from benchmarks.beside import tell, until_told
from benchmarks.live_load import LiveLoad

_PAUSE_SECONDS = 0.005


def main(url: str, rows: str, step_rows: str, seed: str, ahead: str, rate: str) -> None:
    load = LiveLoad(int(rows), int(step_rows), int(seed))
    with vk.connect(url) as db:
        first = int(db.view("v2").to_arrow()["hi"].to_pandas().max()) + 1  # a store that was used before goes on
        tell(write(db, load, first, int(ahead), float(rate), until_told()))


def write(
    db: vk.Database, load: LiveLoad, first: int, ahead: int, rate: float, is_over: threading.Event
) -> dict[str, object]:
    table, number, changes = db.table("r"), first, 0
    moments: list[float] = []
    sizes: list[int] = []
    began = time.monotonic()
    while not is_over.is_set():
        is_early = rate and changes / rate > time.monotonic() - began
        if is_early or db.store.describe(db.store.read_epoch_record().positions).changes > ahead:
            is_over.wait(_PAUSE_SECONDS)
            continue
        rows = load.written(number)
        table.put_many(rows)
        moments.append(time.monotonic())
        sizes.append(len(rows))
        number, changes = number + 1, changes + len(rows)
    return {"last": number - 1, "moments": moments, "changes": sizes}


if __name__ == "__main__":
    main(*sys.argv[1:])
