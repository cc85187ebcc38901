"""Batches: what a scan returns, as Arrow tables of some thousand rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def limited(tables: Iterable[pa.Table], limit: int | None) -> Iterator[pa.Table]:
    """The first `limit` rows of the tables, and no table without rows."""
    left = limit
    for table in tables:
        if left is not None:
            table = table.slice(0, left)
            left -= len(table)
        if len(table):
            yield table
        if left == 0:
            return
