"""Compacting: removes what is no longer needed, then returns its space.

In: a database that no other process has open. Out: sizes before and after. Always: a kill at any moment leaves a whole
store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from viewkeeper.coordinator.gc import collect_all_garbage
from viewkeeper.ports.upkeep import Compacted

if TYPE_CHECKING:
    from viewkeeper.client.database import Database


def compact(database: Database, progress: Callable[[int, int], None] | None) -> Compacted:
    """Compact the store."""
    database.require_writable()
    store = database.store
    with store.alone():
        before = store.bytes_used()
        entries = collect_all_garbage(store)
        store.compact(progress)
        database.forget_catalog()  # the new files count changes from 1
        return Compacted(before, store.bytes_used(), entries)
