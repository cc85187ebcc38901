"""Type rules: which type an operator returns, and which operands it takes.

In: the operands' types. Out: the types of Spark's ANSI analyzer. Always: where 128-bit integers cannot hold what Spark
computes in a wider number, the expression is refused, never rounded differently.
"""

from __future__ import annotations

from viewkeeper.algebra.literals import VOID
from viewkeeper.errors import TypeMismatch, UnsupportedSql
from viewkeeper.model import types
from viewkeeper.model.types import SqlType, decimal

DIGITS_MAX = 38
_SCALE_KEPT = 6  # Spark keeps at least six digits of scale when it cuts a precision down to 38
_AS_DECIMAL = {"INT": (10, 0), "BIGINT": (20, 0)}


def as_decimal(type_: SqlType) -> SqlType:
    """The DECIMAL that holds every value of an exact type."""
    return type_ if type_.kind == "DECIMAL" else decimal(*_AS_DECIMAL[type_.kind])


def common_type(left: SqlType, right: SqlType, where: str) -> SqlType:
    """The type that both sides are cast to, for comparisons, CASE, COALESCE and IN."""
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if left.is_numeric and right.is_numeric:
        return _common_number(left, right)
    if {left.kind, right.kind} == {"DATE", "TIMESTAMP"}:
        return types.TIMESTAMP
    raise TypeMismatch(f"{where} mixes {left} and {right}", _way_between(left, right))


def _common_number(left: SqlType, right: SqlType) -> SqlType:
    """For two DECIMALs one with all their whole digits, and as many decimals as then fit (Spark rounds)."""
    if "DOUBLE" in (left.kind, right.kind):
        return types.DOUBLE
    if left.is_integer and right.is_integer:
        return types.BIGINT
    a, b = as_decimal(left), as_decimal(right)
    whole = max(a.whole_digits, b.whole_digits)
    scale = min(max(a.scale, b.scale), DIGITS_MAX - whole)
    return decimal(whole + scale, scale)


def operand_type(operator: str, left: SqlType, right: SqlType) -> SqlType | None:
    """The type both operands of arithmetic are cast to; None: DECIMAL, each side keeps its own."""
    for side in (left, right):
        if not side.is_numeric and side != VOID:
            raise TypeMismatch(f"{operator} needs numbers, not {side}", way_to_number(side))
    if left == VOID or right == VOID:
        known = right if left == VOID else left
        left = right = types.INT if known == VOID else known
    if operator == "div":
        if not (left.is_integer and right.is_integer):
            raise UnsupportedSql(f"div of {left} and {right} is not supported", "div takes INT and BIGINT")
        return types.BIGINT
    if "DOUBLE" in (left.kind, right.kind):
        return types.DOUBLE
    if "DECIMAL" in (left.kind, right.kind):
        return None
    if operator == "/":
        return types.DOUBLE
    return types.INT if left == right == types.INT else types.BIGINT


def decimal_result(operator: str, left: SqlType, right: SqlType, *, divisor_max: int) -> SqlType:
    """Spark's result type of DECIMAL arithmetic, if 128 bits suffice; `divisor_max` bounds the unscaled right side."""
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    match operator:
        case "+" | "-":
            scale = max(s1, s2)
            wide = (max(p1 - s1, p2 - s2) + scale + 1, scale)
            room = DIGITS_MAX - scale >= max(left.whole_digits, right.whole_digits)
            feasible = wide[0] <= DIGITS_MAX or (room and _adjusted(*wide).scale == scale)
        case "*":
            wide = (p1 + p2 + 1, s1 + s2)
            feasible = _adjusted(*wide).scale == s1 + s2
        case "/":
            scale = max(_SCALE_KEPT, s1 + p2 + 1)
            wide = (p1 - s1 + s2 + scale, scale)
            # long division works in steps of at least four digits: remainder · 10^4 must stay within 38 digits
            feasible = _adjusted(*wide).scale - s1 + s2 >= 0 and len(str(divisor_max - 1)) <= DIGITS_MAX - 4
        case "%":
            scale = max(s1, s2)
            wide = (min(p1 - s1, p2 - s2) + scale, scale)
            feasible = max(p1 - s1, p2 - s2) + scale <= DIGITS_MAX
        case _:
            raise TypeMismatch(f"{operator} is not defined for DECIMAL")
    if not feasible:
        hint = "CAST the operands to smaller DECIMALs" + ("; AVG(x) needs no division" if operator == "/" else "")
        raise UnsupportedSql(f"{left} {operator} {right} needs more than {DIGITS_MAX} digits", hint)
    return _adjusted(*wide)


def _adjusted(precision: int, scale: int) -> SqlType:
    """Spark's `adjustPrecisionScale`: whole digits come first, then up to six of scale."""
    if precision <= DIGITS_MAX:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(DIGITS_MAX, max(DIGITS_MAX - whole, min(scale, _SCALE_KEPT)))


_TO_STRING = ("INT", "BIGINT", "BOOLEAN", "DATE", "DECIMAL", "TIMESTAMP", "STRING")
_CASTS = {
    "BOOLEAN": ("INT", "BIGINT"),
    "DATE": ("TIMESTAMP",),
    "TIMESTAMP": ("DATE",),
    "INT": ("BOOLEAN",),
    "BIGINT": ("BOOLEAN",),
    "DOUBLE": ("BOOLEAN", "INT", "BIGINT"),
    "STRING": ("INT", "BIGINT", "BOOLEAN", "DATE"),
}


def cast_allowed(source: SqlType, target: SqlType) -> bool:
    """The pairs whose values are the same in Spark and DuckDB."""
    if source == target or source == VOID:
        return True
    if source.is_exact and (target.is_exact or target.kind == "DOUBLE"):
        return True
    if target.kind == "STRING":
        return source.kind in _TO_STRING and source.scale < DIGITS_MAX
    return target.kind in _CASTS.get(source.kind, ())


def way_to(target: SqlType, given: SqlType) -> str:
    """The way out where a value of `given` stands and `target` is needed."""
    return f"CAST it to {target}" if cast_allowed(given, target) else f"store it in a column of type {target}"


def way_to_number(given: SqlType) -> str | None:
    return way_to(types.BIGINT, given) if given.kind in ("STRING", "BOOLEAN") else None


def _way_between(left: SqlType, right: SqlType) -> str:
    ways = [(given, target) for given, target in ((left, right), (right, left)) if cast_allowed(given, target)]
    if len(ways) == 1:
        return "CAST the {} to {}".format(*ways[0])
    return "CAST one side to the other's type" if ways else "store one of them in a column of the other's type"


def cast_may_fail(source: SqlType, target: SqlType) -> bool:
    """Whether a value of `source` may not fit `target`."""
    if source.kind in ("DOUBLE", "STRING"):
        return source != target and (source.kind == "STRING" or target.is_integer)
    if not (source.is_exact and target.is_exact) or source == target:
        return False
    if target.is_integer:
        return (source, target) != (types.INT, types.BIGINT)
    given = as_decimal(source)
    if target.scale < given.scale:  # rounding may carry into one more whole digit
        return target.precision - target.scale <= given.precision - given.scale
    return target.precision - target.scale < given.precision - given.scale
