"""Fills: how far a backfill has come, from rows that existed before the views (`docs/epochs.md`, R12).

In: borders between keys. Out: frozen values of the epoch record. Always: a fill goes through each part of its source in
key order; a part is a stream of the base table, or a partition of its DELTA or of a node. Rows at or below the cursor
are in the views and maintained by changes; rows above it are not in them yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

START = b""  # below every key
Border = bytes | None  # None is after every key


@dataclass(frozen=True, slots=True)
class Borders:
    """Keys that cut the next rows of a part in pieces, and how many rows and bytes these are.

    The rows begin after the first key; the last key is None when the part ends there.
    """

    keys: tuple[Border, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that one epoch brings into views: for each part that is not done, borders low < … <= high.

    `tables` are the backfills. A high of None is the end of the part. `rows` and `bytes` are those of the chunk,
    `total` is the approximate number of rows of the source.
    """

    source: int
    tables: tuple[int, ...]
    borders: dict[int, tuple[Border, ...]]
    rows: int
    bytes: int
    total: int
    opens: bool  # the first of its source


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """A view that is being filled: for each source the cursors of unfinished parts; rows done, of about how many.

    All sources are listed from the first chunk on, so a view is filled when none has a cursor left.
    """

    cursors: dict[int, dict[int, bytes]]
    rows: int
    total: int

    @property
    def is_done(self) -> bool:
        return not any(self.cursors.values())


def advance(before: BackfillProgress | None, chunk: Chunk) -> BackfillProgress:
    """The progress after a committed chunk."""
    was = before or BackfillProgress({}, 0, 0)
    cursors = {part: keys[-1] for part, keys in chunk.borders.items() if keys[-1] is not None}
    total = was.total + (chunk.total if chunk.opens else 0)
    rows = was.rows + chunk.rows
    return BackfillProgress(was.cursors | {chunk.source: cursors}, rows, max(total, rows))


def with_chunks(filling: Mapping[int, BackfillProgress], chunks: Iterable[Chunk]) -> dict[int, BackfillProgress]:
    """The progress of all backfills while an epoch with these chunks is under way: its sources count, its rows do not yet."""
    found = dict(filling)
    for chunk in chunks:
        for table in chunk.tables:
            was = found.get(table, BackfillProgress({}, 0, 0))
            found[table] = replace(was, total=was.total + (chunk.total if chunk.opens else 0))
    return found
