"""Events: one stream of what the system did.

In: a name and plain facts. Out: whoever listens: the live line, the checker, later metrics and the dashboard. Always: an
event is a frozen value made after the fact it tells of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    name: str
    facts: Mapping[str, object] = field(default_factory=dict)


EventSink = Callable[[Event], None]
