"""Limits: how much the base takes at once.

In: numbers of bytes. Out: errors that name them. Always: a row and its change fit in one Arrow array with room to
spare, so what was acknowledged can be read; a lower limit refuses more and still reads all that is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeeper.errors import BadRow, TooMuchAtOnce
from viewkeeper.model.writes import Image


@dataclass(frozen=True, slots=True)
class Limits:
    """In bytes: of a row, of the images that one transaction logs, and of one entry of the log.

    A transaction of one change may log more: the row before and after. So may an entry of one change.
    """

    row: int = 128 << 20
    transaction: int = 512 << 20
    entry: int = 64 << 20

    def require_room(self, befores: Sequence[Image], afters: Sequence[Image]) -> int:
        """Raise unless rows of one group of writes may be stored; returns the size of their images in bytes."""
        size = sum(map(len, filter(None, afters)))
        if size > self.row and (largest := max(map(len, filter(None, afters)))) > self.row:
            raise BadRow(
                f"a row of {largest:,} bytes is more than the {self.row:,} that a row may have",
                "keep large values elsewhere, and in the row where they are",
            )
        if len(afters) > 1:
            size += sum(map(len, filter(None, befores)))
            self.require_transaction(size)
        return size

    def require_transaction(self, size: int) -> None:
        if size > self.transaction:
            raise TooMuchAtOnce(
                f"{size:,} bytes are more than the {self.transaction:,} that are written at once",
                "write them in smaller groups",
            )


LIMITS = Limits()
