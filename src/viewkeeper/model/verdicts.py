"""Verdicts: what the last check of a view found, and what its last repair did.

In: reports. Out: frozen values of the epoch record, one for each view. Always: they belong to the records that were judged: a
view that is rebuilt or created anew has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from viewkeeper.model.positions import Positions


@dataclass(frozen=True, slots=True)
class Checked:
    """A view was compared with its recomputation as of `epoch`, at the instant `stamp`; `findings` records differed,
    or rows of DELTA that it was computed from.

    `positions` are those of the epoch. `whole`: the epoch as of which all records were last compared; after it only those
    that changes can have touched. A store of an earlier version knows neither.
    """

    epoch: int
    stamp: int
    findings: int
    positions: Positions = field(default_factory=dict)
    whole: int = 0


@dataclass(frozen=True, slots=True)
class Repaired:
    """`epoch` wrote so many records of the view, and so many of auxiliary tables; `backfill` filled the twin."""

    backfill: int
    epoch: int
    stamp: int
    records: int
    auxiliary: int
