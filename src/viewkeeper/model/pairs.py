"""Pairs of key and value, as a scan returns them, in pieces that become Arrow arrays.

In: pairs, in order. Out: the pairs in pieces. Always: the first piece is small, so that a result begins at once; no
piece holds more than a bounded number of bytes, beyond one pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

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
    """Keys and values as they are stored."""
    import pyarrow as pa

    return pa.array([key for key, _ in pairs], pa.binary()), pa.array([value for _, value in pairs], pa.binary())
