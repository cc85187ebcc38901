"""Spread: the port through which a store has work that grows with its data done by other processes.

In: a function and the pieces of work, all as values that travel. Out: what it made of each piece, as bytes: what comes back
is data. Always: a piece may be done twice, or partly, and again by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

Piece = TypeVar("Piece")
Opened = TypeVar("Opened")


class Spread(Protocol):
    """Processes that open the same store by its URL, if there are any."""

    def __call__(
        self, work: Callable[[Opened, Piece], bytes], pieces: Sequence[Piece], *, rows: int = 0, log_bytes: int = 0
    ) -> list[bytes] | None:
        """`work(store, piece)` for each piece, in their order; None: the caller does it.

        That is where nobody is there, or it is too little for that: about so many rows to copy, bytes of a log to read. An
        error of ours is raised as it was there; where anything else failed the caller meets it, if it is still so.
        """
        ...
