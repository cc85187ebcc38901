"""Formats: how values are typed, and how they are printed.

In: texts of the command line, or values as the client returns them. Out: values for the client, or texts for people and
JSON for programs. Always: `put` takes back what `get --json` and `scan --json` print: DECIMAL, DATE and TIMESTAMP as
strings (dates in ISO 8601), BINARY as hexadecimal digits, and a DOUBLE that is not finite as "NaN", "Infinity" or
"-Infinity". `:=null` is NULL, and no other text is.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal

from viewkeeper.errors import BadRow, InputError
from viewkeeper.load.json_texts import read_json_text
from viewkeeper.load.text_values import read_text
from viewkeeper.model.schema import Column, TableSchema
from viewkeeper.model.stored_values import to_double

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(:?=)(.*)", flags=re.DOTALL)
_EXAMPLES = {
    "BOOLEAN": "true or false, yes or no, 1 or 0",
    "INT": "30 or -30",
    "BIGINT": "30 or -30",
    "DOUBLE": "1.5, 1e300, NaN or Infinity",
    "DECIMAL": "12.50",
    "STRING": "any text",
    "BINARY": "00ff, two hexadecimal digits for each byte",
    "DATE": "2026-01-31",
    "TIMESTAMP": "2026-01-31T12:30:00, in UTC unless it says +02:00",
}


def parse_text(column: Column, text: str) -> object:
    try:
        return read_text(column.type, text)
    except (ValueError, ArithmeticError):
        shown = repr(text) if len(text) <= 60 else repr(text[:57] + "…")
        hint = f"as in {_EXAMPLES[column.type.kind]}; :=null is NULL"
        raise BadRow(f"column {column.name} is {column.type}, not {shown}", hint) from None


def parse_json(column: Column, value: object) -> object:
    """The value of a JSON value; strings are parsed as on the command line."""
    if isinstance(value, str):
        return parse_text(column, value)
    if isinstance(value, Decimal) and column.type.kind == "DOUBLE":
        return to_double(column, value)
    if column.type.kind == "BOOLEAN" and isinstance(value, int) and value in (0, 1):
        return bool(value)  # as `load` reads it
    return value  # the client decides whether a number, true or a list fits


def parse_key(columns: Sequence[Column], arguments: Sequence[str]) -> tuple[object, ...]:
    """Values of a key or of a prefix of one, each a text, or JSON after `:=`; too many are left for the client to refuse."""
    known = []
    for column, argument in zip(columns, arguments, strict=False):
        if argument.startswith(":="):
            value = read_json(argument[2:], f"the value of column {column.name}")
            known.append(parse_json(column, value))
        else:
            known.append(parse_text(column, argument))
    return (*known, *arguments[len(columns) :])


def parse_put(schema: TableSchema, arguments: Sequence[str]) -> dict[str, object]:
    """The columns of a put: `KEY… col=text col:=json {"col": json}`, the key by position or by name."""
    first = arguments[0] if arguments else ""
    named = _ASSIGNMENT.fullmatch(first)
    in_key = named is not None and named[1].lower() in {name.lower() for name in schema.key}
    count = 0 if in_key or (first.startswith("{") and len(arguments) == 1) else len(schema.key)
    if len(arguments) < count:
        names = ", ".join(schema.key)
        fact = f"table {schema.name} has the key ({names}), not {len(arguments)} values"
        raise InputError(fact, "give the key first, then col=value; or all in one JSON object")
    for argument in arguments[:count]:
        named = _ASSIGNMENT.fullmatch(argument)
        if named is not None and named[1].lower() in {column.name.lower() for column in schema.columns}:
            fact = f"{argument!r} stands where table {schema.name} has its key ({', '.join(schema.key)})"
            hint = f"give the key first; a key that looks so is given by name: {schema.key[0]}={argument}"
            raise InputError(fact, hint)
    columns = schema.key_columns[:count]
    given = list(zip((column.name for column in columns), parse_key(columns, arguments[:count]), strict=True))
    for argument in arguments[count:]:
        given += _assignments(schema, argument)
    row: dict[str, object] = {}
    for name, value in given:
        if name in row:
            raise BadRow(f"column {name} is given twice", "give it once")
        row[name] = value
    return row


def read_json(text: str, what: str, example: str = '{"id": "o1"}') -> object:
    """JSON with exact decimals and without duplicate names; `example` is what a user who errs is shown."""
    try:
        return read_json_text(text)
    except ValueError as error:
        raise InputError(f"{what} is not JSON: {error}", f"strings need quotes inside: '{example}'") from None


def _assignments(schema: TableSchema, argument: str) -> list[tuple[str, object]]:
    if argument.startswith("{"):
        found = read_json(argument, "the row")
        named = found.items() if isinstance(found, dict) else ()  # what begins with { is an object
        pairs = [(schema.column(name), value) for name, value in named]
        return [(column.name, parse_json(column, value)) for column, value in pairs]
    match = _ASSIGNMENT.fullmatch(argument)
    if not match:
        names = ", ".join(schema.key)
        fact = f"{argument!r} is neither col=value nor a JSON object"
        raise InputError(fact, f"table {schema.name} has the key ({names}); all else is given by name")
    column = schema.column(match[1])
    if match[2] == "=":
        return [(column.name, parse_text(column, match[3]))]
    return [(column.name, parse_json(column, read_json(match[3], f"the value of column {column.name}")))]


def plain(value: object) -> str:
    """A value as people read it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            return plain_double(value)
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            return value.isoformat(sep=" ")
        case bytes() | bytearray():
            return value.hex()
    return str(value)


def plain_double(value: float) -> str:
    """A DOUBLE with all its digits; those that are not finite have names, in JSON too."""
    return repr(value) if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def escape(text: str) -> str:
    """The text without characters that control the terminal or break the table."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def size_text(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def to_json_text(value: object) -> str:
    """A value as JSON, in the characters that stdout takes."""
    return json.dumps(_to_json(value), ensure_ascii=not speaks_unicode(), allow_nan=False)


def record_text(record: dict[str, object] | None) -> str | None:
    """A record as JSON; None where there is none."""
    return None if record is None else to_json_text(record)


def speaks_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _to_json(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else plain_double(value)
        case Decimal():
            return f"{value:f}"
        case dt.date() | dt.time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Mapping():
            return {str(name): _to_json(part) for name, part in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_to_json(part) for part in value]
    return str(value)  # types that only a SELECT can return: intervals, UUIDs
