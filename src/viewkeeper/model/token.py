"""Tokens: returned by a write, so that a later read can wait for it.

In: where the log ended after a write. Out: a value that goes to a string and back. Always: a token belongs to one
incarnation of one store (R19) and is refused by any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from viewkeeper.errors import ForeignToken, InputError
from viewkeeper.model.positions import Position, Positions, Stream, covers


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
