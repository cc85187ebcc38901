"""What a store in HBase does not do, because HBase does: adding servers, and the upkeep of the store as a whole.

In: anything. Out: NotOffered, which names HBase's own way. Always: nothing was done.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from viewkeeper.errors import NotOffered

if TYPE_CHECKING:
    from viewkeeper.model.positions import Positions
    from viewkeeper.ports.nodes import Altered, NodeFacts
    from viewkeeper.ports.upkeep import Backup, Progress


class NoNodes:
    """The port `Nodes`: HBase has its own."""

    def add_node(self) -> Altered:
        _refuse("HBase adds and removes servers by itself", "start a region server")

    def remove_node(self, number: int) -> Altered:
        _refuse("HBase adds and removes servers by itself", "stop a region server")

    def retire_nodes(self, positions: Positions, *, older_than_seconds: float) -> int:
        return 0

    def node_facts(self) -> tuple[NodeFacts, ...]:
        return ()


class LittleUpkeep:
    """Of the port `Upkeep` what HBase does with its own tools."""

    def clear_stale_readers(self) -> int:
        return 0

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        _refuse("a store in HBase is not backed up from here", "use HBase's snapshots")

    def alone(self) -> AbstractContextManager[None]:
        _refuse("a store in HBase is never had alone", "use HBase's own tools")

    def compact(self, progress: Progress | None = None) -> None:
        _refuse("a store in HBase is not compacted from here", "HBase compacts its tables by itself")


def _refuse(fact: str, hint: str) -> NoReturn:
    raise NotOffered(fact, hint)
