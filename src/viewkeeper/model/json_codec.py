"""JSON codec: frozen dataclasses as JSON and back.

In: dataclasses of numbers, texts, bytes, tuples, sets, dicts by number or text, options and one another. Out: JSON.
Always: the value read back is equal to the one written, and equal values are the same JSON in every process.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from viewkeeper.errors import CorruptStore

Plain = TypeVar("Plain")
Reader = Callable[[Any], Any]


# Of JSON that is not what was written: it may also have numbers beyond all bounds, or be nested too deeply.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """The block parses JSON of the store, where anything else is damage."""
    try:
        yield
    except UNREADABLE as error:
        raise CorruptStore(f"the store's {what} cannot be read", "restore the store from a backup") from error


class Remembered(Generic[Plain]):
    """A parser of the store's `what`, with its last result cached: an epoch reads most things again."""

    def __init__(self, what: str, parse: Callable[[dict], Plain]) -> None:
        self._what, self._parse = what, parse
        self._last: tuple[dict, Plain] | None = None

    def __call__(self, value: dict) -> Plain:
        last = self._last
        if last is None or (last[0] is not value and last[0] != value):
            with reading(self._what):
                last = self._last = (value, self._parse(value))
        return last[1]

    def know(self, value: dict, parsed: Plain) -> None:
        """Remember that `value`, which was just made from `parsed`, parses to it."""
        self._last = (value, parsed)


class ParsedEntries(Generic[Plain]):
    """A parser of a list of entries; an entry that is as it was in the list parsed before stays the same object.

    `key` names the field that identifies entries. The result may also depend on another value for each entry.
    """

    def __init__(self, key: str, parse: Callable[[dict, Any], Plain]) -> None:
        self._key, self._parse = key, parse
        self._last: dict[Any, tuple[dict, object, Plain]] = {}

    def __call__(self, values: list[dict], others: Callable[[dict], object] = lambda value: None) -> tuple[Plain, ...]:
        found = {}
        for value in values:
            known, other = self._last.get(value[self._key]), others(value)
            if known is None or known[1] is not other or known[0] != value:
                known = (value, other, self._parse(value, other))
            found[value[self._key]] = known
        self._last = found
        return tuple(entry[2] for entry in found.values())


def to_json_value(value: Any) -> Any:
    match value:
        case None | str() | int() | float():  # most values
            return value
        case tuple():
            return [to_json_value(item) for item in value]
        case frozenset():
            return sorted(value)
        case dict():
            return {str(key): to_json_value(value[key]) for key in sorted(value)}
        case bytes():
            return value.hex()
    return value.to_json() if hasattr(value, "to_json") else fields_to_json(value)


def fields_to_json(value: Any, *, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass by name, except those that can be found elsewhere."""
    return {name: to_json_value(getattr(value, name)) for name in value.__dataclass_fields__ if name not in without}


def from_json_value(kind: type[Plain], value: dict, **known: Any) -> Plain:
    """The dataclass `kind` from which `to_plain` made `value`; the fields that are `known` are not read."""
    readers = _readers(typing.cast(Any, kind))
    return kind(**{name: readers[name](part) for name, part in value.items() if name not in known}, **known)


@lru_cache(maxsize=64)
def _readers(kind: Any) -> dict[str, Reader]:
    return {name: _reader(hint) for name, hint in typing.get_type_hints(kind).items()}


def _reader(hint: Any) -> Reader:
    """The reader for values of that type; made once, because a catalog is read often."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _reader(next(part for part in arguments if part is not type(None)))
    if origin is tuple and arguments[-1] is Ellipsis:
        item = _reader(arguments[0])
        return lambda value: None if value is None else tuple(map(item, value))
    if origin is tuple:
        items = [_reader(part) for part in arguments]
        return lambda value: None if value is None else tuple(r(v) for r, v in zip(items, value, strict=True))
    if origin is dict:
        key, part = (int if arguments[0] is int else str), _reader(arguments[1])
        return lambda value: None if value is None else {key(name): part(one) for name, one in value.items()}
    if origin is frozenset:
        return frozenset
    if hint is bytes:
        return lambda value: None if value is None else bytes.fromhex(value)
    if hasattr(hint, "from_json"):
        return lambda value: None if value is None else hint.from_json(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: None if value is None else from_json_value(hint, value)
    return lambda value: value
