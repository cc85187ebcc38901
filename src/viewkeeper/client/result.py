"""Results: what a statement returns, and what each committed epoch did to the records of a view.

In: column names and rows; the steps of records, and the epochs asked for. Out: an iterable, printable value; changes
ordered by epoch and key. Always: a statement that returns nothing has no columns, and states in `message` what it did. A
version that shows a reader nothing new is no change, nor is one of an epoch that was aborted or not committed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from viewkeeper.errors import ChangesLost, InputError
from viewkeeper.model.stored_values import are_stored_alike

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from viewkeeper.model.read_frontier import ReadTimestamp, RecordChange


Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """One record in one epoch: `before` is None if it was inserted, `after` if it was deleted."""

    epoch: int
    key: tuple[object, ...]
    before: Row | None
    after: Row | None


class Changes:
    """The changes of the epochs after `since` up to `epoch`; ask next time with `since=changes.epoch`."""

    def __init__(
        self, since: int, epoch: int, steps: list[RecordChange], decode: Callable[[RecordChange], Change]
    ) -> None:
        self.since = since
        self.epoch = epoch
        self._steps = steps
        self._decode = decode

    def __iter__(self) -> Iterator[Change]:
        for change in map(self._decode, self._steps):
            if not _shows_the_same(change.before, change.after):
                yield change


def require_kept(label: str, since: object, moment: ReadTimestamp, filled: int) -> int:
    """`since`, if all changes after it are still kept at `moment`."""
    if not isinstance(since, int) or isinstance(since, bool) or since < 0:
        raise InputError(f"since={since!r} is not an epoch", "pass the epoch of a snapshot, or of earlier changes")
    if since > moment.epoch:
        raise InputError(f"epoch {since} is not committed yet, {moment.epoch} is", "pass an epoch that was read")
    # a backfill does not show which records readers may have seen before the view was filled anew
    oldest = max(moment.frontier.floor, filled)
    if since < oldest:
        raise ChangesLost(
            f"the changes of {label} since epoch {since} are no longer all there",
            f"scan the view instead; changes may be asked for since epoch {oldest}",
        )
    return since


def _shows_the_same(before: Row | None, after: Row | None) -> bool:
    if before is None or after is None:
        return before is after
    return all(are_stored_alike(after[name], value) for name, value in before.items())


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
        from viewkeeper.client.arrow import arrow_to_frame

        return arrow_to_frame(self.to_arrow())


def _values(column: pa.ChunkedArray) -> list[object]:
    """Python values; a TIMESTAMP is in UTC, as in a table."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return column.to_pylist()
    naive = column.cast(pa.timestamp("us")).to_pylist()
    return [None if value is None else value.replace(tzinfo=dt.UTC) for value in naive]
