"""Store: all that the pipeline, clients and operators need of a key-value store, and the engines beside it.

In: requests of the small ports of this package, which `Store` combines. Out: what those ports promise. Always: the URL
travels to executors, never a client; a piece of their work may be done twice, or partly, and again by the caller.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from viewkeeper.model.schema import Column
from viewkeeper.ports.admin import Admin
from viewkeeper.ports.base_rows import BaseTables
from viewkeeper.ports.log import LogSource
from viewkeeper.ports.meta import Meta
from viewkeeper.ports.records import Reads, VersionedTables

Piece = TypeVar("Piece")
Opened = TypeVar("Opened")


class Executor(Protocol):
    """Processes that open the same store by its URL, if there are any."""

    def __call__(
        self, work: Callable[[Opened, Piece], bytes], pieces: Sequence[Piece], *, rows: int = 0, log_bytes: int = 0
    ) -> list[bytes] | None:
        """`work(store, piece)` for each piece, in their order; None: the caller does it.

        That is where no executor is there, or the work is too little: about so many rows to copy, bytes of a log to read. An
        error of ours is raised as it was there; after any other failure the caller does the work, and may meet it too.
        """
        ...


class Recompute(Protocol):
    """Batch SQL over tables in Parquet files; `viewkeeper_try(x)` in it is NULL where x fails."""

    def register(self, name: str, columns: Sequence[Column], file: Path) -> None:
        """Make columns of a file readable in SQL as the table `name`."""
        ...

    def answer(self, sql: str, target: Path, name: str | None = None) -> None:
        """Write the result of Spark SQL text to Parquet files in `target`, readable in SQL as `name` if one is given.

        Several threads may call it at once. EpochFailed where there is no result, ReadError where it was cancelled.
        """
        ...

    def cancel(self) -> None:
        """Cancel running queries."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do; view programs and planner ask here, never by name."""

    before_images: bool  # a new table gets no DELTA, because the log holds the old rows
    atomic_group: Literal["node", "row"]  # what a group of writes may touch
    held_reads: bool  # held records stay readable after they were purged or dropped
    many_processes: bool  # others reach the store by its URL, Spark's workers among them
    is_writable: bool  # from here, by any process that has it open
    poll_seconds: float  # how often a waiting reader may look at the read frontier
    # how long changes gather before the next epoch: what serves epochs may serve writers too
    epoch_seconds: float = 0.05
    bytes_moved: float = 1.0  # for each byte of a record that is written: by logs, replicas and compactions


class Store(LogSource, VersionedTables, BaseTables, Reads, Meta, Admin):
    """An open store.

    `Adapter(url, *, create, read_only)` opens one; with `create` it makes one where there is none: a new incarnation,
    `EpochRecord.first`, and an empty catalog. `docs/new-store.md` has what an adapter writes.
    """

    @property
    @abstractmethod
    def url(self) -> str:
        """Opens the same store again, with the same options."""

    @property
    @abstractmethod
    def incarnation(self) -> str:
        """Identifies the store: one that is made anew or restored under the same URL has another."""

    def is_current(self) -> bool:
        """Whether it is the store that is at its URL; False when that was removed, replaced or restored since."""
        return True

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can do; the same as long as it is open."""

    def use_executor(self, spread: Executor | None) -> None:
        """From here on, have work that grows with the data done by `spread`; None: by this process."""
        return None
