"""Memo: results of functions, cached by the identity of a value.

In: a function of a value that nobody changes. Out: the same function, which computes once for each object. Always: the
value is kept with its result, so nothing else can get its identity. To hash or compare a tuple of thousands of columns
would take longer than most functions of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Generic, TypeVar, cast

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


class Memo(Generic[Found]):
    """The same for what follows from several values, such as a view and all that its text names."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._known: dict[tuple[int, ...], tuple[Sequence[object], Found]] = {}

    def of(self, values: Sequence[object], compute: Callable[[], Found]) -> Found:
        key = tuple(map(id, values))
        entry = self._known.get(key)
        if entry is None:
            if len(self._known) >= self._kept_max:
                self._known.clear()
            entry = self._known[key] = (values, compute())
        return entry[1]


class OnceForEachOf(Generic[Value, Found]):
    """The same for all of a long list that changes little: what is not in the last list is forgotten."""

    def __init__(self, compute: Callable[[Value], Found]) -> None:
        self._compute = compute
        self._known: dict[int, tuple[Value, Found]] = {}

    def __call__(self, values: Sequence[Value]) -> list[Found]:
        keys = list(map(id, values))
        entries = list(map(self._known.get, keys))
        for index in [index for index, entry in enumerate(entries) if entry is None]:
            entries[index] = values[index], self._compute(values[index])
        found = cast("list[tuple[Value, Found]]", entries)
        self._known = dict(zip(keys, found, strict=True))
        return [entry[1] for entry in found]
