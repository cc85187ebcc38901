"""Writes to base rows, in the form in which a store takes them.

In: keys, and a function from the rows found to the new rows. Always: the function runs inside the store's transaction,
on the current rows, so a partial put or a test-and-set needs no retry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """What a row has to be for a write: `is_met` by the row found.

    `columns` are the value columns that it compares; it expects that there is no row if they are None.
    """

    columns: tuple[str, ...] | None
    is_met: Callable[[Image], bool]
