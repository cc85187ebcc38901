"""DuckDB SQL of functions.

In: a bound call, and the SQL of its arguments. Out: SQL of the same value. Always: NULL arguments yield NULL without a
failure, in Spark's order of evaluation; an argument that is long or may fail is written once, under a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from viewkeeper.codegen import decimals, letter_case_sql
from viewkeeper.errors import InvariantBroken
from viewkeeper.model import types
from viewkeeper.model.types import SqlType
from viewkeeper.sql.expressions import Call, Expression, Literal

_SHORT = 60  # characters of SQL that may be written several times
# In days, months and microseconds: the years 1 to 9999.
_DAYS = (-719_162, 2_932_896)
_MONTHS = (12, 119_999)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_EPOCH = "CAST('1970-01-01' AS DATE)"
_SIGNED = {"INT": 32, "BIGINT": 64}


def emit_function(call: Call, sqls: Sequence[str]) -> str:
    template = _TEMPLATES.get(call.name)
    if template is None:
        raise InvariantBroken(f"no DuckDB SQL for {call.name}")
    if call.name in _NULLS_TAKEN:
        return template(call, *sqls)
    order = range(len(sqls)) if call.name != "pmod" else (1, 0)  # Spark evaluates the divisor first
    short = call.name not in _NAMED and all(
        len(sql) <= _SHORT and not arg.fallible for sql, arg in zip(sqls, call.args, strict=True)
    )
    names = list(sqls) if short else [f"x.a{place}" for place in range(len(sqls))]
    body = template(call, *names)
    if len(sqls) > 1:
        body = _null_of(body, [names[place] for place in order if call.args[place].nullable])
    if short:
        return body
    fields = ", ".join(f"'a{place}': {sql}" for place, sql in enumerate(sqls))
    whole = f"list_transform([{{{fields}}}], lambda x: {body})[1]"
    return _null_of(whole, _stops(call.args, sqls, order))


def _stops(args: Sequence[Expression], sqls: Sequence[str], order: Sequence[int]) -> list[str]:
    """The arguments that keep later ones from failing if they are NULL."""
    later = [any(args[place].fallible for place in order[rank + 1 :]) for rank in range(len(order))]
    return [sqls[place] for place, failing in zip(order, later, strict=True) if args[place].nullable and failing]


def _null_of(body: str, sqls: Sequence[str]) -> str:
    if not sqls:
        return body
    return f"(CASE {' '.join(f'WHEN {sql} IS NULL THEN NULL' for sql in sqls)} ELSE {body} END)"


def _within(value: str, bounds: tuple[int, int], then: str, type_: SqlType) -> str:
    """`then` if the value is within bounds, NULL for NULL, else a failure."""
    failure = f"CAST('out of range' AS {type_.duckdb})"
    return f"(CASE WHEN {value} BETWEEN {bounds[0]} AND {bounds[1]} THEN {then} WHEN {value} IS NOT NULL THEN {failure} END)"


def _field(function: str, plus: int = 0) -> Callable[..., str]:
    return lambda call, arg: f"CAST({function}({arg}) + {plus} AS INTEGER)"


def _extract_second(call: Call, arg: str) -> str:
    return decimals.scaled(f"CAST(microsecond({arg}) AS HUGEINT)", call.type)


def _unit(call: Call, place: int) -> str:
    unit = call.args[place]
    if not isinstance(unit, Literal):
        raise InvariantBroken(f"the unit of {call.text} is no literal")
    return f"'{unit.value!s}'"


def _days(date: str) -> str:
    return f"CAST({date} - {_EPOCH} AS BIGINT)"


def _date_add(call: Call, date: str, days: str) -> str:
    return _within(f"({_days(date)} + {days})", _DAYS, f"({date} + {days})", call.type)


def _date_sub(call: Call, date: str, days: str) -> str:
    return _within(f"({_days(date)} - {days})", _DAYS, f"({date} - {days})", call.type)


def _add_months(call: Call, moment: str, months: str) -> str:
    month = f"(year({moment}) * 12 + month({moment}) - 1 + {months})"
    return _within(month, _MONTHS, f"CAST({moment} + to_months({months}) AS {call.type.duckdb})", call.type)


def _add_micros(call: Call, moment: str, micros: str) -> str:
    sum_ = f"(epoch_us({moment}) + {micros})"
    return _within(sum_, _MICROS, f"make_timestamp({sum_})", call.type)


def _from_epoch(unit: int) -> Callable[..., str]:
    """A TIMESTAMP from a count of units of so many microseconds."""
    bounds = (-(-_MICROS[0] // unit), _MICROS[1] // unit)
    return lambda call, arg: _within(arg, bounds, f"make_timestamp({arg} * {unit})", call.type)


def _to_epoch(unit: int) -> Callable[..., str]:
    """Units since 1970, rounded down: (v - v mod unit) / unit, with a remainder that is never negative."""

    def emit(call: Call, arg: str) -> str:
        micros = f"epoch_us({arg})"
        return f"(({micros} - (({micros} % {unit}) + {unit}) % {unit}) // {unit})"

    return emit


def _make_date(call: Call, year: str, month: str, day: str) -> str:
    return _within(year, (1, 9999), f"make_date({year}, {month}, {day})", call.type)


def _octets(call: Call, arg: str) -> str:
    return f"octet_length({arg})" if call.args[0].type == types.BINARY else f"strlen({arg})"


def _length(call: Call, arg: str) -> str:
    return f"CAST({_octets(call, arg) if call.args[0].type == types.BINARY else f'length({arg})'} AS INTEGER)"


def _substring(call: Call, arg: str, start: str, length: str | None = None) -> str:
    """Spark counts from 1, from the end if negative, and 0 is 1; positions before the string use up length.

    Without a length it is the greatest INT, which from far before the string may end within it.
    """
    if all(isinstance(part, Literal) and int(str(part.value or 0)) > 0 for part in call.args[1:]):
        return f"substring({arg}, {start}{', ' + length if length else ''})"
    first = f"CASE WHEN {start} > 0 THEN {start} - 1 WHEN {start} < 0 THEN length({arg}) + {start} ELSE 0 END"
    begin = "CASE WHEN i < 0 THEN 0 ELSE i END"
    count = f"i + CAST({length or 2**31 - 1} AS BIGINT) - {begin}"
    taken = f"substring({arg}, {begin} + 1, CASE WHEN {count} < 0 THEN 0 ELSE {count} END)"
    return f"list_transform([CAST({first} AS BIGINT)], lambda i: {taken})[1]"


def _left(call: Call, arg: str, count: str) -> str:
    return f"substring({arg}, 1, CASE WHEN {count} < 0 THEN 0 ELSE {count} END)"


def _right(call: Call, arg: str, count: str) -> str:
    place = (
        f"CASE WHEN {count} < 0 THEN length({arg}) WHEN length({arg}) > {count} THEN length({arg}) - {count} ELSE 0 END"
    )
    return f"substring({arg}, {place} + 1)"


def _pad(call: Call, arg: str, width: str, pad: str) -> str:
    """DuckDB refuses an empty pad; Spark then only truncates."""
    cut = f"substring({arg}, 1, {width})"
    return f"(CASE WHEN {pad} = '' OR length({arg}) >= {width} THEN {cut} ELSE {call.name}({arg}, {width}, {pad}) END)"


def _trim(call: Call, arg: str, characters: str = "' '") -> str:
    return f"{call.name}({arg}, {characters})"


def _reverse(call: Call, arg: str) -> str:
    """By code points; DuckDB's own reverse keeps graphemes whole."""
    return f"array_to_string(list_reverse(string_split({arg}, '')), '')"


def _locate(call: Call, part: str, arg: str, start: str = "1") -> str:
    """Spark finds the empty string at 1, from wherever the search starts; it finds nothing before 1."""
    found = f"instr(substring({arg}, {start}), {part})"
    if len(call.args) == 2:
        return f"CAST(instr({arg}, {part}) AS INTEGER)"
    place = (
        f"CASE WHEN {start} < 1 THEN 0 WHEN {part} = '' THEN 1 WHEN {found} = 0 THEN 0 ELSE {found} + {start} - 1 END"
    )
    return f"CAST({place} AS INTEGER)"


def _substring_index(call: Call, arg: str, delimiter: str, count: str) -> str:
    number = int(str(call.args[2].value))  # type: ignore[union-attr]
    if number == 0 or not call.args[1].value:  # type: ignore[union-attr]
        return f"substring({arg}, 1, 0)"
    cut = f"[1:{number}]" if number > 0 else f"[{number}:]"
    return f"array_to_string(string_split({arg}, {delimiter}){cut}, {delimiter})"


def _split_part(call: Call, arg: str, delimiter: str, place: str) -> str:
    """Spark does not split by an empty delimiter."""
    unsplit = arg if int(str(call.args[2].value)) in (1, -1) else f"substring({arg}, 1, 0)"  # type: ignore[union-attr]
    return f"(CASE WHEN {delimiter} = '' THEN {unsplit} ELSE split_part({arg}, {delimiter}, {place}) END)"


def _chr(call: Call, arg: str) -> str:
    return f"(CASE WHEN {arg} < 0 THEN '' ELSE chr(CAST({arg} & 255 AS INTEGER)) END)"


def _like(call: Call, arg: str, pattern: str) -> str:
    escape = r" ESCAPE '\'" if "\\" in str(call.args[1].value) else ""  # type: ignore[union-attr]
    return f"({arg} LIKE {pattern}{escape})"


def _sign(call: Call, arg: str) -> str:
    one = "CAST(1 AS DOUBLE)"
    return f"(CASE WHEN isnan({arg}) THEN {arg} WHEN {arg} > 0 THEN {one} WHEN {arg} < 0 THEN -{one} ELSE {arg} END)"


def _sqrt(call: Call, arg: str) -> str:
    return f"(CASE WHEN {arg} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({arg}) END)"


def _whole(call: Call, arg: str) -> str:
    """Spark returns 0 for NaN; what does not fit BIGINT fails."""
    match call.args[0].type.kind:
        case "BIGINT":
            return arg
        case "DECIMAL":
            return f"CAST({call.name}({arg}) AS {call.type.duckdb})"
    return f"(CASE WHEN isnan({arg}) THEN CAST(0 AS BIGINT) ELSE CAST({call.name}({arg}) AS BIGINT) END)"


def _round(call: Call, arg: str, digits: str) -> str:
    return f"CAST({arg} AS {call.type.duckdb})"


def _pmod(call: Call, left: str, right: str) -> str:
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


def _shift_left(call: Call, arg: str, count: str) -> str:
    places = int(str(call.args[1].value)) % _SIGNED[call.type.kind]  # type: ignore[union-attr]
    product = f"(CAST({arg} AS HUGEINT) * CAST('{2**places}' AS HUGEINT))"
    return f"CAST({_wrapped(product, call.type)} AS {call.type.duckdb})"


def _shift_right(call: Call, arg: str, count: str) -> str:
    places = int(str(call.args[1].value)) % _SIGNED[call.type.kind]  # type: ignore[union-attr]
    return f"CAST({arg} >> {places} AS {call.type.duckdb})"


def _all(name: str) -> Callable[..., str]:
    return lambda call, *args: f"{name}({', '.join(args)})"


def _infix(operator: str) -> Callable[..., str]:
    return lambda call, left, right: f"({left} {operator} {right})"


# A constant that fails must not be in a WHEN, where DuckDB evaluates it before any row; a name is not a constant.
_NAMED = frozenset({"pmod"})
# They handle NULL themselves.
_NULLS_TAKEN = frozenset({"concat_ws", "greatest", "least", "isnan"})
_TEMPLATES: dict[str, Callable[..., str]] = {
    **{name: _field(name) for name in ("year", "month", "day", "quarter", "dayofyear", "hour", "minute", "second")},
    "weekofyear": _field("week"),
    "dayofweek": _field("dayofweek", 1),
    "dayofweek_iso": _field("isodow"),
    "weekday": _field("isodow", -1),
    "yearofweek": _field("isoyear"),
    "extract_second": _extract_second,
    "date_trunc": lambda call, unit, arg: f"date_trunc({_unit(call, 0)}, {arg})",
    "trunc": lambda call, arg, unit: f"CAST(date_trunc({_unit(call, 1)}, {arg}) AS DATE)",
    "date_add": _date_add,
    "date_sub": _date_sub,
    "datediff": lambda call, end, start: f"CAST({end} - {start} AS INTEGER)",
    "add_months": _add_months,
    "timestamp_add_months": _add_months,
    "timestamp_add_micros": _add_micros,
    "last_day": _all("last_day"),
    "unix_seconds": _to_epoch(1_000_000),
    "unix_millis": _to_epoch(1000),
    "unix_micros": _all("epoch_us"),
    "unix_date": lambda call, arg: f"CAST({arg} - {_EPOCH} AS INTEGER)",
    "date_from_unix_date": lambda call, arg: _within(arg, _DAYS, f"({_EPOCH} + {arg})", call.type),
    "timestamp_seconds": _from_epoch(1_000_000),
    "timestamp_millis": _from_epoch(1000),
    "timestamp_micros": _from_epoch(1),
    "make_date": _make_date,
    "length": _length,
    "octet_length": lambda call, arg: f"CAST({_octets(call, arg)} AS INTEGER)",
    "bit_length": lambda call, arg: f"CAST({_octets(call, arg)} * 8 AS INTEGER)",
    "substring": _substring,
    "trim": _trim,
    "ltrim": _trim,
    "rtrim": _trim,
    "like": _like,
    "upper": lambda call, arg: letter_case_sql.upper(arg),
    "lower": lambda call, arg: letter_case_sql.lower(arg),
    "replace": _all("replace"),
    "left": _left,
    "right": _right,
    "lpad": _pad,
    "rpad": _pad,
    "repeat": _all("repeat"),
    "reverse": _reverse,
    "instr": lambda call, arg, part: f"CAST(instr({arg}, {part}) AS INTEGER)",
    "locate": _locate,
    "startswith": _all("starts_with"),
    "endswith": _all("ends_with"),
    "contains": _all("contains"),
    "concat_ws": _all("concat_ws"),
    "substring_index": _substring_index,
    "split_part": _split_part,
    "ascii": lambda call, arg: f"CAST(ascii({arg}) AS INTEGER)",
    "chr": _chr,
    "translate": _all("translate"),
    "sign": _sign,
    "sqrt": _sqrt,
    "floor": _whole,
    "ceil": _whole,
    "round": _round,
    "pmod": _pmod,
    "&": _infix("&"),
    "|": _infix("|"),
    "^": _all("xor"),
    "~": lambda call, arg: f"(~ {arg})",
    "shiftleft": _shift_left,
    "shiftright": _shift_right,
    "greatest": _all("greatest"),
    "least": _all("least"),
    "isnan": lambda call, arg: f"coalesce(isnan({arg}), FALSE)",
}
