"""Not offered: the methods of the ports that a kind of store has no use for.

In: anything. Out: nothing, or NotOffered with the store's own way. Always: nothing was done. `SoleWriter` is for stores
that nobody else writes to: every change of their base tables is in their log. The others are for HBase, which adds
servers and keeps up its tables by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from viewkeeper.errors import NotOffered
from viewkeeper.model.positions import Positions
from viewkeeper.ports.records import WrongColumns

if TYPE_CHECKING:
    from viewkeeper.ports.admin import Altered, Backup, NodeFacts, Progress


class SoleWriter:
    """What the ports `Reads`, `Upkeep` and `VersionedTables` ask because of those who write to a store past ViewKeeper."""

    def wrong_columns(self, table: int) -> Iterator[WrongColumns]:
        return iter(())

    def distrust(self, tables: Sequence[int]) -> None:
        pass

    def changed_outside_log(self) -> dict[int, tuple[int, str]]:
        return {}

    def keys_uncovered(self, table: int, start: Positions, stop: Positions) -> Iterator[pa.Array]:
        return iter(())

    def note_as_logged(self, tables: Sequence[int], stamp: int) -> None:
        pass


class NodesNotOffered:
    """The port `Nodes`: HBase has its own."""

    def add_node(self) -> Altered:
        _refuse("HBase adds and removes servers by itself", "start a region server")

    def remove_node(self, number: int) -> Altered:
        _refuse("HBase adds and removes servers by itself", "stop a region server")

    def retire_nodes(self, positions: Positions, *, older_than_seconds: float) -> int:
        return 0

    def node_facts(self) -> tuple[NodeFacts, ...]:
        return ()


class UpkeepNotOffered:
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
