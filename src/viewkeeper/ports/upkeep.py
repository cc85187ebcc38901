"""Upkeep: the port to a store as a whole: its clock, its size, backups and compaction.

What a store has no way to do raises NotOffered, and names one that has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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
    """What a compaction did: the size of all data files before and after, and how many log entries went first."""

    bytes_before: int
    bytes_after: int
    log_entries: int


class Upkeep(Protocol):
    """What an operator asks of a store."""

    def now(self) -> int:
        """Nanoseconds on the store's clock: monotonic, the same in all processes."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What an operator should know of how the store was opened or made."""
        ...

    def bytes_used(self) -> int:
        """About how many bytes the store takes."""
        ...

    def clear_stale_readers(self) -> int:
        """Let go of what readers held that were killed; returns how many there were."""
        ...

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        """The whole store as of one moment, in a new directory."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Within the block nobody else has the store open, and no pipeline runs; StoreInUse if one does."""
        ...

    def compact(self, progress: Progress | None = None) -> None:
        """Give back the space that is free inside the store; only within `alone`."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...
