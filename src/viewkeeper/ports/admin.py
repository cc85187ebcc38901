"""Admin: the ports to a store as a whole: its nodes, clock, size, backups and compaction.

In: what an operator asks for. Out: facts of the store, and the result. Always: what a store cannot do raises
NotOffered, which names a store that can; adding or removing a node goes on where an interrupted call stopped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from viewkeeper.errors import NotOffered

_SERVERS = ("this store adds and removes servers by itself", "use its own tools; stores at embedded:PATH have nodes")


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


@dataclass(frozen=True, slots=True)
class Facts:
    """A store as it is now; `changed_outside_log`: tables whose rows changed without a log entry, when (ns), and how."""

    bytes_used: int  # about
    log_entries: int  # of all streams, as far as they have not been truncated
    warnings: tuple[str, ...] = ()  # of how it was opened or made, and of tables of its users
    nodes: tuple[NodeFacts, ...] = ()
    changed_outside_log: Mapping[int, tuple[int, str]] = field(default_factory=dict)


class Admin(ABC):
    """What an operator asks of a store."""

    @abstractmethod
    def now(self) -> int:
        """Nanoseconds on the store's clock: monotonic, the same in all processes and on all machines that use it."""

    @abstractmethod
    def facts(self) -> Facts:
        """What an operator should know of the store."""

    def note_as_logged(self, tables: Sequence[int], stamp: int) -> None:
        """Remember that a check that began at `stamp` found nothing in these tables that is not known from the log."""
        return None

    def add_node(self) -> Altered:
        """Add a node, and move its share of the rows to it, while readers and writers go on; goes on where a call stopped."""
        raise NotOffered(*_SERVERS)

    def remove_node(self, number: int) -> Altered:
        """Move all rows of a node to the others; its log is read to the end, and then it is forgotten."""
        raise NotOffered(*_SERVERS)

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        """The whole store as of one moment, in a new directory."""
        raise NotOffered(
            "ViewKeeper cannot back up this kind of store", "use its own tools; stores at embedded:PATH have backups"
        )

    def alone(self) -> AbstractContextManager[Callable[[Progress | None], None]]:
        """Within the block no other process has the store open, and no pipeline runs; it yields what frees unused space."""
        raise NotOffered("ViewKeeper cannot compact this kind of store", "it compacts by itself, or by its own tools")

    @abstractmethod
    def close(self) -> None:
        """Close the store; may be called again. From here on every member raises InputError ("closed")."""
