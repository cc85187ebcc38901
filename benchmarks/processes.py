"""Processes: CPU seconds and memory of a process and of all it started, by kind.

In: a process, or nothing for this one. Out: CPU seconds of the Python processes and of the JVM; memory of driver, JVM and
workers. Always: children are found by descent, so workers that Spark's daemon forked are counted, of CPU seconds also those
that ended and were waited for by a living parent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_JVM = "java"
KINDS = ("driver", "jvm", "workers")
MEASURES = ("rss", "pss", "private")
_FIELDS = {"rss": "Rss", "pss": "Pss", "private": "Pss_Anon"}


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
    for pid in _family(stats, os.getpid()):
        name, _, own, _, ended = stats[pid]
        if name == _JVM:
            jvm += own
        else:
            # of a Python parent, its ended children are Python workers; this process also waits for its JVM
            python += own + (ended if pid != os.getpid() else 0.0)
    return CpuSeconds(python, jvm)


def cpu_of(pid: int) -> float:
    """What a process alone has used so far; nothing of one that has ended."""
    return _read_stats().get(pid, ("", 0, 0.0))[2]


def memory_of(root: int) -> dict[str, dict[str, float]]:
    """MiB of `root` (the driver), of its JVM and of its Python workers, by measure and kind, as of now."""
    stats = _read_stats()
    found = {measure: dict.fromkeys(KINDS, 0.0) for measure in MEASURES}
    for pid in _family(stats, root):
        kind = "driver" if pid == root else "jvm" if stats[pid][0] == _JVM else "workers"
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            continue  # it ended while we looked
        sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
        for measure in MEASURES:
            found[measure][kind] += sizes.get(_FIELDS[measure], 0.0)
    return found


def workers_at_work(root: int) -> list[int]:
    """The Python workers of a driver that have a core now: those that Spark's daemon, a child of the JVM, forked."""
    stats = _read_stats()
    jvms = {pid for pid in _family(stats, root) if stats[pid][0] == _JVM}
    daemons = {pid for pid, stat in stats.items() if stat[1] in jvms and stat[0] != _JVM}
    return [pid for pid, stat in stats.items() if stat[1] in daemons and _is_running(pid)]


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False  # it has ended


def _family(stats: dict[int, tuple[str, int, float, int, float]], root: int) -> list[int]:
    """`root` and its descendants."""
    family = {root}
    for pid in sorted(stats, key=lambda pid: stats[pid][3]):  # by start time: a parent before its children
        if stats[pid][1] in family:
            family.add(pid)
    return [pid for pid in family if pid in stats]


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
