"""Key spans: the row keys that hold a range of our keys, in our order.

In: start <= key < stop, as key bytes. Out: spans of row keys, one after the other in the order of our keys; or None, where
HBase has the rows in another order. Always: every row of the range lies in a span; one close beside it may too, so whoever
reads compares the keys.
"""

from __future__ import annotations

from viewkeeper.model.keys import ESCAPE, PRESENT
from viewkeeper.model.rowkeys import foreign_of
from viewkeeper.model.schema import TableSchema

Span = tuple[bytes, bytes | None]  # start <= row key < stop; None is the end of the table
_HALF = b"\x80"  # in our keys the first of the numbers that are not negative; in HBase's the first that are


def row_spans(schema: TableSchema, start: bytes, stop: bytes | None) -> list[Span] | None:
    """Ascending by our keys."""
    (column,) = schema.key_columns
    low, high = _body(start), None if stop is None else _body(stop)
    if low is None or (high is not None and low > high):
        return []
    if column.type.kind in ("STRING", "BINARY"):
        return [(_unescaped(low), None if high is None else _unescaped(high) + b"\x00")]
    if column.type.kind in ("INT", "BIGINT") and foreign_of(schema).key == "bytes":
        below = _HALF if high is None else min(high, _HALF)
        negative = [(_turned(low) or _HALF, None if below == _HALF else _turned(below))] if low < below else []
        low = max(low, _HALF)
        others = [(_turned(low), _HALF if high is None else _turned(high))] if high is None or low < high else []
        return [*negative, *others]
    return None


def _body(bound: bytes) -> bytes | None:
    """A bound without the tag of the key's one part; None is after all keys."""
    if bound[:1] > PRESENT:
        return None
    return bound[1:] if bound[:1] == PRESENT else b""


def _unescaped(body: bytes) -> bytes:
    """The text up to its end, or to where it is cut off."""
    at = body.find(b"\x00")
    while at >= 0 and body[at : at + 2] == ESCAPE:
        at = body.find(b"\x00", at + 2)
    return (body if at < 0 else body[:at]).replace(ESCAPE, b"\x00")


def _turned(body: bytes) -> bytes:
    """The number with the other sign bit."""
    return bytes((body[0] ^ 0x80,)) + body[1:] if body else body
