"""Compare: what became of the figures between two results? `python -m benchmarks compare [OLD] NEW`.

In: two result files, or two folders of them; without OLD the kept results are the old ones. Out: for each figure old, new
and old / new, and a mark where it got worse. Always: only figures that both have are compared; sizes, machine or versions
that differ are told first, because then the ratios say little; what is within the tolerance, or too short to measure, is
never marked.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import FOLDER

TOLERANCE = 0.1
_SECONDS_MIN = 0.02  # shorter times of a step are noise

_SURROUNDINGS = ("question", "measured", "commit", "python", "versions", "machine", "quick", "skipped")
_SIZES = (
    *("rows", "changes", "seed", "runs", "view_managers", "epochs", "puts", "gets", "rounds", "seconds"),
    *("refreshes", "changes_per_refresh", "backlog", "wall_seconds", "distribution"),
)
# What a figure's name says of its direction; the first that fits counts.
_SMALLER, _LARGER = "smaller", "larger"
_DIRECTIONS = (
    (r"ratio_(view|table)_to|ratio_p\d+$|V4 time|backlogs|ratios\.(rss|pss|private)", _SMALLER),
    (r"(^|\.)ratio|throughput|per_second", _LARGER),  # "per_operation" holds the letters too
    (r"per_operation|recompute_seconds|bare_|stopped_|python_cpu_seconds|\.steps\.", ""),  # the other side, or a detail
    (r"seconds|_us$|_ns$|cpu_share|profile\..*\.(wall|cpu)$", _SMALLER),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure in both results."""

    name: str
    old: float
    new: float
    direction: str

    @property
    def ratio(self) -> float:
        return self.old / self.new if self.new else float("inf") if self.old else 1.0

    def mark(self, tolerance: float = TOLERANCE) -> str:
        """`worse`, `better`, or nothing."""
        if not self.direction or (".profile." in self.name and max(self.old, self.new) < _SECONDS_MIN):
            return ""
        gain = self.ratio if self.direction == _SMALLER else 1 / self.ratio if self.ratio else float("inf")
        return "worse" if gain < 1 - tolerance else "better" if gain > 1 + tolerance else ""


def compare(old: Mapping, new: Mapping) -> list[Difference]:
    """All figures that both results have, in the order of the new one."""
    before, after = dict(_flatten(old)), dict(_flatten(new))
    return [Difference(name, before[name], after[name], _direction(name)) for name in after if name in before]


def caveats(old: Mapping, new: Mapping) -> Iterator[str]:
    """What makes the two hard to compare."""
    for name in ("quick", *_SIZES):
        if old.get(name) != new.get(name) and (name == "quick" or (name in old and name in new)):
            yield f"{name}: {old.get(name)} against {new.get(name)}"
    for name in ("cores", "processor"):
        mine, theirs = old.get("machine", {}).get(name), new.get("machine", {}).get(name)
        if mine != theirs:
            yield f"machine, {name}: {mine} against {theirs}"
    for side, result in (("old", old), ("new", new)):
        machine = result.get("machine", {})
        if machine.get("load", 0) > machine.get("cores", 1):
            yield f"the machine of the {side} result was busy: load {machine['load']} on {machine['cores']} cores"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description="Compare two results, or two folders of them; without OLD the kept results are the old ones.",
    )
    parser.add_argument("results", nargs="+", type=Path, metavar="[OLD] NEW", help="JSON files or folders")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help=f"what is no difference ({TOLERANCE})")
    parser.add_argument("--only-marked", action="store_true", help="leave out what is neither better nor worse")
    given = parser.parse_args(arguments)
    if len(given.results) > 2:
        parser.error("name one or two results")
    old, new = given.results if len(given.results) == 2 else (FOLDER, given.results[0])
    pairs = list(_pairs(old, new))
    if not pairs:
        parser.error(f"no question is in both {old} and {new}")
    for before, after in pairs:
        _print(before, after, given.tolerance, only_marked=given.only_marked)
    return 0


def _pairs(old: Path, new: Path) -> Iterator[tuple[Path, Path]]:
    for file in sorted(new.glob("*.json")) if new.is_dir() else [new]:
        other = old / file.name if old.is_dir() else old
        if other.exists():
            yield other, file


def _print(old_file: Path, new_file: Path, tolerance: float, *, only_marked: bool) -> None:
    old, new = json.loads(old_file.read_text()), json.loads(new_file.read_text())
    print(f"{new['question']}: old {_origin(old, old_file)}, new {_origin(new, new_file)}")
    for line in caveats(old, new):
        print(f"  differs: {line}")
    differences = compare(old, new)
    shown = [found for found in differences if not only_marked or found.mark(tolerance)]
    width = max((len(found.name) for found in shown), default=10)
    print(f"  {'figure':{width}} {'old':>12} {'new':>12} {'old/new':>8}")
    for found in shown:
        mark = found.mark(tolerance)
        told = f"{found.old:12,.4g} {found.new:12,.4g} {found.ratio:8.2f}"
        print(f"  {found.name:{width}} {told}  {'<- WORSE' if mark == 'worse' else mark}".rstrip())
    marks = [found.mark(tolerance) for found in differences]
    print(f"  {marks.count('worse')} worse, {marks.count('better')} better, of {len(differences)} figures")


def _origin(result: Mapping, file: Path) -> str:
    return f"{file} (commit {result.get('commit', 'unknown')})"


def _flatten(figures: Mapping, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Figures by dotted name; of several runs the median."""
    for name, value in figures.items():
        whole = f"{prefix}{name}"
        if (not prefix and name in _SURROUNDINGS) or (name in _SIZES and not (prefix and name == "seconds")):
            continue
        if isinstance(value, Mapping):
            if "median" in value and "runs" in value:
                yield whole, value["median"]
            else:
                yield from _flatten(value, f"{whole}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield whole, value


def _direction(name: str) -> str:
    return next((direction for pattern, direction in _DIRECTIONS if re.search(pattern, name)), "")
