"""Values: a Python value of a column, checked once on entry and converted to its stored form.

In: a caller's value, or a stored one. Out: the stored form (DECIMAL as its unscaled integer, DATE as days, TIMESTAMP as
microseconds since 1970 in UTC, text as UTF-8), or the value that a reader gets. Always: a value that does not fit exactly
is refused with the column's name, never rounded; stored text that is not UTF-8 raises CorruptStore.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from viewkeeper.errors import BadRow, CorruptStore, InvariantBroken
from viewkeeper.model.schema import Column
from viewkeeper.model.wording import described

if TYPE_CHECKING:
    import pyarrow as pa


DAMAGE = (struct.error, LookupError, ValueError, OverflowError, InvariantBroken)  # of decoding what nobody encoded


def record_damaged(view: str | None = None) -> CorruptStore:
    """The error for a reader of a record that cannot be decoded."""
    what = "a record" if view is None else f"a record of view {view}"
    return CorruptStore(f"{what} is damaged", "viewkeeper check names it, viewkeeper repair puts it right")


def text_of(stored: bytes) -> str:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        _refuse_text()


def require_texts(arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """The same columns; CorruptStore where a text is not UTF-8."""
    import pyarrow as pa

    try:
        for array in arrays:
            if pa.types.is_string(array.type):
                array.validate(full=True)
    except pa.ArrowInvalid:
        _refuse_text()
    return arrays


def _refuse_text() -> NoReturn:
    hint = "viewkeeper rebuild fills a view anew; a table comes back from a backup"
    raise CorruptStore("a text in the store is no UTF-8", hint) from None


# bool, int, float, str or bytes, and None for NULL: the column's type decides which, and no checker can know it.
Stored: TypeAlias = Any
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_DIGITS_MAX = 1_000  # Python itself reads and writes integers of 4,300


def to_stored(column: Column, value: object) -> Stored:
    """The stored form of `value`, or BadRow when it does not fit the column."""
    return None if value is None else _TO_STORED[column.type.kind](column, value)


def from_stored(column: Column, stored: Stored) -> object:
    """What a reader gets for a stored form; the inverse of `to_stored`."""
    if stored is None:
        return None
    convert = _FROM_STORED.get(column.type.kind)
    return stored if convert is None else convert(column, stored)


def are_equal(value: object, other: object) -> bool:
    """Equality of SQL: NaN equals NaN, which it does not in Python, and −0.0 equals 0.0."""
    return value == other or (value != value and other != other)


def are_stored_alike(value: object, other: object) -> bool:
    """Whether a reader sees no difference: NaN is NaN, and −0.0 is not 0.0."""
    if isinstance(value, float) and isinstance(other, float) and value == other == 0:
        return math.copysign(1, value) == math.copysign(1, other)
    return are_equal(value, other)


def to_double(column: Column, number: Decimal) -> float:
    """The DOUBLE nearest to a decimal number; one beyond the largest is refused, not infinity."""
    nearest = float(number)
    if number.is_finite() and not math.isfinite(nearest):
        raise _refuse(column, number, "it is beyond the largest DOUBLE")
    return nearest


def _plain(value: object) -> object:
    """numpy's integers and real numbers as Python's; all else unchanged."""
    if type(value).__module__ == "numpy" and isinstance(value, Integral | Real):
        return value.item()  # type: ignore[attr-defined]
    return value


def _refuse(column: Column, value: object, hint: str | None = None) -> BadRow:
    return BadRow(f"column {column.name} is {column.type}, not {described(value)}", hint)


def _boolean(column: Column, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refuse(column, value)
    return value


def _integer(bits: int) -> Callable[[Column, object], int]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def check(column: Column, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            given, value = value, _plain(value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise _refuse(column, given)
        if not low <= value <= high:
            raise _refuse(column, value, f"{column.type} holds {low} to {high}")
        return int(value)

    return check


def _double(column: Column, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        given, value = value, _plain(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _refuse(column, given)
    try:
        return float(value)
    except OverflowError:
        raise _refuse(column, value, "it is beyond the largest DOUBLE") from None


def _decimal(column: Column, value: object) -> int:
    value = _plain(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _refuse(column, value, "pass a Decimal or an int")
    if isinstance(value, int) and abs(value) >= 10**_DIGITS_MAX:
        raise _refuse(column, value, f"it has more than {column.type.precision} digits")
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise _refuse(column, value, "NaN and infinity are not DECIMAL values")
    if len(digits) > _DIGITS_MAX:
        raise _refuse(column, value, f"it is written in more than {_DIGITS_MAX:,} digits")
    shift = exponent + column.type.scale
    unscaled = int("".join(map(str, digits)) or "0")
    if shift < 0:
        unscaled, rest = divmod(unscaled, 10 ** min(-shift, len(digits) + 1))
        if rest:
            raise _refuse(column, value, f"it has more than {column.type.scale} decimals")
    elif shift > 38 and unscaled:
        raise _refuse(column, value, f"it has more than {column.type.precision} digits")
    else:
        unscaled *= 10 ** min(shift, 38)
    if unscaled >= 10**column.type.precision:
        raise _refuse(column, value, f"it has more than {column.type.precision} digits")
    return -unscaled if sign else unscaled


def _string(column: Column, value: object) -> str:
    if not isinstance(value, str):
        raise _refuse(column, value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refuse(column, value, "the text holds a lone surrogate, which is not Unicode") from None
    return value


def _binary(column: Column, value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _refuse(column, value)
    return bytes(value)


def _date(column: Column, value: object) -> int:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise _refuse(column, value, "pass a datetime.date")
    return value.toordinal() - _EPOCH_DAY


def _timestamp(column: Column, value: object) -> int:
    if not isinstance(value, dt.datetime):
        raise _refuse(column, value, "pass a datetime.datetime; a naive one is taken as UTC")
    if value != value:  # pandas' NaT is a datetime
        raise _refuse(column, value, "pass None")
    if getattr(value, "nanosecond", 0):
        raise _refuse(column, value, "a TIMESTAMP has microseconds; round it first")
    try:
        aware = value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    except OverflowError:
        raise _refuse(column, value, "in UTC it lies outside the years 1 to 9999") from None
    return (aware - _EPOCH) // _MICROSECOND


_TO_STORED: dict[str, Callable[[Column, object], Stored]] = {
    "BOOLEAN": _boolean,
    "INT": _integer(32),
    "BIGINT": _integer(64),
    "DOUBLE": _double,
    "DECIMAL": _decimal,
    "STRING": _string,
    "BINARY": _binary,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
}
_FROM_STORED: dict[str, Callable[[Column, Stored], object]] = {
    "DECIMAL": lambda column, stored: Decimal((stored < 0, tuple(map(int, str(abs(stored)))), -column.type.scale)),
    "DATE": lambda column, stored: dt.date.fromordinal(stored + _EPOCH_DAY),
    "TIMESTAMP": lambda column, stored: _EPOCH + dt.timedelta(microseconds=stored),
}
