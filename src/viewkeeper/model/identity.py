"""Remembering by identity: what was computed for a value, found again by the value itself and not by its parts.

In: a function of a frozen value. Out: the same function, which computes once for each value. Always: the value is kept with
its result, so nothing else can get its identity; an equal value that is another object is computed for again. To hash or compare a
tuple of thousands of columns would take longer than most of what is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Value = TypeVar("Value")
Found = TypeVar("Found")


def once_for_each(kept_max: int) -> Callable[[Callable[[Value], Found]], Callable[[Value], Found]]:
    """Remember the results for about that many values; all are forgotten when there are more."""

    def caching(compute: Callable[[Value], Found]) -> Callable[[Value], Found]:
        known: dict[int, tuple[Value, Found]] = {}

        @wraps(compute)
        def compute_or_remember(value: Value) -> Found:
            entry = known.get(id(value))
            if entry is None:
                if len(known) >= kept_max:
                    known.clear()
                entry = known[id(value)] = (value, compute(value))
            return entry[1]

        return compute_or_remember

    return caching
