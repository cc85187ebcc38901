"""Plain values: frozen dataclasses as JSON and back.

In: dataclasses of numbers, texts, tuples, options and one another. Out: JSON values. Always: what comes back is equal to what
went, and two processes write the same JSON for equal values.
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar

Plain = TypeVar("Plain")


def to_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    return value


def from_plain(kind: type[Plain], value: dict) -> Plain:
    """The dataclass `kind` that `to_plain` made `value` of."""
    hints: dict[str, Any] = _hints(kind)  # type: ignore[arg-type]
    return kind(**{name: _read(hints[name], part) for name, part in value.items()})


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _read(next(part for part in arguments if part is not type(None)), value)
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_read(part, item) for part, item in zip(kinds, value, strict=True))
    if hasattr(hint, "from_json"):
        return hint.from_json(value)
    return from_plain(hint, value) if isinstance(hint, type) and is_dataclass(hint) else value
