"""Literals: a constant of the text, as a Python value and a SQL type.

In: a node of sqlglot's tree, or the text of a string. Out: `(value, type)`, or None when the node is not a literal.
Always: the type is the one that Spark's parser gives to the same characters.
"""

from __future__ import annotations

import datetime
import decimal
import re

from sqlglot import exp

from viewkeeper.errors import SqlError, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.syntax import WRITTEN, Value
from viewkeeper.model.types import SqlType

# The type of NULL until its context gives it one; no column ever has it.
VOID = SqlType("VOID")

_ALL_DIGITS = decimal.Context(prec=38)  # a minus by itself rounds to 28
_INT_MAX = 2**31 - 1
_BIGINT_MAX = 2**63 - 1
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_TIMESTAMP = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6}))?(Z|[+-]\d{2}:\d{2})?)?")
_CHARACTERS = re.compile(r"(?:VARCHAR|CHAR|CHARACTER)\s*\(\s*\d+\s*\)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def read_literal(node: exp.Expression) -> tuple[Value, SqlType] | None:
    """The constant that `node` is: a literal, a negative number, DATE '…', TIMESTAMP '…', X'…', 1L, 1.5BD."""
    match node:
        case exp.Null():
            return None, VOID
        case exp.Boolean():
            return bool(node.this), types.BOOLEAN
        case exp.Literal(is_string=True):
            return node.this, types.STRING
        case exp.Literal():
            return read_number(node.this)
        case exp.Neg(this=exp.Literal(is_string=False)):
            return read_number("-" + node.this.this)
        case exp.HexString():
            return _bytes(node.this), types.BINARY
        case exp.Concat() if not node.args.get("safe") and all(e.is_string for e in node.expressions):
            return "".join(e.this for e in node.expressions), types.STRING  # 'a' 'b' is one literal in Spark
        case exp.Cast() if isinstance(node.this, exp.Literal):
            return _cast_literal(node)
        case exp.Neg(this=exp.Cast()) if isinstance(node.this.this, exp.Literal):
            # -1L, -2D: a suffix is a cast in sqlglot's tree.
            inner = _cast_literal(node.this)
            match inner:
                case (decimal.Decimal() as value, type_):
                    return _ALL_DIGITS.minus(value), type_
                case (int() | float() as number, type_):
                    return -number, type_
            return None
    return None


def read_number(text: str) -> tuple[Value, SqlType]:
    """Spark's reading: INT, else BIGINT, else DECIMAL; with an exponent DOUBLE."""
    if "e" in text.lower():
        return _double(text), types.DOUBLE
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        if -_INT_MAX - 1 <= number <= _INT_MAX:
            return number, types.INT
        if -_BIGINT_MAX - 1 <= number <= _BIGINT_MAX:
            return number, types.BIGINT
    return _decimal(text)


def _double(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise SqlError(f"the number {text} is outside DOUBLE")
    return number


def _decimal(text: str) -> tuple[decimal.Decimal, SqlType]:
    number = _exact(text)
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or exponent > 0:
        raise SqlError(f"the number {text} cannot be read as DECIMAL")
    precision = max(len(digits), -exponent)
    if precision > 38:
        raise SqlError(f"the number {text} has {precision} digits", "DECIMAL holds 38")
    return number, types.decimal(precision, -exponent)


def _exact(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent of twenty digits
        raise SqlError(f"the number {text} cannot be read as DECIMAL") from None


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        raise SqlError(f"X'{text}' is not hexadecimal") from None


def target_type(node: exp.Cast) -> SqlType:
    """The type that a CAST names; the suffix of a number (1L) is a CAST too, one that the user did not write."""
    to = node.args["to"]
    written = to.meta.get(WRITTEN) or to.sql(dialect="spark")
    # Spark casts to VARCHAR(n) and CHAR(n) as to STRING: nothing is cut off, and nothing padded
    return types.STRING if _CHARACTERS.fullmatch(written) else types.parse_type(written)


def _cast_literal(node: exp.Cast) -> tuple[Value, SqlType] | None:
    """CAST of a literal, where it is a literal itself: DATE '…', 1L, 1.5BD. None for other casts."""
    literal, type_ = node.this, target_type(node)
    if literal.is_string and type_.kind in ("INT", "BIGINT", "BOOLEAN"):
        return None
    if literal.is_string:
        return text_as(literal.this, type_)
    value, own = read_number(literal.this)
    if own == type_ or (own, type_) == (types.INT, types.BIGINT):
        return value, type_
    if type_ == types.DOUBLE:
        return _double(literal.this), type_
    return None


def text_as(text: str, type_: SqlType) -> tuple[Value, SqlType]:
    """A string literal where a value of `type_` is expected; only the ISO forms that all engines read alike."""
    match type_.kind:
        case "STRING":
            return text, type_
        case "DATE":
            return _date(text), type_
        case "TIMESTAMP":
            return _timestamp(text), type_
        case "DECIMAL" if _NUMBER.fullmatch(text):
            number, scale = _exact(text), type_.scale
            if int(number.as_tuple().exponent) >= -scale and number.adjusted() < type_.precision - scale:
                return number.quantize(decimal.Decimal(1).scaleb(-scale), context=decimal.Context(prec=38)), type_
        case "DOUBLE" if _NUMBER.fullmatch(text):
            return _double(text), type_
    raise UnsupportedSql(f"CAST of the string {text!r} to {type_} is not supported", "write the value as a literal")


def _date(text: str) -> datetime.date:
    parts = _DATE.fullmatch(text)
    try:
        return datetime.date(*(int(part) for part in parts.groups()))  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        raise SqlError(f"{text!r} is not a date", "write DATE 'YYYY-MM-DD'") from None


def _timestamp(text: str) -> datetime.datetime:
    """An instant; without an offset it is UTC."""
    parts = _TIMESTAMP.fullmatch(text)
    try:
        day, clock, fraction, zone = parts.groups()  # type: ignore[union-attr]
        moment = datetime.datetime.fromisoformat(f"{day}T{clock or '00:00:00'}.{(fraction or '').ljust(6, '0')}")
        offset = datetime.datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").utcoffset() if zone else None
        return (moment - (offset or datetime.timedelta())).replace(tzinfo=datetime.UTC)
    except (AttributeError, ValueError, OverflowError):
        raise SqlError(f"{text!r} is not a timestamp", "write TIMESTAMP 'YYYY-MM-DD hh:mm:ss.ffffff'") from None
