"""Store: all that the pipeline, clients and operators need of a key-value store, and the engines beside it.

In: requests of the small ports of this package, which `Store` combines. Out: what those ports promise. Always: the URL
travels to executors, never a client. An executor opens the same store by its URL and returns bytes; a piece of work may
be done twice, or partly, and again by the caller. A check has a view recomputed by another engine through `Recompute`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from viewkeeper.model.schema import Column
from viewkeeper.ports.admin import Nodes, Upkeep
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

        That is where nobody is there, or it is too little for that: about so many rows to copy, bytes of a log to read. An
        error of ours is raised as it was there; where anything else failed the caller meets it, if it is still so.
        """
        ...


class Recompute(Protocol):
    """Batch SQL over tables in Parquet files; `viewkeeper_try(x)` in it is NULL where x fails."""

    def register(self, name: str, columns: Sequence[Column], file: Path) -> None:
        """Make columns of a file readable in SQL as the table `name`."""
        ...

    def answer(self, sql: str, target: Path, name: str | None = None) -> None:
        """Write the result of Spark SQL text as Parquet files in `target`, readable in SQL as `name` if one is given.

        May be called by several threads at once. Raises EpochFailed where there is no result, and InputError where it
        was cancelled.
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
    poll_seconds: float  # how often a waiting reader may look at the horizon
    epoch_seconds: float = (
        0.05  # how long changes gather before the next epoch: what serves epochs may serve writers too
    )


class Store(LogSource, VersionedTables, BaseTables, Nodes, Reads, Meta, Upkeep, Protocol):
    """An open store."""

    @property
    def url(self) -> str: ...

    @property
    def incarnation(self) -> str:
        """Identifies the store: one that is made anew or restored under the same URL has another."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether it can be written from here, by any process that has it open."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def use_executor(self, spread: Executor | None) -> None:
        """From here on, have work that grows with the data done by `spread`; None: by this process."""
        ...
