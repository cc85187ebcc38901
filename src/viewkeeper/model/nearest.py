"""Nearest names: the way out for a name that does not exist.

In: a name, and those that exist. Out: a hint. Always: at most three names that look like it; where none does, all if they
are few; letter case does not count.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEAR_MAX = 3
_LISTED_MAX = 10


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> list[str]:
    """The names that look most like `name`; of `t.x` only `x` counts."""
    spelled: dict[str, list[str]] = {}
    for one in known:
        spelled.setdefault(one.rpartition(".")[2].lower(), []).append(one)
    close = difflib.get_close_matches(name.lower(), spelled, n=NEAR_MAX, cutoff=likeness)
    return [one for found in close for one in spelled[found]][:NEAR_MAX]


def question(near: list[str]) -> str:
    *others, last = near
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"


def suggestion(name: str, known: Iterable[str], listed: str) -> str | None:
    """A question with the names that `name` may mean; else the names after `listed`, as in "its columns are"."""
    names = list(known)
    if near := nearest(name, names):
        return question(near)
    if len(names) > _LISTED_MAX:
        names[NEAR_MAX:] = [f"… ({len(names)} in all)"]
    return f"{listed} {', '.join(names)}" if names else None
