"""Recompute: the port through which a check has a view computed anew by another engine."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from viewkeeper.model.positions import Positions
from viewkeeper.model.schema import TableSchema


class Recompute(Protocol):
    """Batch SQL over the base as of given positions."""

    def run(self, sql: str, table: TableSchema, positions: Positions) -> pa.Table:
        """The answer of Spark SQL text over one base table, whose rows are those as of `positions`."""
        ...
