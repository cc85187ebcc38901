"""Counts: how much work an epoch, or a task of one, did.

In: counts of parts. Out: their total. Always: only what costs is counted: rows, records, bytes and CPU time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter


@dataclass(frozen=True, slots=True)
class Counts:
    """How much work was done; `read_seconds` and `apply_seconds` are CPU time."""

    rows_read: int = 0  # changes of the log, and rows of backfills
    records_read: int = 0
    records_written: int = 0
    bytes_written: int = 0
    read_seconds: float = 0.0
    apply_seconds: float = 0.0

    @staticmethod
    def total(parts: Iterable[Counts]) -> Counts:
        together = list(parts)
        return Counts(*(sum(map(attrgetter(field.name), together)) for field in fields(Counts)))
