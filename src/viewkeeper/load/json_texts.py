"""JSON texts that users give: files of JSON, and arguments of the command line.

In: a text. Out: its value, or where a value in it ends. Always: a text that cannot be read, for whatever reason, is a
ValueError that says why; the caller names the line or the argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal


def read_json_text(text: str) -> object:
    """The value, with exact numbers and without duplicate names."""
    with _readable():
        return _EXACT.decode(text)


def read_structure(text: str) -> object:
    """The value with numbers as they are spelled: DuckDB reads them."""
    with _readable():
        return _STRUCTURE.decode(text)


def end_of_value(text: str, start: int) -> int:
    """Where the value that begins at `start` ends."""
    with _readable():
        return _STRUCTURE.raw_decode(text, start)[1]


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError(f"a number has {len(digits):,} digits") from None


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except ArithmeticError:
        raise ValueError("a number has an exponent beyond all bounds") from None


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a name comes twice")
    return dict(pairs)


_EXACT = json.JSONDecoder(parse_int=_integer, parse_float=_decimal, object_pairs_hook=_distinct)
_STRUCTURE = json.JSONDecoder(parse_int=str, parse_float=str)
