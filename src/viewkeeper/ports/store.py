"""Store: everything that the pipeline, clients and operators need of a key-value store.

It combines the small ports of this package. The URL travels to executors, never a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from viewkeeper.ports.log import LogSource
from viewkeeper.ports.meta import Meta
from viewkeeper.ports.nodes import Nodes
from viewkeeper.ports.reads import Reads
from viewkeeper.ports.records import VersionedTables
from viewkeeper.ports.spread import Spread
from viewkeeper.ports.tables import BaseTables
from viewkeeper.ports.upkeep import Upkeep


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

    def lend(self, spread: Spread | None) -> None:
        """From here on, have work that grows with the data done by `spread`; None: by this process."""
        ...
