"""Plain values: frozen dataclasses as JSON and back.

In: dataclasses of numbers, texts, bytes, tuples, sets, dicts by number or text, options and one another. Out: JSON
values. Always: the value read back is equal to the one written, and two processes write the same JSON for equal values.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar

from viewkeeper.errors import CorruptStore

Plain = TypeVar("Plain")
Reader = Callable[[Any], Any]
Parse = Callable[[dict], Plain]


@contextmanager
def reading(what: str) -> Iterator[None]:
    """The block parses what the store keeps as JSON; anything else there is damage, and none of it is run."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorruptStore(f"the store's {what} cannot be read", "restore the store from a backup") from error


def remembered(what: str) -> Callable[[Parse[Plain]], Parse[Plain]]:
    """`parse`, which reads the store's `what`, with its last result cached: an epoch reads most things again."""

    def caching(parse: Parse[Plain]) -> Parse[Plain]:
        last: list[tuple[dict, Plain]] = []

        @wraps(parse)
        def parse_or_remember(value: dict) -> Plain:
            known = last[-1:]
            if not known or known[0][0] != value:
                with reading(what):
                    known = last[:] = [(value, parse(value))]
            return known[0][1]

        return parse_or_remember

    return caching


def to_plain(value: Any) -> Any:
    match value:
        case None | str() | int() | float():  # most values
            return value
        case tuple():
            return [to_plain(item) for item in value]
        case frozenset():
            return sorted(value)
        case dict():
            return {str(key): to_plain(value[key]) for key in sorted(value)}
        case bytes():
            return value.hex()
    if hasattr(value, "to_json"):
        return value.to_json()
    return fields_to_plain(value)


def fields_to_plain(value: Any, *, without: str = "") -> dict[str, Any]:
    """The fields of a dataclass by name, except the one that can be found elsewhere."""
    return {name: to_plain(getattr(value, name)) for name in value.__dataclass_fields__ if name != without}


def from_plain(kind: type[Plain], value: dict, **known: Any) -> Plain:
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
        return lambda value: {key(name): part(one) for name, one in value.items()}
    if origin is frozenset:
        return frozenset
    if hint is bytes:
        return lambda value: None if value is None else bytes.fromhex(value)
    if hasattr(hint, "from_json"):
        return lambda value: None if value is None else hint.from_json(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: None if value is None else from_plain(hint, value)
    return lambda value: value
