"""Wording: the parts that messages share: counts, names that may be meant, and causes of failures.

In: a number and a noun; a name and those that exist; an error of DuckDB, Arrow, Spark, Python, or one of ours. Out: text
for people, on one line. Always: at most three similar names are suggested, or all where there are few; no word of a foreign
error is passed on, because it may quote a value: only its kind, a cause that is known by a phrase, and the place in the code.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable
from pathlib import Path

from viewkeeper.errors import InvariantBroken, ViewKeeperError


def counted(count: int, noun: str) -> str:
    """As in `1 change` and `1,200 changes`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


_SHOWN_LETTERS_MAX = 60


def shown(value: object) -> str:
    """A value that was passed, as far as a message has room for it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python writes no longer numbers, and nothing that is nested deeper
        return "too large to write"
    return text if len(text) <= _SHOWN_LETTERS_MAX else text[: _SHOWN_LETTERS_MAX - 3] + "…"


def described(value: object) -> str:
    """A value that was passed, with its type."""
    return f"{type(value).__name__} {shown(value)}"


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
# causes, and the phrases of engines that mean them, in lower case; the first that is found counts
_KNOWN = {
    "division by zero": ("division by zero", "divide by zero", "divide_by_zero"),
    "out of memory": ("out of memory",),
    "an array of more than 2 GiB": ("offset overflow", "binary array capacity", "maximum total string size"),
    "overflow": ("out of range", "overflow"),
    "a value cannot be converted": ("could not convert", "conversion error", "cast_invalid_input"),
}
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")  # with which Spark begins its texts


def cause_of(error: BaseException) -> str:
    """The kind of the error, its cause if that is known, and the position in the code where it was raised, or met."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, InvariantBroken):
        kind, text = "internal error, please report it (InvariantBroken)", error.fact
    if isinstance(error, ViewKeeperError):
        return f"{kind}: {text.splitlines()[0][:_LETTERS_MAX]}"
    cause = known_cause(error)
    if cause is None and (condition := _CONDITION.match(text)):
        cause = condition[1]
    told = f"{kind}: {cause}" if cause else kind
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "viewkeeper" in Path(one.filename).parts]
    return f"{told} in {frames[-1].name} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else told


def known_cause(error: BaseException) -> str | None:
    """Why, in words of ours."""
    text = str(error).lower()
    return next((cause for cause, phrases in _KNOWN.items() if any(phrase in text for phrase in phrases)), None)
