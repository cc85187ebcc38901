"""The header of a WAL, and protobuf as far as WALs need it: variable-length numbers, and the fields of a message.

In: the first bytes of a file; a message. Out: where the first entry begins; numbers and fields. Always: `CutOff` where
the bytes end too early, `ValueError` where they are no protobuf. A WAL that is compressed, encrypted or encoded
otherwise is refused with the setting that changes it.

    file  "PWAL", length, header (protobuf WALHeader), entries
"""

from __future__ import annotations

import numpy as np

from viewkeeper.errors import CorruptStore, NotOffered

_NUMBER, _BYTES, _WIDTHS = 0, 2, {1: 8, 5: 4}  # wire types; those of fixed width, in bytes
_BITS_MAX = 63


class CutOff(Exception):
    """The bytes end inside what was to be read."""


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """A number with 7 bits in each byte, the lowest first, and where it ends."""
    number = shift = 0
    while shift <= _BITS_MAX:
        if at >= len(data):
            raise CutOff
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise ValueError("a number of more than 64 bits")


def read_numbers(data: bytes, starts: np.ndarray) -> np.ndarray:
    """Many such numbers at once, which are whole and below 2^63."""
    numbers = np.zeros(len(starts), np.int64)
    raw = np.frombuffer(data, np.uint8)
    rest, at, shift = np.arange(len(starts)), starts, 0
    while len(rest):
        digits = raw[at].astype(np.int64)
        numbers[rest] |= (digits & 127) << shift
        longer = digits > 127
        rest, at, shift = rest[longer], at[longer] + 1, shift + 7
    return numbers


def fields_of(data: bytes, at: int, stop: int) -> tuple[dict[int, int], list[tuple[int, bytes]]]:
    """The message in data[at:stop]: where the number of each numeric field begins, and the fields of bytes in order."""
    numbers, strings = dict[int, int](), list[tuple[int, bytes]]()
    while at < stop:
        tag, begin = read_number(data, at)
        field, wire = tag >> 3, tag & 7
        if wire == _NUMBER:
            _, at = read_number(data, begin)
        elif wire == _BYTES:
            length, begin = read_number(data, begin)
            at = begin + length
        elif wire in _WIDTHS:
            at = begin + _WIDTHS[wire]
        else:
            raise ValueError(f"wire type {wire}")
        if at > stop:
            raise ValueError("a field is longer than its message")
        if wire == _NUMBER:
            numbers[field] = begin
        elif wire == _BYTES:
            strings.append((field, data[begin:at]))
    return numbers, strings


MAGIC = b"PWAL"
HEADER_BYTES_MAX = 64 << 10
CELL_CODEC = b"org.apache.hadoop.hbase.regionserver.wal.WALCellCodec"

_ENCRYPTION_KEY, _CELL_CODEC = 2, 5  # fields of WALHeader
_COMPRESSIONS = {
    1: "hbase.regionserver.wal.enablecompression",
    3: "hbase.regionserver.wal.tags.enablecompression",
    6: "hbase.regionserver.wal.value.enablecompression",
}


def read_header(data: bytes, file: str) -> int | None:
    """Where the first entry begins; None if the header is not all there yet."""
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise CorruptStore(f"{file} is not a WAL", "it does not begin with PWAL")
    try:
        length, at = read_number(data, len(MAGIC))
        if at + length > len(data):
            return None
        starts, strings = fields_of(data, at, at + length)
        numbers = {field: read_number(data, begin)[0] for field, begin in starts.items()}
    except CutOff:
        return None
    except ValueError as wrong:
        raise CorruptStore(f"the header of the WAL {file} is damaged", str(wrong)) from wrong
    _refuse(numbers, dict(strings), file)
    return at + length


def _refuse(numbers: dict[int, int], strings: dict[int, bytes], file: str) -> None:
    if _ENCRYPTION_KEY in strings:
        raise NotOffered(f"the WAL {file} is encrypted", _way_out("hbase.regionserver.wal.encryption"))
    for field, setting in _COMPRESSIONS.items():
        if numbers.get(field):
            raise NotOffered(f"the WAL {file} is compressed", _way_out(setting))
    codec = strings.get(_CELL_CODEC, CELL_CODEC)
    if codec != CELL_CODEC:
        raise NotOffered(
            f"the cells of the WAL {file} are encoded by {codec.decode(errors='replace')}",
            "leave hbase.regionserver.wal.codec at its default and restart the region servers",
        )


def _way_out(setting: str) -> str:
    return f"set {setting} to false and restart the region servers"
