"""Key conditions: which keys rows can have for which a WHERE is true.

In: the columns of a key, and conditions over a table's columns. Out: ranges of key bytes, in key order. Always: every
row that meets the conditions lies in a range; the caller still evaluates the conditions on what the ranges hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from viewkeeper.errors import BadRow
from viewkeeper.model.keys import after_prefix, encode_key
from viewkeeper.model.schema import Column
from viewkeeper.model.types import SqlType
from viewkeeper.model.values import to_stored
from viewkeeper.sql.expressions import Call, Cast, ColumnRef, Expression, Literal

RANGES_MAX = 1_000
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

Range = tuple[bytes, bytes | None]
# An operator, and the bytes that a part of the key is compared with.
Told = tuple[str, list[bytes]]


def key_ranges(key: Sequence[Column], parts: Mapping[int, int], conditions: Sequence[Expression]) -> list[Range]:
    """`parts` maps columns of the conditions to parts of the key."""
    told: dict[int, list[Told]] = {}
    for condition in conditions:
        for part, one in _comparison(key, parts, condition):
            told.setdefault(part, []).append(one)
    prefixes = [b""]
    for part in range(len(key)):
        values = next((values for operator, values in told.get(part, ()) if operator == "="), None)
        if values is None or len(values) * len(prefixes) > RANGES_MAX:
            return [_between(prefix, told.get(part, ())) for prefix in prefixes]
        prefixes = [prefix + value for prefix in prefixes for value in values]
    return [_between(prefix, ()) for prefix in prefixes]


def _between(prefix: bytes, told: Sequence[Told]) -> Range:
    """The keys that begin with `prefix`, as far as the comparisons of the next part allow."""
    lows = [prefix + values[0] for operator, values in told if operator in (">", ">=", "=")]
    highs = [prefix + values[0] for operator, values in told if operator == "<"]
    highs += [after_prefix(prefix + values[-1]) or b"" for operator, values in told if operator in ("<=", "=")]
    high = min(highs) if highs else after_prefix(prefix) if prefix else None
    return max(lows, default=prefix), high


def _comparison(key: Sequence[Column], parts: Mapping[int, int], condition: Expression) -> Iterator[tuple[int, Told]]:
    """The constraint of a condition on a part of the key, if it is a comparison with a literal."""
    if not isinstance(condition, Call) or condition.name not in (*_MIRRORED, "in"):
        return
    name, (first, *others) = condition.name, condition.args
    if name in _MIRRORED and isinstance(_bare(first), Literal):
        name, first, others = _MIRRORED[name], others[0], [first]
    column, literals = _bare(first), [_bare(other) for other in others]
    if not isinstance(column, ColumnRef) or column.position not in parts:
        return
    part = parts[column.position]
    values = [_bytes(key[part], literal) for literal in literals]
    known = sorted({value for value in values if value is not None})
    if known and len(known) == len(set(values)):
        yield part, ("=" if name == "in" else name, known)


def _bare(expression: Expression) -> Expression:
    while isinstance(expression, Cast) and expression.implicit:
        expression = expression.arg
    return expression


def _bytes(column: Column, literal: Expression) -> bytes | None:
    """The literal as that part of a key; None where it is not of the column's kind, or does not fit it."""
    if not isinstance(literal, Literal) or literal.value is None or not _alike(column.type, literal.type):
        return None
    try:
        return encode_key([column], [to_stored(column, literal.value)])
    except BadRow:
        return None


def _alike(column: SqlType, literal: SqlType) -> bool:
    return column.kind == literal.kind or (column.is_exact and literal.is_integer)
