"""The summary of a soak: what happened, and whether a view was wrong.

In: counts. Out: lines of text. Always: a fault counts when it was seen to have happened as it was meant to.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

KILLS = "kills of a pipeline with an epoch in flight"
STOPS = "SIGSTOPs of a pipeline with a standby that took over"
SERVERS = "kills of a region server"
THRIFTS = "kills of a Thrift server"
STAGED = "rows staged under writers"
MOMENTS = "quiet moments judged"
COMPARED = "views compared"
_ALWAYS = (KILLS, STOPS, SERVERS, THRIFTS, STAGED, MOMENTS, COMPARED)


class Wrong(Exception):
    """A view is wrong, or something stopped."""


@dataclass(slots=True)
class Summary:
    """Counts of what happened; `written` are mutations by kind, `violation` ends the soak."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    violation: str = ""
    minutes: float = 0.0

    def text(self) -> str:
        others = sorted(name for name in self.counts if name not in _ALWAYS)
        lines = [f"seed {self.seed}: {self.minutes:.1f} minutes"]
        lines += [f"{self.counts[name]:>9,}  {name}{self._rate(name)}" for name in (*_ALWAYS, *others)]
        kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(self.written.items()))
        lines.append(f"{self.written.total():>9,}  mutations: {kinds}")
        if self.violation:
            lines += ["", f"WRONG, seed {self.seed}: {self.violation}"]
        return "\n".join([*lines, f"violations: {int(bool(self.violation))}"])

    def _rate(self, name: str) -> str:
        return f" ({self.counts[name] / self.minutes:,.2f} a minute)" if self.minutes else ""
