"""A node in memory: base rows and their log.

In: groups of writes. Out: the position of the last change. Always: rows and their log entries appear together or not at
all; rows are maps that never change, so readers need no lock. A writer, or a reader of the log, holds the store's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from viewkeeper.model.positions import Position, Stream
from viewkeeper.model.writes import Image, RowWrites
from viewkeeper.stores.limits import LIMITS
from viewkeeper.stores.logformat import Changes, entries_of
from viewkeeper.stores.memory.log import Log
from viewkeeper.stores.memory.pairs import Pairs

Tables = dict[int, Pairs]  # replaced, never changed
NO_PAIRS = Pairs()


class Node:
    """One stream of the store."""

    def __init__(self, number: int, *, before_images: bool) -> None:
        self.stream = Stream(str(number))
        self.log = Log(number)
        self.rows: Tables = {}
        self._before_images = before_images

    def write(self, groups: Sequence[RowWrites], clock: Callable[[], int]) -> Position:
        """Write all groups or none. A write that changes nothing leaves no change in the log."""
        rows, size = dict(self.rows), 0
        applied: list[Changes] = []
        for group in groups:
            pairs = rows.get(group.table, NO_PAIRS)
            befores = [pairs.get(key) for key in group.keys]
            afters = group.merge(befores)
            size += LIMITS.require_room(befores, afters)
            changed = [i for i, (before, after) in enumerate(zip(befores, afters, strict=True)) if before != after]
            keys = [group.keys[i] for i in changed]
            told: list[Image] = [befores[i] if self._before_images else None for i in changed]
            news = [afters[i] for i in changed]
            rows[group.table] = pairs.changed(dict(zip(keys, news, strict=True)))
            applied.append((group.table, keys, told, news))
        if len(groups) > 1:
            LIMITS.require_transaction(size)
        self.log.append(list(entries_of(applied, LIMITS.entry)), clock())
        self.rows = rows
        return self.log.end
