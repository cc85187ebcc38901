"""Text values: the value of a text in a column, as DuckDB expressions.

In: a type and a VARCHAR expression. Out: SQL for the value, and SQL that is true where there is none. Always: nothing
is rounded and nothing is truncated: a text either spells a value of the type exactly, or it does not fit. Texts are
read as the command line reads them; blank is NULL, except in STRING and BINARY.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal

from viewkeeper.model.types import SqlType

_OFFSET = "( UTC|Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_NOT_FINITE = "[+-]?(inf|infinity|nan)"
_DOUBLE_WITHOUT_ZEROS = r"([+-]?(0|[1-9][0-9]*)(\.[0-9]*)?|[+-]?\.[0-9]+)(e[+-]?[0-9]+)?"
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
_INTEGER = r"[+-]?[0-9]{1,40}(\.0*)?"
_PATTERNS = {
    "BOOLEAN": f"(?i){'|'.join(_BOOLEANS)}",
    "INT": _INTEGER,
    "BIGINT": _INTEGER,
    "DOUBLE": rf"(?i)[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|{_NOT_FINITE}",
    "BINARY": "([0-9a-fA-F]{2})*",
    "DATE": rf"{_DAY}([ T]00:00(:00(\.0+)?)?)?",
    "TIMESTAMP": rf"{_DAY}([ T][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,6}}0*)?)?{_OFFSET})?",
}
# A JSON number with a point passes through a DOUBLE, which holds 15 decimal digits of any number.
_EXACT_DIGITS = 15


def read_text(kind: SqlType, text: str) -> object:
    """The value of one text; ValueError or ArithmeticError where it spells none.

    A DECIMAL may have more digits than its column, or an exponent: whoever stores it decides whether it fits.
    """
    if kind.kind == "STRING":
        return text
    trimmed = text if kind.kind == "BINARY" else text.strip(" ")
    if kind.kind in _PATTERNS and not re.fullmatch(_PATTERNS[kind.kind], trimmed):
        raise ValueError(text)
    return _READERS[kind.kind](trimmed)


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number) and "inf" not in text.lower():
        raise ValueError(text)  # beyond the largest DOUBLE, which is not infinity
    return number


_READERS: dict[str, Callable[[str], object]] = {
    "BOOLEAN": lambda text: _BOOLEANS[text.lower()],
    "INT": lambda text: int(text.partition(".")[0]),
    "BIGINT": lambda text: int(text.partition(".")[0]),
    "DOUBLE": _double,
    "DECIMAL": Decimal,
    "BINARY": bytes.fromhex,
    "DATE": lambda text: dt.date.fromisoformat(text[:10]),
    "TIMESTAMP": lambda text: dt.datetime.fromisoformat(text.replace(" UTC", "Z")),
}


def value_of(kind: SqlType, text: str) -> str:
    """SQL for the value that `text` spells; NULL where it spells none."""
    if kind.kind == "STRING":
        return text
    if kind.kind == "BINARY":
        return f"CASE WHEN regexp_full_match({text}, '{_PATTERNS[kind.kind]}') THEN unhex({text}) END"
    trimmed = f"trim({text})"
    fixed = rf"[+-]?([0-9]+(\.[0-9]{{0,{kind.scale}}}0*)?|\.[0-9]{{1,{max(kind.scale, 1)}}}0*)"
    pattern = _PATTERNS.get(kind.kind, fixed)
    cast = f"TRY_CAST({trimmed} AS {kind.duckdb})"
    if kind.kind == "TIMESTAMP":
        cast = f"CAST(TRY_CAST({trimmed} AS TIMESTAMPTZ) AS TIMESTAMP)"  # in UTC, which the session's zone is
    if kind.kind == "DOUBLE":  # a number beyond the largest DOUBLE is not infinity
        finite = f"isfinite({cast}) OR regexp_full_match({trimmed}, '(?i){_NOT_FINITE}')"
        cast = f"CASE WHEN {finite} THEN {cast} END"
    return f"CASE WHEN regexp_full_match({trimmed}, '{pattern}') THEN {cast} END"


def keeps_digits_as_double(text: str) -> str:
    """SQL that is true where a text is a number that a DOUBLE represents with the same digits."""
    number = rf"(?i){_DOUBLE_WITHOUT_ZEROS}|{_NOT_FINITE}"
    is_short = f"length({text}) <= {_EXACT_DIGITS} AND NOT contains(lower({text}), 'e')"
    kept = f"{_digits(text)} = {_digits(f'CAST(TRY_CAST({text} AS DOUBLE) AS VARCHAR)')}"
    is_named = f"regexp_full_match({text}, '(?i){_NOT_FINITE}')"
    finite = f"CASE WHEN {is_short} THEN true WHEN {is_named} THEN true ELSE {kept} END"
    return f"CASE WHEN regexp_full_match({text}, '{number}') THEN {finite} ELSE false END"


def _digits(number: str) -> str:
    """The digits of a number from the first to the last that is not 0; a DOUBLE near to it has the same exponent."""
    return f"trim(regexp_replace(regexp_replace(lower({number}), 'e.*', ''), '[^0-9]', '', 'g'), '0')"


def misfit_of(kind: SqlType, text: str) -> str:
    """SQL that is true where a text is present and spells no value."""
    if kind.kind == "STRING":
        return "false"
    there = f"{text} IS NOT NULL" if kind.kind == "BINARY" else f"trim({text}) <> ''"
    return f"coalesce({there} AND ({value_of(kind, text)}) IS NULL, false)"


def lost_digits_of(text: str, json_kind: str) -> str:
    """SQL that is true where a number of a JSON file may have lost digits."""
    digits = rf"ltrim(replace(regexp_replace({text}, '\.0$', ''), '.', ''), '-0')"
    return f"coalesce({json_kind} = 'DOUBLE' AND length({digits}) > {_EXACT_DIGITS}, false)"
