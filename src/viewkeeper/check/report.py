"""The reports of checks and repairs.

In: what was expected and what was found. Out: frozen values that print and go to JSON. Always: `ok` means that nothing
was found wrong, and every wrong, missing or extra record is named by its view and key.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """A record that differs from its recomputation; `expected` is None for an extra one, `found` for a missing one."""

    view: str
    key: tuple[object, ...]
    kind: str  # "wrong", "missing" or "extra"
    expected: dict[str, object] | None
    found: dict[str, object] | None


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

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Views put right by one epoch: how many of the records of each it wrote, and how many of their auxiliary tables.

    `rebuilt` are views over a table whose DELTA was wrong, and those that the epoch could not put right: they were filled
    anew. `before` and `after` are checks: what was
    found, and what is left. `ok` is that of `after`.
    """

    ok: bool
    epoch: int
    records: dict[str, int]
    auxiliary: dict[str, int]
    rebuilt: tuple[str, ...]
    before: CheckReport
    after: CheckReport

    def __bool__(self) -> bool:
        return self.ok
