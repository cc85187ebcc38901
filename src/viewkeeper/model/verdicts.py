"""Verdicts: what the last check of a view found, and what its last repair did.

In: reports. Out: frozen values of the epoch record, one for each view. Always: they belong to the records that were judged: a
view that is rebuilt or created anew has none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checked:
    """A view was compared with its recomputation as of `epoch`, at the instant `stamp`; `findings` records differed."""

    epoch: int
    stamp: int
    findings: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """`epoch` wrote so many records of the view, and so many of auxiliary tables; `backfill` filled the twin."""

    backfill: int
    epoch: int
    stamp: int
    records: int
    auxiliary: int
