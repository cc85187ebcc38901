"""Recompute: the port through which a check has a view computed anew by another engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from viewkeeper.model.positions import Positions
from viewkeeper.model.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Moment:
    """A committed state of the store: its epoch, the positions of the base that it holds, and the void epochs."""

    epoch: int
    positions: Positions
    void: tuple[int, ...]


class Recompute(Protocol):
    """Batch SQL over the base as of a moment."""

    def run(self, sql: str, table: TableSchema, moment: Moment, without: frozenset[bytes] = frozenset()) -> pa.Table:
        """The answer of Spark SQL text over one base table as of a moment, without the rows of the given keys."""
        ...
