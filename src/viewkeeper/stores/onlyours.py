"""Only ours: a store that nobody else writes to.

In: anything. Out: nothing. Always: every change of its base tables is in its log, and records are kept once, for us alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from viewkeeper.model.positions import Positions
from viewkeeper.ports.reads import WrongColumns


class OnlyOurs:
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
