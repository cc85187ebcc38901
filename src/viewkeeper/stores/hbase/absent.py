"""What a store in HBase does not do yet: the log of base tables, and the upkeep of the store as a whole.

In: anything. Out: NotOffered, which names another way. Always: nothing was done. The parts that will do it take the place
of these classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from viewkeeper.errors import NotOffered

if TYPE_CHECKING:
    import pyarrow as pa

    from viewkeeper.model.positions import Cut, Position, Positions, Stream, Waiting
    from viewkeeper.ports.nodes import Altered, NodeFacts
    from viewkeeper.ports.upkeep import Backup, Progress


class NoLog:
    """The port `LogSource`."""

    def ends(self) -> Positions:
        return {}

    def cut(self, start: Positions, *, changes_max: int, bytes_max: int) -> Cut:
        _refuse_log()

    def log_bytes(self, start: Positions, stop: Positions) -> int:
        _refuse_log()

    def waiting(self, start: Positions) -> Waiting:
        _refuse_log()

    def pieces(self, stream: Stream, start: Position, stop: Position, *, count: int) -> list[Position]:
        _refuse_log()

    def log_entries(self) -> int:
        _refuse_log()

    def checksums(self, positions: Positions) -> dict[Stream, int]:
        _refuse_log()

    def read_log(self, stream: Stream, start: Position, stop: Position) -> Iterator[tuple[int, pa.RecordBatch]]:
        _refuse_log()

    def truncate_log(self, positions: Positions, *, older_than_seconds: float, entries_max: int) -> int:
        _refuse_log()


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

    def bytes_used(self) -> int:
        _refuse("the size of a store in HBase is not measured", "ask HBase for the sizes of its tables")

    def clear_stale_readers(self) -> int:
        return 0

    def warnings(self) -> tuple[str, ...]:
        return ()

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        _refuse("a store in HBase is not backed up from here", "use HBase's snapshots")

    def alone(self) -> AbstractContextManager[None]:
        _refuse("a store in HBase is never had alone", "use HBase's own tools")

    def compact(self, progress: Progress | None = None) -> None:
        _refuse("a store in HBase is not compacted from here", "HBase compacts its tables by itself")


def _refuse_log() -> NoReturn:
    _refuse("changes of a store in HBase are not read yet", "use a store at embedded:PATH")


def _refuse(fact: str, hint: str) -> NoReturn:
    raise NotOffered(fact, hint)
