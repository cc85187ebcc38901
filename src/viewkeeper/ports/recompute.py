"""Recompute: the port through which a check has a view computed anew by another engine."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class Base:
    """A base table as SQL reads it: under a name, and without the rows of some keys."""

    name: str
    table: TableSchema
    without: frozenset[bytes] = frozenset()


class Recompute(Protocol):
    """Batch SQL over base tables as of a moment."""

    def run(self, sql: str, bases: Sequence[Base], moment: Moment) -> pa.Table:
        """The answer of Spark SQL text over base tables as of a moment."""
        ...
