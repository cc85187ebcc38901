"""The header of a WAL file: whether the rest can be read at all.

In: the first bytes of a file. Out: where its first entry begins. Always: what is compressed, encrypted or encoded in another
way is refused, with the setting that makes it so.
"""

from __future__ import annotations

from viewkeeper.errors import CorruptStore, NotOffered
from viewkeeper.logs.hbase.protobuf import CutOff, numbers_in, read_number, strings_in

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
        numbers = {field: read_number(data, begin)[0] for field, begin in numbers_in(data, at, at + length)}
        strings = dict(strings_in(data, at, at + length))
    except CutOff:
        return None
    except ValueError as wrong:
        raise CorruptStore(f"the header of the WAL {file} is damaged", str(wrong)) from wrong
    _refuse(numbers, strings, file)
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
