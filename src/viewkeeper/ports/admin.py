"""Admin: the ports to a store as a whole: its nodes, clock, size, backups and compaction.

In: what an operator asks for. Out: facts of the store, and the result. Always: what a store cannot do raises
NotOffered, which names a store that can; adding or removing a node goes on where an interrupted call stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from viewkeeper.model.positions import Positions


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node: its slots, of 256, about how many rows it has, and its state: in use, being added, being removed, removed."""

    number: int
    slots: int
    rows: int
    state: str


@dataclass(frozen=True, slots=True)
class Altered:
    """The node that was added or removed, and how many rows moved for it."""

    node: int
    rows_moved: int


class Nodes(Protocol):
    """What an operator does with nodes; each call goes on where an interrupted one stopped."""

    def add_node(self) -> Altered:
        """Add a node, and move its share of the rows to it, while readers and writers go on."""
        ...

    def remove_node(self, number: int) -> Altered:
        """Move all rows of a node to the others; its log is read to the end, and then it is forgotten."""
        ...

    def retire_nodes(self, positions: Positions, *, older_than_seconds: float) -> int:
        """Forget removed nodes whose logs are committed up to `positions`, to their ends, and old; returns how many."""
        ...

    def node_facts(self) -> tuple[NodeFacts, ...]:
        """The nodes as they are now."""
        ...


Progress = Callable[[int, int], None]  # bytes done, bytes expected


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup: where it is and what it holds. `inflight` is the epoch that a restored store finishes first."""

    path: Path
    epoch: int
    inflight: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did: the size of all data files before and after, and the log entries deleted first."""

    bytes_before: int
    bytes_after: int
    log_entries: int


class Upkeep(Protocol):
    """What an operator asks of a store."""

    def now(self) -> int:
        """Nanoseconds on the store's clock: monotonic, the same in all processes."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What an operator should know about how the store was opened or made, and about tables of its users."""
        ...

    def changed_outside_log(self) -> Mapping[int, tuple[int, str]]:
        """The base tables whose rows changed without a change in the log: when (ns) they last did, and how."""
        ...

    def keys_uncovered(self, table: int, start: Positions, stop: Positions) -> Iterator[pa.Array]:
        """Keys of rows that show something else since (start, stop] of the log, though `read_log` does not tell what."""
        ...

    def note_as_logged(self, tables: Sequence[int], stamp: int) -> None:
        """Remember that a check that began at `stamp` found nothing in these tables that is not known from the log."""
        ...

    def bytes_used(self) -> int:
        """The approximate size of the store in bytes."""
        ...

    def clear_stale_readers(self) -> int:
        """Release what killed readers held; returns how many there were."""
        ...

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        """The whole store as of one moment, in a new directory."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Within the block no other process has the store open, and no pipeline runs; StoreInUse if one does."""
        ...

    def compact(self, progress: Progress | None = None) -> None:
        """Return free space inside the store to the file system; only within `alone`."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...
