"""Positions: how far something has come, in the streams of a log or in a backfill (`docs/epochs.md`, R12).

In and out: numbers with names, tokens that go to a string and back, and cursors of backfills. Always: positions are ordered
within their stream, but their difference means nothing. A token belongs to one incarnation of one store (R19) and is
refused by any other. A backfill goes through each part of its source in key order; a part is a stream of the base table, or
a partition of its DELTA or of a node. Rows at or below the cursor are in the views and maintained by changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NewType
from urllib.parse import quote, unquote

from viewkeeper.errors import ForeignToken, InputError

Stream = NewType("Stream", str)
Position = NewType("Position", int)
Positions = dict[Stream, Position]


@dataclass(frozen=True, slots=True)
class Cut:
    """One state of the whole base: the last position of each stream up to the instant `stamp` (nanoseconds).

    `staged` are the chunks of foreign rows that come with it; `changes` counts these and the changes since the given start.
    """

    positions: Positions
    stamp: int
    changes: int
    staged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogRange:
    """The changes in a range of a log: count, bytes, stamp of the oldest; `has_changes` may be true before it is known."""

    changes: int = 0
    bytes: int = 0
    oldest: int | None = None
    has_changes: bool = False


def covers(positions: Positions, others: Positions) -> bool:
    """Whether `positions` are at or after `others` in every stream."""
    return all(positions.get(stream, 0) >= position for stream, position in others.items())


def positions_to_json(positions: Positions) -> dict[str, int]:
    return dict(sorted(positions.items()))


def positions_from_json(value: dict[str, int]) -> Positions:
    return {Stream(stream): Position(position) for stream, position in value.items()}


@dataclass(frozen=True, slots=True)
class Token:
    """Positions that cover the writes it represents; `|` of two tokens represents the writes of both."""

    incarnation: str
    positions: Positions = field(default_factory=dict)

    def __or__(self, other: Token) -> Token:
        if other.incarnation != self.incarnation:
            raise ForeignToken(
                "the tokens belong to different stores", "combine tokens of one store; a restore makes another store"
            )
        streams = self.positions.keys() | other.positions.keys()
        most = {s: max(self.positions.get(s, Position(0)), other.positions.get(s, Position(0))) for s in streams}
        return Token(self.incarnation, most)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        pairs = [f"{quote(stream, safe='/')}={position}" for stream, position in sorted(self.positions.items())]
        return f"vk1:{self.incarnation}:{','.join(pairs)}"

    @staticmethod
    def parse(text: str) -> Token:
        try:
            form, incarnation, listed = text.strip().split(":")
            pairs = (item.split("=") for item in listed.split(",") if item)
            positions = {Stream(unquote(stream)): Position(int(position)) for stream, position in pairs}
        except ValueError:
            form = ""
        if form != "vk1" or "" in positions:
            raise InputError(f"{text[:60]!r} is not a token", "pass what put, delete or put_many returned")
        return Token(incarnation, positions)

    def is_covered_by(self, incarnation: str, positions: Positions) -> bool:
        """Whether a state at `positions` includes everything the token represents."""
        if incarnation != self.incarnation:
            hint = "use a token of a write to this store, or read without one"
            raise ForeignToken("the token belongs to another store, or to this one before it was restored", hint)
        return covers(positions, self.positions)


def part_of(stream: Stream) -> int:
    """The part of the base rows whose changes a stream holds, where the log has before-images."""
    return int(stream)


START = b""  # below every key
SplitPoint = bytes | None  # None is after every key


@dataclass(frozen=True, slots=True)
class SplitPoints:
    """Keys that cut the next rows of a part in pieces, and their rows and bytes; the last is None at the part's end."""

    keys: tuple[SplitPoint, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that one epoch brings into views: for each part that is not done, borders low < … <= high, or None at its end.

    `tables` are the backfills. `rows` and `bytes` are of the chunk, `total` is the approximate count of the source's rows.
    """

    source: int
    tables: tuple[int, ...]
    borders: dict[int, tuple[SplitPoint, ...]]
    rows: int
    bytes: int
    total: int
    opens: bool  # the first of its source


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """A view that is being filled: for each source the cursors of unfinished parts; rows done, of about how many."""

    cursors: dict[int, dict[int, bytes]]
    rows: int
    total: int

    @property
    def is_done(self) -> bool:
        return not any(self.cursors.values())  # all sources are there from the first chunk on


def advance(before: BackfillProgress | None, chunk: Chunk) -> BackfillProgress:
    """The progress after a committed chunk."""
    was = _begun(before, chunk)
    cursors = {part: keys[-1] for part, keys in chunk.borders.items() if keys[-1] is not None}
    rows = was.rows + chunk.rows
    return BackfillProgress(was.cursors | {chunk.source: cursors}, rows, max(was.total, rows))


def with_chunks(filling: Mapping[int, BackfillProgress], chunks: Iterable[Chunk]) -> dict[int, BackfillProgress]:
    """The progress of all backfills while an epoch with these chunks is under way: its sources count, its rows do not yet."""
    found = dict(filling)
    for chunk in chunks:
        found |= {table: _begun(found.get(table), chunk) for table in chunk.tables}
    return found


def _begun(before: BackfillProgress | None, chunk: Chunk) -> BackfillProgress:
    was = before or BackfillProgress({}, 0, 0)
    return replace(was, total=was.total + (chunk.total if chunk.opens else 0))
