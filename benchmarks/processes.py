"""Processes: CPU seconds of this process and of all it started, by kind.

In: nothing. Out: CPU seconds of the Python processes and of the JVM. Always: children are found by descent, so workers
that Spark's daemon forked are counted, also those that ended and were waited for by a living parent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_JVM = "java"


@dataclass(frozen=True, slots=True)
class CpuSeconds:
    """CPU seconds, user and system."""

    python: float
    jvm: float

    def __sub__(self, earlier: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(self.python - earlier.python, self.jvm - earlier.jvm)

    @property
    def total(self) -> float:
        return self.python + self.jvm


def cpu_seconds() -> CpuSeconds:
    """What this process and its descendants have used so far."""
    stats = _read_stats()
    python = jvm = 0.0
    family = {os.getpid()}
    for pid in sorted(stats, key=lambda pid: stats[pid][3]):  # by start time: a parent before its children
        name, parent, own, _, ended = stats[pid]
        if pid not in family and parent not in family:
            continue
        family.add(pid)
        if name == _JVM:
            jvm += own
        else:
            # of a Python parent, its ended children are Python workers; this process also waits for its JVM
            python += own + (ended if pid != os.getpid() else 0.0)
    return CpuSeconds(python, jvm)


def _read_stats() -> dict[int, tuple[str, int, float, int, float]]:
    """For each process: name, parent, own CPU seconds, start, CPU seconds of ended children."""
    stats = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = file.read_text().rpartition(")")
        except OSError:
            continue  # it ended while we looked
        fields = tail.split()
        own, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        name = head.partition("(")[2]
        stats[int(file.parent.name)] = (name, int(fields[1]), own / _TICKS, int(fields[19]), ended / _TICKS)
    return stats
