"""Row ranges: many ranges of row keys in one scan, by HBase's MultiRowRangeFilter.

In: ranges, ascending and apart. Out: the filter, as the bytes that HBase's own clients send. Always: a scan with it meets
the rows of these ranges alone, in key order.
"""

from __future__ import annotations

from collections.abc import Iterable

_CLASS = b"org.apache.hadoop.hbase.filter.MultiRowRangeFilter"


def ranges_filter(ranges: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The filter for start <= row < stop of each range."""
    body = b"".join(_field(1, _field(1, start) + _yes(2) + _field(3, stop) + _no(4)) for start, stop in ranges)
    return _field(1, _CLASS) + _field(2, body)


def _field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(value)) + value


def _yes(number: int) -> bytes:
    return bytes((number << 3, 1))


def _no(number: int) -> bytes:
    return bytes((number << 3, 0))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))
