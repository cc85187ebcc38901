"""Causes: why an engine's work failed, in words that hold nothing of a row.

In: an error of DuckDB, Arrow, Spark, Python, or one of ours. Out: one line for the epoch record, for errors, status and logs.
Always: of a text that is not ours, which may quote a value, no word is passed on: only the kind of the error, a cause that
is known by its phrase, and the place in the code.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from viewkeeper.errors import ViewKeeperError

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
