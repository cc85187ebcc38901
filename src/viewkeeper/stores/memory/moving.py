"""Moving in memory: slots and their rows from one node to another.

In: the contents of a store, two nodes and slots. Out: the rows at the other node, and an entry in both logs. Always: under
the store's lock from beginning to end, so nobody sees half of it.
"""

from __future__ import annotations

import time
from dataclasses import replace

from viewkeeper.errors import StoreBusy
from viewkeeper.stores.memory.contents import Contents
from viewkeeper.stores.placement import Intent, is_filling, listed

_PIECE_SLOTS = 64
_BUSY_SECONDS = 60.0
_POLL_SECONDS = 0.005


def move(contents: Contents, slots: int, source: int, target: int) -> int:
    """Move slots and their rows; returns how many rows."""
    moved, until, left = 0, time.monotonic() + _BUSY_SECONDS, listed(slots)
    while left:
        piece, count = sum(1 << slot for slot in left[:_PIECE_SLOTS]), None
        with contents.lock:
            if not is_filling(contents.meta.read_epoch_record()):
                count = _move(contents, piece, source, target)
        if count is not None:
            moved, left = moved + count, left[_PIECE_SLOTS:]
        elif time.monotonic() > until:
            raise StoreBusy("views are being filled, and no row may move meanwhile", "let the pipeline fill them first")
        else:
            time.sleep(_POLL_SECONDS)
    return moved


def _move(contents: Contents, slots: int, source: int, target: int) -> int:
    here, there, known = contents.nodes[source], contents.nodes[target], contents.meta.read_placement()
    floor = max(here.log_end().stamp, there.log_end().stamp, *(done.arrived for done in known.moves), 0)
    stamp, after = max(floor + 1, contents.now()), here.end()
    rows = here.rows_in(slots)
    there.move(rows, slots, stamp, arrive=True)
    position = here.move(rows, slots, stamp, arrive=False)
    intent = Intent(slots, source, target, after, stamp, stamp)
    committed = contents.meta.read_epoch_record().positions
    later = tuple(done for done in known.moves if not done.is_in(committed))
    contents.meta.change_placement(lambda placement, _: replace(placement, moves=later).moved(intent, position))
    return sum(map(len, rows.values()))
