"""DuckDB SQL of functions whose text is too long for a row of their table.

In: a bound call and the SQL of its arguments, which may be written several times; or the pieces of a template. Out: SQL,
or a template. Always: the arguments are not NULL, or the text is NULL with them.
"""

from __future__ import annotations

from viewkeeper.algebra.expressions import Call, Literal
from viewkeeper.errors import InvariantBroken
from viewkeeper.model import types
from viewkeeper.model.types import SqlType

# The years 1 to 9999, in days, months and microseconds.
DAYS = (-719_162, 2_932_896)
_MONTHS = (12, 119_999)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
EPOCH = "CAST('1970-01-01' AS DATE)"
_SIGNED = {"INT": 32, "BIGINT": 64}


def within(value: str, bounds: tuple[int, int], then: str) -> str:
    """`then` if the value is within bounds, NULL for NULL, else a failure."""
    failure = "CAST('out of range' AS {type})"
    return f"(CASE WHEN {value} BETWEEN {bounds[0]} AND {bounds[1]} THEN {then} WHEN {value} IS NOT NULL THEN {failure} END)"


def shifted(operator: str) -> str:
    """A date and so many days."""
    return within(f"(CAST({{0}} - {EPOCH} AS BIGINT) {operator} {{1}})", DAYS, f"({{0}} {operator} {{1}})")


_MONTH, _MICRO = "(year({0}) * 12 + month({0}) - 1 + {1})", "(epoch_us({0}) + {1})"
ADD_MONTHS = within(_MONTH, _MONTHS, "CAST({0} + to_months({1}) AS {type})")
ADD_MICROS = within(_MICRO, _MICROS, f"make_timestamp({_MICRO})")


def from_epoch(unit: int) -> str:
    """A TIMESTAMP from a count of units of so many microseconds."""
    bounds = (-(-_MICROS[0] // unit), _MICROS[1] // unit)
    return within("{0}", bounds, f"make_timestamp({{0}} * {unit})")


def to_epoch(unit: int) -> str:
    """Units since 1970, rounded down: (v - v mod unit) / unit, with a remainder that is never negative."""
    return f"((epoch_us({{0}}) - ((epoch_us({{0}}) % {unit}) + {unit}) % {unit}) // {unit})"


def _value(call: Call, index: int) -> str:
    literal = call.args[index]
    if not isinstance(literal, Literal):
        raise InvariantBroken(f"argument {index} of {call.text} is no literal")
    return str(literal.value)


def date_trunc(call: Call, unit: str, arg: str) -> str:
    return f"date_trunc('{_value(call, 0)}', {arg})"


def trunc(call: Call, arg: str, unit: str) -> str:
    return f"CAST(date_trunc('{_value(call, 1)}', {arg}) AS DATE)"


def octets(call: Call, arg: str) -> str:
    return f"octet_length({arg})" if call.args[0].type == types.BINARY else f"strlen({arg})"


def length(call: Call, arg: str) -> str:
    return f"CAST({octets(call, arg) if call.args[0].type == types.BINARY else f'length({arg})'} AS INTEGER)"


def substring(call: Call, arg: str, start: str, size: str | None = None) -> str:
    """Spark counts from 1, from the end if negative, and 0 is 1; positions before the string use up length.

    Without a length it is the greatest INT, which from far before the string may end within it.
    """
    if all(isinstance(part, Literal) and int(str(part.value or 0)) > 0 for part in call.args[1:]):
        return f"substring({arg}, {start}{', ' + size if size else ''})"
    first = f"CASE WHEN {start} > 0 THEN {start} - 1 WHEN {start} < 0 THEN length({arg}) + {start} ELSE 0 END"
    begin = "CASE WHEN i < 0 THEN 0 ELSE i END"
    count = f"i + CAST({size or 2**31 - 1} AS BIGINT) - {begin}"
    taken = f"substring({arg}, {begin} + 1, CASE WHEN {count} < 0 THEN 0 ELSE {count} END)"
    return f"list_transform([CAST({first} AS BIGINT)], lambda i: {taken})[1]"


def trim(call: Call, arg: str, characters: str = "' '") -> str:
    return f"{call.name}({arg}, {characters})"


def locate(call: Call, part: str, arg: str, start: str | None = None) -> str:
    """Spark finds the empty string at 1, from wherever the search starts; it finds nothing before 1."""
    if start is None:
        return f"CAST(instr({arg}, {part}) AS INTEGER)"
    found = f"instr(substring({arg}, {start}), {part})"
    index = f"WHEN {found} = 0 THEN 0 ELSE {found} + {start} - 1"
    return f"CAST(CASE WHEN {start} < 1 THEN 0 WHEN {part} = '' THEN 1 {index} END AS INTEGER)"


def substring_index(call: Call, arg: str, delimiter: str, count: str) -> str:
    number = int(_value(call, 2))
    if number == 0 or not _value(call, 1):
        return f"substring({arg}, 1, 0)"
    cut = f"[1:{number}]" if number > 0 else f"[{number}:]"
    return f"array_to_string(string_split({arg}, {delimiter}){cut}, {delimiter})"


def split_part(call: Call, arg: str, delimiter: str, index: str) -> str:
    """Spark does not split by an empty delimiter."""
    unsplit = arg if int(_value(call, 2)) in (1, -1) else f"substring({arg}, 1, 0)"
    return f"(CASE WHEN {delimiter} = '' THEN {unsplit} ELSE split_part({arg}, {delimiter}, {index}) END)"


def like(call: Call, arg: str, pattern: str) -> str:
    escape = r" ESCAPE '\'" if "\\" in _value(call, 1) else ""
    return f"({arg} LIKE {pattern}{escape})"


def whole(call: Call, arg: str) -> str:
    """Spark returns 0 for NaN; what does not fit BIGINT fails."""
    match call.args[0].type.kind:
        case "BIGINT":
            return arg
        case "DECIMAL":
            return f"CAST({call.name}({arg}) AS {call.type.duckdb})"
    return f"(CASE WHEN isnan({arg}) THEN CAST(0 AS BIGINT) ELSE CAST({call.name}({arg}) AS BIGINT) END)"


def pmod(call: Call, left: str, right: str) -> str:
    """Java adds a negative divisor to a negative remainder with wrapping, and takes the remainder once more."""
    failure = f"CAST('division by zero' AS {call.type.duckdb})"
    divisor = f"CAST(CASE WHEN {right} = 0 THEN {failure} ELSE {right} END AS HUGEINT)"
    rest = f"(CAST({left} AS HUGEINT) % {divisor})"
    again = f"{_wrapped(f'({rest} + {divisor})', call.type)} % {divisor}"
    return f"CAST(CASE WHEN {rest} < 0 THEN {again} ELSE {rest} END AS {call.type.duckdb})"


def _wrapped(huge: str, type_: SqlType) -> str:
    """A HUGEINT as Java's int or long holds it."""
    half = f"CAST('{2 ** (_SIGNED[type_.kind] - 1)}' AS HUGEINT)"
    span = f"CAST('{2 ** _SIGNED[type_.kind]}' AS HUGEINT)"
    return f"(((({huge} + {half}) % {span}) + {span}) % {span} - {half})"


def _places(call: Call) -> int:
    """Java takes the count of a shift modulo the width."""
    return int(_value(call, 1)) % _SIGNED[call.type.kind]


def shift_left(call: Call, arg: str, count: str) -> str:
    product = f"(CAST({arg} AS HUGEINT) * CAST('{2 ** _places(call)}' AS HUGEINT))"
    return f"CAST({_wrapped(product, call.type)} AS {call.type.duckdb})"


def shift_right(call: Call, arg: str, count: str) -> str:
    return f"CAST({arg} >> {_places(call)} AS {call.type.duckdb})"
