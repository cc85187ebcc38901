"""Wording: the parts that messages share: counts, names that may be meant, and causes of failures.

In: a number and a noun; a name and those that exist; an error of DuckDB, Arrow, Spark, Python, or one of ours. Out:
text for people, on one line. Always: one change is no changes; at most three names that look alike are suggested, or
all where there are few, in any letter case; of an error text that is not ours, which may quote a value, no word is
passed on: only the kind of the error, a cause that is known by its phrase, and the place in the code.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable
from pathlib import Path

from viewkeeper.errors import ViewKeeperError


def counted(count: int, noun: str) -> str:
    """As in `1 change` and `1,200 changes`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


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


_LETTERS_MAX = 300
# What engines say, in lower case, and what is told.
_KNOWN = {
    "division by zero": "division by zero",
    "divide by zero": "division by zero",
    "divide_by_zero": "division by zero",
    "out of memory": "out of memory",
    "offset overflow": "an array of more than 2 GiB",
    "binary array capacity": "an array of more than 2 GiB",
    "maximum total string size": "an array of more than 2 GiB",
    "out of range": "overflow",
    "overflow": "overflow",
    "could not convert": "a value cannot be converted",
    "conversion error": "a value cannot be converted",
    "cast_invalid_input": "a value cannot be converted",
}
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")  # with which Spark begins its texts


def cause_of(error: BaseException) -> str:
    """The kind of the error, and why it came about as far as that is known."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, ViewKeeperError):
        return f"{kind}: {text.splitlines()[0][:_LETTERS_MAX]}"
    told = known_cause(error)
    condition = _CONDITION.match(text)
    if told is None and condition:
        told = condition[1]
    place = _place(error)
    return f"{kind}{f': {told}' if told else ''}{f' in {place}' if place else ''}"


def known_cause(error: BaseException) -> str | None:
    """Why, in words of ours."""
    said = str(error).lower()
    return next((words for phrase, words in _KNOWN.items() if phrase in said), None)


def _place(error: BaseException) -> str | None:
    """Where in the code it was raised, or met."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "viewkeeper" in Path(frame.filename).parts
    ]
    return f"{frames[-1].name} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else None
