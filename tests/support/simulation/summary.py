"""The summary of many schedules: what happened in them, and the verdict.

In: outcomes of schedules, and what went wrong. Out: a text, and one of three verdicts. Always: `valid` only if nothing was
wrong, nothing ended for a reason that nobody foresaw, every history that was drawn twice was the same, and, with enough
schedules, every kind of fault, view and failpoint occurred; what did not is named, and the verdict is `unknown`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from tests.support.simulation.kinds import KINDS
from tests.support.simulation.schedule import Outcome
from tests.support.source_tree import modules

ENOUGH = 400  # schedules, after which everything must have occurred
HAPPENS = (
    *(
        "crashes",
        "tasks lost",
        "zombies",
        "zombies told",
        "rivals",
        "copies",
        "late runs",
        "late tasks",
        "twins of tasks",
    ),
    *("moves", "moves resumed", "moves put off", "repairs", "rebuilds"),
    *("re-runs", "take-overs", "void epochs", "catalog changes", "groupings shared", "tidied", "clock jumps"),
    "tables made before a cut",
    *("lost", "late", "twice", "silent", "doubled", "pipelines without an answer", "statements without an answer"),
    "pipelines that try again",
    *("snapshots read", "changes replayed", "followers lost", "states compared"),
    *("tables compared with those of a new store", "runs by 0 managers", "runs by 1 managers", "runs by 3 managers"),
    *("runs by 11 managers", "runs with divided shards"),
    *(f"view {name}" for name in KINDS),
)
# Points that a schedule does not pass, and the tests that do.
OTHER_LANES = {
    "backup.": "tests/unit/stores/test_backup.py",
    "restore.": "tests/unit/stores/test_backup.py",
    "compact.": "tests/unit/stores/test_compact.py",
    "layout.": "tests/unit/stores/test_parts.py",
    "newdirectory.": "tests/unit/stores/test_backup.py",
    "node.made": "tests/unit/stores/test_moves_and_kills.py",
    "node.listed": "tests/unit/stores/test_moves_and_kills.py",
    "move.": "tests/unit/stores/test_moves_and_kills.py",
    "anew.": "tests/unit/cli/test_lost_log.py",
    "repair.": "tests/sim/test_kills.py",
    "check.": "tests/sim/test_verification_kills.py",
    "twins.": "tests/sim/test_verification_kills.py",
    "stage.ready": "tests/sim/test_foreign_tables.py",
}
_TOLD = (
    *(
        "base updates",
        "crashes",
        "tasks lost",
        "re-runs",
        "zombies",
        "rivals",
        "twins of tasks",
        "late runs",
        "late tasks",
    ),
    *(
        "take-overs",
        "moves",
        "repairs",
        "rebuilds",
        "catalog changes",
        "epochs",
        "states compared",
        "changes replayed",
        "snapshots read",
    ),
)


@dataclass(slots=True)
class Summary:
    """Sums over schedules; two are added up by `add`."""

    counts: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    schedules: Counter[str] = field(default_factory=Counter)  # by kind of store
    seconds: Counter[str] = field(default_factory=Counter)  # of this process's work, by kind of store
    violations: list[str] = field(default_factory=list)
    unforeseen: list[str] = field(default_factory=list)

    def took(self, outcome: Outcome, seconds: float) -> None:
        self.counts += outcome.counts
        self.points += outcome.points
        self.schedules[outcome.store] += 1
        self.seconds[outcome.store] += seconds

    def add(self, other: Summary) -> None:
        for name in ("counts", "points", "schedules", "seconds", "violations", "unforeseen"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def missing(self) -> list[str]:
        """What should have occurred and did not."""
        if self.schedules.total() < ENOUGH:
            return []
        faults = [name for name in HAPPENS if not self.counts[name]]
        return faults + sorted(own_points() - self.points.keys())

    @property
    def verdict(self) -> str:
        if self.violations:
            return "invalid"
        is_told = self.schedules.total() and not self.unforeseen and not self.missing
        return "valid" if is_told else "unknown"

    def text(self) -> str:
        lines = [
            f"schedules: {self.schedules.total()}, {dict(self.schedules)}; drawn twice: {self.counts['drawn twice']}"
        ]
        lines += [", ".join(f"{name}: {self.counts[name]}" for name in _TOLD)]
        own, hit = own_points(), own_points() & self.points.keys()
        lines.append(f"failpoints hit: {len(hit)} of {len(own)}; {len(all_points())} exist")
        for prefix, lane in OTHER_LANES.items():
            names = sorted(point for point in all_points() if point.startswith(prefix))
            lines.append(f"  others: {', '.join(names)}: {lane}")
        rates = {store: round(self.schedules[store] / spent, 1) for store, spent in self.seconds.items() if spent}
        lines.append(f"schedules per second of one core: {rates}")
        lines += [f"did not occur: {self.missing}"] if self.missing else []
        lines += [*self.violations, *(f"unforeseen: {told}" for told in self.unforeseen)]
        return "\n".join([*lines, f"violations: {len(self.violations)}; verdict: {self.verdict}"])


def all_points() -> set[str]:
    """The failpoints that exist."""
    return {name for module in modules() for name in re.findall(r'failpoint(?:\(|, )"([a-z._]+)"\)', module.source)}


def own_points() -> set[str]:
    """Those that schedules must pass."""
    return {point for point in all_points() if not point.startswith(tuple(OTHER_LANES))}
