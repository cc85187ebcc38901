"""What a store in HBase does not do yet: base tables, their log, and the upkeep of the store as a whole.

In: anything. Out: NotOffered, which names another way. Always: nothing was done. The parts that will do it take the place
of these classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from viewkeeper.errors import NotOffered

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from viewkeeper.model.fills import Borders
    from viewkeeper.model.positions import Positions, Stream
    from viewkeeper.model.writes import Image, RowWrites
    from viewkeeper.ports.nodes import Altered, NodeFacts
    from viewkeeper.ports.tables import HeldRows
    from viewkeeper.ports.upkeep import Backup, Progress


class NoBaseTables:
    """The port `BaseTables`."""

    def write(self, writes: Sequence[RowWrites]) -> Positions:
        _refuse_rows()

    def write_if(self, writes: RowWrites, is_expected: Callable[[Image], bool]) -> Positions | None:
        _refuse_rows()

    def together(self, keys: Sequence[bytes]) -> list[np.ndarray]:
        _refuse_rows()

    def get(self, table: int, key: bytes) -> Image:
        _refuse_rows()

    def get_many(self, table: int, keys: Sequence[bytes]) -> list[Image]:
        _refuse_rows()

    def scan(
        self, table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        _refuse_rows()

    def hold_rows(self) -> HeldRows:
        _refuse_rows()

    def moves_after(self, stamp: int) -> bool:
        _refuse_rows()

    def parts(self, table: int) -> Sequence[int]:
        _refuse_rows()

    def part_of(self, stream: Stream) -> int:
        _refuse_rows()

    def scan_as_of(
        self, table: int, part: int, positions: Positions, low: bytes = b"", high: bytes | None = None
    ) -> Iterator[pa.RecordBatch]:
        _refuse_rows()

    def row_borders(
        self, table: int, part: int, after: bytes, *, rows_max: int, bytes_max: int, pieces: int
    ) -> Borders:
        _refuse_rows()

    def count_rows(self, table: int) -> int:
        _refuse_rows()

    def drop_rows(self, table: int) -> None:
        _refuse_rows()


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

    def warnings(self) -> tuple[str, ...]:
        return ()

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        _refuse("a store in HBase is not backed up from here", "use HBase's snapshots")

    def alone(self) -> AbstractContextManager[None]:
        _refuse("a store in HBase is never had alone", "use HBase's own tools")

    def compact(self, progress: Progress | None = None) -> None:
        _refuse("a store in HBase is not compacted from here", "HBase compacts its tables by itself")


def _refuse_rows() -> NoReturn:
    _refuse("base tables in HBase are not offered yet", "use a store at embedded:PATH")


def _refuse(fact: str, hint: str) -> NoReturn:
    raise NotOffered(fact, hint)
