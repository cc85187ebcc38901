"""Arguments: what callers pass, checked against what a call takes.

In: a value and its name. Out: the value, in the type that the call uses. Always: a value of another type is an
InputError that names the argument, never an AttributeError from somewhere inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from viewkeeper.errors import InputError


def take_text(name: str, value: object, hint: str | None = None) -> str:
    """A text."""
    if not isinstance(value, str):
        raise InputError(f"{name} is a text, not {_shown(value)}", hint)
    return value


def take_path(name: str, value: object) -> Path:
    """A path, possibly given as text."""
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name} is a path, not {_shown(value)}")
    return Path(value)


def take_names(name: str, value: object) -> list[str]:
    """A list of names; one name alone would be a list of its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} is a list of names, not {_shown(value)}", 'as in ["a", "b"]')
    return [take_text(f"each of {name}", part) for part in value]


def take_seconds(name: str, value: object) -> float:
    """A number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is a number of seconds, not {_shown(value)}", "0 does not wait")
    return value


def take_mapping(name: str, value: object) -> Mapping[str, object]:
    """Columns with values."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is a dict of columns, not {_shown(value)}", 'as in {"amount": 30}; {} is any row')
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '…'}"
