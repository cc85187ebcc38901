"""JSON lines: results for programs.

In: values as the client returns them. Out: one JSON text for each row. Always: what `get --json` and `scan --json`
print, `put` takes back unchanged: DECIMAL, DATE and TIMESTAMP as strings (dates in ISO 8601), BINARY as hexadecimal
digits, and a DOUBLE that JSON has no number for as "NaN", "Infinity" or "-Infinity".
"""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections.abc import Mapping
from decimal import Decimal


def print_json(value: object) -> None:
    """One line on stdout, at once."""
    print(to_json_text(value), flush=True)


def to_json_text(value: object) -> str:
    return json.dumps(to_json(value), ensure_ascii=not speaks_unicode(), allow_nan=False)


def record_text(record: dict[str, object] | None) -> str | None:
    """A record as JSON; None where there is none."""
    return None if record is None else to_json_text(record)


def to_json(value: object) -> object:
    """`value` in types that JSON has."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case Decimal():
            return f"{value:f}"
        case dt.date() | dt.time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Mapping():
            return {str(name): to_json(part) for name, part in value.items()}
        case list() | tuple() | set() | frozenset():
            return [to_json(part) for part in value]
    return str(value)  # types that only a SELECT can return: intervals, UUIDs


def speaks_unicode() -> bool:
    """Whether stdout takes every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
