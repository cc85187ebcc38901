"""Stored rows: writes to base rows as a store takes them, and pairs of key and row as a scan returns them.

In: keys, and a function from the rows found to the new rows; or pairs, in order. Out: frozen values; or the pairs in
pieces. Always: the function runs inside the store's transaction, on the current rows, so a partial put or a test-and-set
needs no retry. The first piece is small, so that a result begins at once; the bytes of a piece are bounded, beyond one pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


Image = bytes | None  # a row's bytes, or None where there is no row


@dataclass(frozen=True, slots=True)
class RowWrites:
    """Writes to distinct rows of one table; a row that stays as it is is not written, unless `repeats`."""

    table: int
    keys: Sequence[bytes]
    merge: Callable[[list[Image]], list[Image]]
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """The condition of a write, `is_met` by the row found; `columns` are those compared, None: there must be no row."""

    columns: tuple[str, ...] | None
    is_met: Callable[[Image], bool]


_FIRST_PAIRS = 1_000
_PAIRS_MAX = 10_000
_BYTES_MAX = 32 << 20


def pieces(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """The pairs, some thousand at a time."""
    piece: list[tuple[bytes, bytes]] = []
    size, wanted = 0, _FIRST_PAIRS
    for pair in pairs:
        piece.append(pair)
        size += len(pair[1])
        if len(piece) == wanted or size >= _BYTES_MAX:
            yield piece
            piece, size, wanted = [], 0, _PAIRS_MAX
    if piece:
        yield piece


def pairs_to_arrow(pairs: Sequence[tuple[bytes, bytes]]) -> tuple[pa.Array, pa.Array]:
    import pyarrow as pa

    return pa.array([key for key, _ in pairs], pa.binary()), pa.array([value for _, value in pairs], pa.binary())
