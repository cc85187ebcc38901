"""Results: what a statement returns.

In: column names and rows. Out: an iterable, printable value. Always: a statement that returns nothing has no columns,
and states in `message` what it did.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class Result:
    """Columns and rows of a statement's result."""

    columns: tuple[str, ...] = ()
    answer: tuple[tuple[object, ...], ...] | pa.Table = ()  # rows; or columns, which become rows on demand
    message: str = ""

    @cached_property
    def rows(self) -> tuple[tuple[object, ...], ...]:
        if isinstance(self.answer, tuple):
            return self.answer
        return tuple(zip(*(_values(column) for column in self.answer.columns), strict=True))

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.answer)

    def to_dicts(self) -> list[dict[str, object]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_arrow(self) -> pa.Table:
        import pyarrow as pa

        if isinstance(self.answer, pa.Table):
            return self.answer
        if not self.columns:
            return pa.table({})
        values = list(zip(*self.rows, strict=True)) if self.rows else [()] * len(self.columns)
        return pa.table([pa.array(column) for column in values], names=list(self.columns))

    def to_pandas(self) -> pd.DataFrame:
        from viewkeeper.client.frames import arrow_to_frame

        return arrow_to_frame(self.to_arrow())


def _values(column: pa.ChunkedArray) -> list[object]:
    """Python values; a TIMESTAMP is in UTC, as in a table."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    naive = column.cast(pa.timestamp("us")).to_pylist()
    return [None if value is None else value.replace(tzinfo=dt.UTC) for value in naive]
