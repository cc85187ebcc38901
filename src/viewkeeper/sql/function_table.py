"""The table of functions: a row for each, from which calls are bound, DuckDB SQL is written and docs/sql.md is made.

In: bound arguments, for rules. Out: `SCALARS` by the names in bound calls, `NAMED` by the names that users call. Always:
a function has Spark's names, types, values and order of evaluation; what engines compute to different bits (powers,
logarithms, rounding of DOUBLE) is not here. A new function is a row, with a rule where types and a template do not do.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.algebra import construct, decimals
from viewkeeper.algebra.expressions import Call, Expression, Literal, children
from viewkeeper.algebra.type_rules import DIGITS_MAX
from viewkeeper.codegen import function_texts as texts
from viewkeeper.codegen import letter_case
from viewkeeper.errors import UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, SqlType, decimal
from viewkeeper.sql.function_rows import (
    DATE_UNITS,
    INT_MAX,
    NEVER,
    PROPAGATED,
    SEPARATED,
    SKIPPED,
    TIME_UNITS,
    Function,
    Gives,
    Rewrite,
    alike,
    bits,
    characters,
    date,
    delimiter,
    double,
    exact,
    fixed_text,
    instant,
    integer,
    integers,
    long,
    moment,
    number,
    read_text,
    text,
    text_or_bytes,
    unit,
    whole,
)

WIDTH_MAX = 10_000  # of padding and repetition: a row must not grow to gigabytes


def _whole_type(args: Sequence[Expression]) -> SqlType:
    type_ = args[0].type
    if type_.kind != "DECIMAL":
        return types.BIGINT
    return type_ if type_.scale == 0 else decimal(type_.whole_digits + 1, 0)


def _rounded_type(args: Sequence[Expression]) -> SqlType:
    type_, digits = args[0].type, int(str(args[1].value))  # type: ignore[union-attr]
    if type_.is_integer:
        return type_
    scale = min(type_.scale, digits)
    return decimal(min(type_.whole_digits + 1 + scale, DIGITS_MAX), scale)


def _repeated_type(args: Sequence[Expression]) -> SqlType:
    times = _repetitions(Call("repeat", tuple(args), types.STRING, nullable=True))
    if times > WIDTH_MAX:
        raise UnsupportedSql(f"repeat within repeat makes {times:,} copies", f"{WIDTH_MAX:,} are the most")
    return types.STRING


def _repetitions(expression: Expression) -> int:
    """How many copies of a text calls of `repeat` within one another make."""
    inner = max(map(_repetitions, children(expression)), default=1)
    is_repeat = isinstance(expression, Call) and expression.name == "repeat"
    return inner * max(1, int(str(expression.args[1].value))) if is_repeat else inner  # type: ignore[union-attr]


REPEATED = Gives("STRING", _repeated_type)
FIRST = Gives("that of x", lambda args: args[0].type)
WIDER = Gives("the wider", lambda args: args[0].type)
COMMON = Gives("that type", lambda args: args[0].type)
WHOLE = Gives("BIGINT; DECIMAL(p−s+1,0) of DECIMAL(p,s)", _whole_type)
ROUNDED = Gives("that of x; DECIMAL(p−s+1+n,n) of DECIMAL(p,s)", _rounded_type)


def is_double(args: Sequence[Expression]) -> bool:
    return args[0].type.kind == "DOUBLE"


def is_not_null(arg: Expression) -> Expression:
    return construct.negation(construct.is_null(arg))


def decode(args: Sequence[Expression]) -> Expression:
    """Without the last argument Spark uses a NULL of type STRING, which changes the type of numbers."""
    if len(args) % 2:
        raise UnsupportedSql("decode needs its last argument, the value for all others", "write NULL there")
    pairs = zip(args[1::2], args[2::2], strict=False)
    branches = [(construct.compare("<=>", args[0], sought), value) for sought, value in pairs]
    return construct.case(branches, args[-1])


def nanvl(args: Sequence[Expression]) -> Expression:
    left, right = (double.take(arg, "nanvl") for arg in args)
    return construct.case([(Call("isnan", (left,), types.BOOLEAN, nullable=False), right)], left)


_ANY_NUMBER = number(-INT_MAX, INT_MAX)
# DuckDB refuses an empty pad; Spark then only truncates.
_PAD = "(CASE WHEN {2} = '' OR length({0}) >= {1} THEN substring({0}, 1, {1}) ELSE {name}({0}, {1}, {2}) END)"
# By code points; DuckDB's own reverse keeps graphemes whole.
_REVERSE = "array_to_string(list_reverse(string_split({0}, '')), '')"
_ONE = "CAST(1 AS DOUBLE)"
_SIGN = f"(CASE WHEN isnan({{0}}) THEN {{0}} WHEN {{0}} > 0 THEN {_ONE} WHEN {{0}} < 0 THEN -{_ONE} ELSE {{0}} END)"
_LAST = "CASE WHEN {1} < 0 THEN length({0}) WHEN length({0}) > {1} THEN length({0}) - {1} ELSE 0 END"
_FIELD = "CAST({name}({0}) + 0 AS INTEGER)"
_SECOND = decimals.scaled("CAST(microsecond({0}) AS HUGEINT)", decimal(8, 6))
_PLACE = number(-INT_MAX, INT_MAX, but=0, hint="counts from 1, or from the end from -1")
_MIXED = "parentheses are required where operators are mixed"
_FOUND = "from 1, 0 when there is none"
_FROM_END = "a negative n counts from the end"
_YEARS = "outside the years 1 to 9999"

Rows = tuple[Function | Rewrite, ...]

# fmt: off
NUMBERS: Rows = (
    Function("sign", "x", (double,), DOUBLE, _SIGN, also="signum"),
    Function("sqrt", "x", (double,), DOUBLE, "(CASE WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({0}) END)",
             notes="NaN of less than 0"),
    Function("floor", "x", (whole,), WHOLE, texts.whole, fails="on overflow of DOUBLE", can_fail=is_double,
             notes="0 of NaN"),
    Function("ceil", "x", (whole,), WHOLE, texts.whole, fails="on overflow of DOUBLE", can_fail=is_double,
             notes="0 of NaN", also="ceiling"),
    Function("round", "x [, n]", (exact, number(0, DIGITS_MAX)), ROUNDED, "CAST({0} AS {type})",
             default=Literal(0, INT), notes="half up"),
    Function("pmod", "a, b", integers, WIDER, texts.pmod, fails="when b is 0", divides=True,
             can_fail=lambda args: not construct.is_nonzero(args[1]), notes="not negative if b is positive"),
    Function("&", "a, b", integers, WIDER, "({0} & {1})", syntax="a & b", notes=_MIXED),
    Function("|", "a, b", integers, WIDER, "({0} | {1})", syntax="a | b", notes=_MIXED),
    Function("^", "a, b", integers, WIDER, "xor({0}, {1})", syntax="a ^ b", notes=_MIXED),
    Function("~", "x", (bits,), FIRST, "(~ {0})", syntax="~x"),
    Function("shiftleft", "x, n", (bits, number(0, 63)), FIRST, texts.shift_left,
             notes="also `x << n`; bits are lost as in Java"),
    Function("shiftright", "x, n", (bits, number(0, 63)), FIRST, texts.shift_right,
             notes="also `x >> n`; the sign is kept"),
    Function("isnan", "x", (double,), BOOLEAN, "coalesce(isnan({0}), FALSE)", nulls=NEVER),
    Rewrite("nanvl", "x, y", nanvl, "a number", "DOUBLE", notes="y if x is NaN"),
)
CHOICES: Rows = (
    Function("greatest", "a, b, …", alike, COMMON, "greatest({all})", nulls=SKIPPED, notes="NaN is greatest"),
    Function("least", "a, b, …", alike, COMMON, "least({all})", nulls=SKIPPED),
    Rewrite("nvl2", "x, a, b", lambda args: construct.case([(is_not_null(args[0]), args[1])], args[2]),
            "any", "the common type of a and b", notes="a if x is not NULL, else b"),
    Rewrite("decode", "x, a, value, …, other", decode, "any", "the common type of the values",
            notes="NULL matches NULL"),
    Rewrite("isnull", "x", lambda args: construct.is_null(args[0]), "any", "BOOLEAN", notes="never NULL"),
    Rewrite("isnotnull", "x", lambda args: is_not_null(args[0]), "any", "BOOLEAN", notes="never NULL"),
)
STRINGS: Rows = (
    Function("length", "s", (text_or_bytes,), INT, texts.length, also="char_length character_length len",
             notes="bytes of BINARY"),
    Function("octet_length", "s", (text_or_bytes,), INT, lambda call, arg: f"CAST({texts.octets(call, arg)} AS INTEGER)"),
    Function("bit_length", "s", (text_or_bytes,), INT, lambda call, arg: f"CAST({texts.octets(call, arg)} * 8 AS INTEGER)"),
    Function("substring", "s, start [, length]", (text, integer, integer), STRING, texts.substring,
             syntax="SUBSTRING(s, start [, length])", also="substr", notes="a negative start counts from the end"),
    Function("left", "s, n", (text, integer), STRING, "substring({0}, 1, CASE WHEN {1} < 0 THEN 0 ELSE {1} END)"),
    Function("right", "s, n", (text, integer), STRING, f"substring({{0}}, {_LAST} + 1)"),
    Function("trim", "s [, chars]", (text, fixed_text), STRING, texts.trim, syntax="TRIM([BOTH] [chars FROM] s)",
             notes="without characters blanks, here and below"),
    Function("ltrim", "s [, chars]", (text, fixed_text), STRING, texts.trim, syntax="TRIM(LEADING [chars FROM] s)"),
    Function("rtrim", "s [, chars]", (text, fixed_text), STRING, texts.trim, syntax="TRIM(TRAILING [chars FROM] s)"),
    Rewrite("btrim", "s [, chars]", lambda args: SCALARS["trim"].bind(args), "STRING; a literal", "STRING"),
    Rewrite("ltrim", "[chars,] s", lambda args: SCALARS["ltrim"].bind(args[::-1]), "a literal; STRING", "STRING"),
    Rewrite("rtrim", "[chars,] s", lambda args: SCALARS["rtrim"].bind(args[::-1]), "a literal; STRING", "STRING"),
    Function("like", "s, pattern", (text, fixed_text), BOOLEAN, texts.like, syntax="s LIKE pattern [ESCAPE c]",
             notes="the escape, by default `\\\\`, precedes `%`, `_` or itself"),
    Function("upper", "s", (text,), STRING, lambda call, arg: letter_case.upper(arg), also="ucase",
             notes="full mappings of Unicode 17, independent of language: `ß` becomes `SS`"),
    Function("lower", "s", (text,), STRING, lambda call, arg: letter_case.lower(arg), also="lcase",
             notes="full mappings of Unicode 17, independent of language: a final `Σ` becomes `ς`"),
    Function("replace", "s, a [, b]", (text, text, text), STRING, "replace({0}, {1}, {2})", default=Literal("", STRING)),
    Function("translate", "s, from, to", (text, fixed_text, characters), STRING, "translate({0}, {1}, {2})",
             notes="each character of `from` becomes that of `to` in its place, or nothing"),
    Function("reverse", "s", (text,), STRING, _REVERSE),
    Function("lpad", "s, n [, pad]", (text, number(0, WIDTH_MAX), text), STRING, _PAD, default=Literal(" ", STRING)),
    Function("rpad", "s, n [, pad]", (text, number(0, WIDTH_MAX), text), STRING, _PAD, default=Literal(" ", STRING)),
    Function("repeat", "s, n", (text, number(-INT_MAX, WIDTH_MAX)), REPEATED, "repeat({0}, {1})"),
    Function("instr", "s, part", (text, text), INT, "CAST(instr({0}, {1}) AS INTEGER)", notes=_FOUND),
    Function("locate", "part, s [, start]", (text, text, _ANY_NUMBER), INT, texts.locate,
             notes=f"also `POSITION(part IN s)`; {_FOUND}"),
    Function("startswith", "s, t", (text, text), BOOLEAN, "starts_with({0}, {1})"),
    Function("endswith", "s, t", (text, text), BOOLEAN, "ends_with({0}, {1})"),
    Function("contains", "s, t", (text, text), BOOLEAN, "contains({0}, {1})"),
    Function("concat", "a, …", (text,), STRING, lambda call, *args: f"({' || '.join(args)})", nulls=PROPAGATED,
             syntax="CONCAT(a, …)", notes="also `a || b`"),
    Function("concat_ws", "sep, a, …", (text,), STRING, "concat_ws({all})", nulls=SEPARATED),
    Function("split_part", "s, sep, n", (text, text, _PLACE), STRING, texts.split_part, notes=_FROM_END),
    Function("substring_index", "s, sep, n", (text, delimiter, _ANY_NUMBER), STRING, texts.substring_index,
             notes=f"what comes before the n-th separator; {_FROM_END}, and gives what comes after"),
    Function("ascii", "s", (text,), INT, "CAST(ascii({0}) AS INTEGER)", notes="the first code point, 0 of ''"),
    Function("chr", "n", (long,), STRING, "(CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} & 255 AS INTEGER)) END)",
             also="char", notes="n modulo 256, '' below 0"),
)
DATES: Rows = (
    Function("year", "d", (date,), INT, _FIELD, parts="year years y yr yrs"),
    Function("quarter", "d", (date,), INT, _FIELD, parts="quarter qtr"),
    Function("month", "d", (date,), INT, _FIELD, parts="month mon mons months"),
    Function("weekofyear", "d", (date,), INT, "CAST(week({0}) + 0 AS INTEGER)", parts="week w weeks", notes="as in ISO 8601"),
    Function("day", "d", (date,), INT, _FIELD, also="dayofmonth", parts="day d days"),
    Function("dayofyear", "d", (date,), INT, _FIELD, parts="doy"),
    Function("dayofweek", "d", (date,), INT, "CAST(dayofweek({0}) + 1 AS INTEGER)", parts="dayofweek dow",
             notes="1 is Sunday"),
    Function("weekday", "d", (date,), INT, "CAST(isodow({0}) + -1 AS INTEGER)", notes="0 is Monday"),
    Function("hour", "t", (moment,), INT, _FIELD, parts="hour h hours hr hrs"),
    Function("minute", "t", (moment,), INT, _FIELD, parts="minute m min mins minutes"),
    Function("second", "t", (moment,), INT, _FIELD),
    Function("extract_second", "t", (moment,), decimal(8, 6), _SECOND, parts="second s sec seconds secs",
             syntax="EXTRACT(SECOND FROM t)", notes="with the fraction"),
    Function("dayofweek_iso", "d", (date,), INT, "CAST(isodow({0}) + 0 AS INTEGER)", parts="dayofweek_iso dow_iso",
             syntax="EXTRACT(DOW_ISO FROM d)", notes="1 is Monday"),
    Function("yearofweek", "d", (date,), INT, "CAST(isoyear({0}) + 0 AS INTEGER)", parts="yearofweek",
             syntax="EXTRACT(YEAROFWEEK FROM d)", notes="the year of WEEKOFYEAR"),
    Rewrite("date_part", "part, x", lambda args: extract(read_text(args[0], "date_part"), args[1]),
            "a literal; DATE or TIMESTAMP", "INT; DECIMAL(8,6) of SECOND", also="datepart",
            notes="as `EXTRACT(part FROM x)`, which has the parts above"),
    Function("date_trunc", "unit, t", (unit(TIME_UNITS), moment), TIMESTAMP, texts.date_trunc),
    Function("trunc", "d, unit", (date, unit(DATE_UNITS)), DATE, texts.trunc),
    Function("last_day", "d", (date,), DATE, "last_day({0})", notes="of the month"),
    Function("date_add", "d, n", (date, integer), DATE, texts.shifted("+"), fails=_YEARS, also="dateadd",
             notes="also `d + n`; `d + INTERVAL n DAY` or `WEEK`"),
    Function("date_sub", "d, n", (date, integer), DATE, texts.shifted("-"), fails=_YEARS, notes="also `d - n`"),
    Function("add_months", "d, n", (date, integer), DATE, texts.ADD_MONTHS, fails=_YEARS,
             notes="also `d + INTERVAL n MONTH` or `YEAR`"),
    Function("timestamp_add_months", "t, n", (instant, integer), TIMESTAMP, texts.ADD_MONTHS, fails=_YEARS,
             syntax="t + INTERVAL n MONTH", notes="or `YEAR`"),
    Function("timestamp_add_micros", "t, n", (moment, long), TIMESTAMP, texts.ADD_MICROS, fails=_YEARS,
             syntax="t + INTERVAL n SECOND", notes="or `MINUTE`, `HOUR`; of TIMESTAMP also `DAY`, `WEEK`"),
    Function("datediff", "end, start", (date, date), INT, "CAST({0} - {1} AS INTEGER)", also="date_diff", notes="days"),
    Rewrite("to_date", "x", lambda args: construct.cast(args[0], DATE), "STRING, DATE or TIMESTAMP", "DATE", fails="as CAST"),
    Function("make_date", "y, m, d", (integer, integer, integer), DATE,
             texts.within("{0}", (1, 9999), "make_date({0}, {1}, {2})"), fails="when there is no such date"),
    Function("unix_seconds", "t", (instant,), BIGINT, texts.to_epoch(1_000_000), notes="rounded down"),
    Function("unix_millis", "t", (instant,), BIGINT, texts.to_epoch(1000), notes="rounded down"),
    Function("unix_micros", "t", (instant,), BIGINT, "epoch_us({0})"),
    Function("unix_date", "d", (date,), INT, f"CAST({{0}} - {texts.EPOCH} AS INTEGER)", notes="days since 1970-01-01"),
    Function("timestamp_seconds", "n", (long,), TIMESTAMP, texts.from_epoch(1_000_000), fails=_YEARS),
    Function("timestamp_millis", "n", (long,), TIMESTAMP, texts.from_epoch(1000), fails=_YEARS),
    Function("timestamp_micros", "n", (long,), TIMESTAMP, texts.from_epoch(1), fails=_YEARS),
    Function("date_from_unix_date", "n", (integer,), DATE, texts.within("{0}", texts.DAYS, f"({texts.EPOCH} + {{0}})"),
             fails=_YEARS),
)
# fmt: on
SECTIONS: dict[str, Rows] = {"numbers": NUMBERS, "any type": CHOICES, "strings": STRINGS, "dates and times": DATES}
_ROWS = [row for rows in SECTIONS.values() for row in rows]
SCALARS: dict[str, Function] = {row.name: row for row in _ROWS if isinstance(row, Function)}
NAMED: dict[str, Function | Rewrite] = {name: row for row in _ROWS for name in row.names}
_PARTS = {word: row for row in SCALARS.values() for word in row.parts.split()}


def extract(field: str, arg: Expression) -> Expression:
    """EXTRACT(field FROM arg)."""
    if field.lower() not in _PARTS:
        raise UnsupportedSql(f"EXTRACT({field} FROM …) is not supported", "write YEAR, MONTH, DAY, HOUR, …")
    return _PARTS[field.lower()].bind([arg])
