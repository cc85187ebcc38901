"""Positions: how far something has come, in the streams of a log or in a backfill (`docs/epochs.md`, R12).

In and out: numbers with names, tokens that go to a string and back, and cursors of backfills. Always: a position is
ordered within its stream, and nothing more: the difference of two does not tell how much lies between them; a stream is
identified by its name. A token belongs to one incarnation of one store (R19) and is refused by any other. A backfill
goes through each part of its source in key order; a part is a stream of the base table, or a partition of its DELTA or
of a node. Rows at or below the cursor are in the views and maintained by changes; rows above it are not in them yet.
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

    `changes`: how many lie between the given start and the cut.
    """

    positions: Positions
    stamp: int
    changes: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What lies after some positions: how many changes, and the stamp of the oldest, None when there is none."""

    changes: int
    oldest: int | None


def covers(positions: Positions, others: Positions) -> bool:
    """Whether `positions` are at or after `others` in every stream."""
    return all(positions.get(stream, 0) >= position for stream, position in others.items())


def positions_to_json(positions: Positions) -> dict[str, int]:
    return {stream: positions[stream] for stream in sorted(positions)}


def positions_from_json(value: dict[str, int]) -> Positions:
    return {Stream(stream): Position(position) for stream, position in value.items()}


@dataclass(frozen=True, slots=True)
class Token:
    """Positions that cover the writes it represents; `|` of two tokens represents the writes of both."""

    incarnation: str
    positions: Positions = field(default_factory=dict)

    def __or__(self, other: Token) -> Token:
        if other.incarnation != self.incarnation:
            raise ForeignToken("the tokens belong to different stores")
        streams = self.positions.keys() | other.positions.keys()
        most = {s: max(self.positions.get(s, Position(0)), other.positions.get(s, Position(0))) for s in streams}
        return Token(self.incarnation, most)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        places = ",".join(
            f"{quote(stream, safe='/')}={position}" for stream, position in sorted(self.positions.items())
        )
        return f"vk1:{self.incarnation}:{places}"

    @staticmethod
    def parse(text: str) -> Token:
        """The token that `text` spells."""
        try:
            form, incarnation, places = text.strip().split(":")
            pairs = (item.split("=") for item in places.split(",") if item)
            positions = {Stream(unquote(stream)): Position(int(position)) for stream, position in pairs}
        except ValueError:
            form = ""
        if form != "vk1" or "" in positions:
            raise InputError(f"{text[:60]!r} is not a token", "pass what put, delete or put_many returned")
        return Token(incarnation, positions)

    def is_covered_by(self, incarnation: str, positions: Positions) -> bool:
        """Whether a state at `positions` includes everything the token represents."""
        if incarnation != self.incarnation:
            raise ForeignToken(
                "the token belongs to another store, or to this one before it was restored",
                "use a token of a write to this store, or read without one",
            )
        return covers(positions, self.positions)


START = b""  # below every key
SplitPoint = bytes | None  # None is after every key


@dataclass(frozen=True, slots=True)
class SplitPoints:
    """Keys that cut the next rows of a part in pieces, and how many rows and bytes these are.

    The rows begin after the first key; the last key is None when the part ends there.
    """

    keys: tuple[SplitPoint, ...]
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
    borders: dict[int, tuple[SplitPoint, ...]]
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
