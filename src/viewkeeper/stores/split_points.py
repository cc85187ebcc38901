"""Split points: the keys that cut the next rows of a table in pieces of about equal size.

In: pairs in key order, in lists. Out: `SplitPoints`. Always: no more is read than the pieces need; they end with the
row that reaches the rows or bytes asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from operator import itemgetter

from viewkeeper.model.positions import SplitPoints

_VALUE_OF = itemgetter(1)


def find_split_points(
    lists: Iterable[list[tuple[bytes, bytes]]], after: bytes, *, rows_max: int, bytes_max: int, pieces: int
) -> SplitPoints:
    """Keys that cut the next pairs after `after` in about `pieces`; see `row_borders`."""
    row_step, byte_step = max(1, -(-rows_max // pieces)), max(1, -(-bytes_max // pieces))
    found: list[bytes | None] = [after]
    rows = size = rows_cut = size_cut = 0  # so far, and up to the last border
    for pairs in lists:
        pairs = pairs[: rows_max - rows]
        sizes = list(itertools.accumulate(map(len, map(_VALUE_OF, pairs)), initial=size))
        is_light = sizes[-1] < min(bytes_max, size_cut + byte_step)
        for at in range(row_step - 1 - (rows - rows_cut), len(pairs), row_step) if is_light else range(len(pairs)):
            heft, count = sizes[at + 1], rows + at + 1
            if is_light or count - rows_cut >= row_step or heft - size_cut >= byte_step or heft >= bytes_max:
                found.append(pairs[at][0])
                rows_cut, size_cut = count, heft
            if heft >= bytes_max:
                return SplitPoints(tuple(found), count, heft)
        rows, size = rows + len(pairs), sizes[-1]
        if rows >= rows_max:
            last = () if rows_cut == rows else (pairs[-1][0],)
            return SplitPoints((*found, *last), rows, size)
    if rows and rows_cut == rows:
        found.pop()
    return SplitPoints((*found, None), rows, size)
