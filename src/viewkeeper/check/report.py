"""The reports of checks and repairs.

In: what was expected and what was found. Out: frozen values that print and go to JSON. Always: `ok` means that nothing
was found wrong, every record that is wrong is named by its view and key, and every view that was asked for is listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """A record that differs from its recomputation; `expected` is None for an extra one, `found` for a missing one.

    "misplaced": it is in a partition where a scan finds it and a get does not; `expected` is None if it is where it belongs
    too. "unreadable": its bytes are damaged; a damaged key is shown as its bytes. Both say `why`.
    """

    view: str
    key: tuple[object, ...]
    kind: str  # "wrong", "missing", "extra", "misplaced" or "unreadable"
    expected: dict[str, object] | None
    found: dict[str, object] | None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class ViewOutcome:
    """What a check or a repair did with one view.

    `state`: "ok" (so many `records`), "wrong" (`records` are), "repaired" (`records` and `auxiliary` ones were written),
    "rebuilt", or "not done", because of `why`; `way_out` is what helps.
    """

    view: str
    state: str
    records: int = 0
    auxiliary: int = 0
    why: str | None = None
    way_out: str | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Views compared with their recomputation, as of one committed epoch.

    `since`: the views of which only those records were compared that changes after that epoch can have touched.
    """

    ok: bool
    epoch: int
    views: tuple[str, ...]
    records: int  # how many were compared
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()  # what was not compared, and why; not `ok` where it could not be judged, or is all
    since: dict[str, int] = field(default_factory=dict)
    outcomes: tuple[ViewOutcome, ...] = ()  # one for each view that was asked for

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Views put right by one epoch: how many of the records of each it wrote, and how many of their auxiliary tables.

    `rebuilt` are views that were filled anew: over a table whose DELTA was wrong, or with records that no epoch can read
    or put right. `before` and `after` are checks; `outcomes` says what was done with each view that was asked for. `ok`:
    `after` is, and all of it was done.
    """

    ok: bool
    epoch: int
    records: dict[str, int]
    auxiliary: dict[str, int]
    rebuilt: tuple[str, ...]
    before: CheckReport
    after: CheckReport
    outcomes: tuple[ViewOutcome, ...] = ()

    def __bool__(self) -> bool:
        return self.ok
