"""Log format: one entry holds the changes that one transaction made to one table.

In: keys, before-images and after-images of the changed rows, columnwise. Out: bytes under the position of the entry's
last change. Always: a header of fixed size, then the lengths (u32 each) of all keys, befores and afters, then their bytes
in the same order, padded to four. A length of 2^32−1 means that the row was absent.

    0 format u8 | 1 flags u8 | 2 reserved u16 | 4 table u32 | 8 stream u32 | 12 incarnation u32 | 16 count u32
    20 checksum u32 (of all that follows the header) | 24 stamp u64 | 32 begins u64 | 40 lengths …

`begins` is how many bytes of entries the stream held before this one, in its whole life: the size of a range of the log
is the difference of two of them, as its number of changes is the difference of two positions.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from viewkeeper.errors import NewerFormat
from viewkeeper.model.positions import Positions
from viewkeeper.model.stored_rows import Image

FORMAT = 2
ENDS_TRANSACTION = 1
MOVED = 2  # rows that went to another node, or came from there: no change for anybody else
ABSENT = 0xFFFFFFFF
_INCARNATION = 1
HEADER = struct.Struct("<BBHIIIIIQQ")
TableChanges = tuple[int, list[bytes], list[Image], list[Image]]  # table, keys, befores, afters
_POSITION = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The header of an entry, before its changes."""

    flags: int
    table: int
    stream: int
    incarnation: int
    count: int
    checksum: int
    stamp: int
    begins: int


def position_key(position: int) -> bytes:
    return _POSITION.pack(position)


def position_of(key: bytes) -> int:
    return _POSITION.unpack(key)[0]


def positions_of(keys: Sequence[bytes]) -> list[int]:
    return list(struct.unpack(f">{len(keys)}Q", b"".join(keys)))


def encode_changes(keys: Sequence[bytes], befores: Sequence[Image], afters: Sequence[Image]) -> bytes:
    """The part of an entry after its header, for changes given one by one."""
    lengths = [len(key) for key in keys]
    lengths += [ABSENT if image is None else len(image) for image in befores]
    lengths += [ABSENT if image is None else len(image) for image in afters]
    bodies = [*keys, *(image for image in befores if image), *(image for image in afters if image)]
    body = struct.pack(f"<{len(lengths)}I", *lengths) + b"".join(bodies)
    return body + b"\x00" * (-len(body) % 4)


def entries_of(changes: Iterable[TableChanges], bytes_max: int) -> Iterator[tuple[int, int, bytes]]:
    """(table, number of changes, log body); groups of one table in a row, many if rows repeat, are one entry if short."""
    for table, groups in itertools.groupby(changes, key=lambda group: group[0]):
        keys, befores, afters = (list(itertools.chain(*column)) for column in list(zip(*groups, strict=True))[1:])
        if keys:
            yield from ((table, *found) for found in _bodies(keys, befores, afters, bytes_max))


def _bodies(
    keys: Sequence[bytes], befores: Sequence[Image], afters: Sequence[Image], bytes_max: int
) -> Iterator[tuple[int, bytes]]:
    """Changes as one body, or as several where that one would be too long."""
    body = encode_changes(keys, befores, afters)
    if len(body) <= bytes_max or len(keys) == 1:
        yield len(keys), body
        return
    del body
    half = len(keys) // 2
    for part in (slice(half), slice(half, None)):
        yield from _bodies(keys[part], befores[part], afters[part], bytes_max)


def encode_entry(body: bytes, *, flags: int, table: int, stream: int, count: int, stamp: int, begins: int) -> bytes:
    """A whole entry."""
    return HEADER.pack(FORMAT, flags, 0, table, stream, _INCARNATION, count, zlib.crc32(body), stamp, begins) + body


def decode_header(entry: bytes) -> EntryHeader:
    """The header of an entry, refused when a newer ViewKeeper wrote it."""
    form, flags, _, *others = HEADER.unpack_from(entry)
    if form > FORMAT:
        raise NewerFormat(f"log entry of format {form}", f"this ViewKeeper reads up to {FORMAT}; use a newer one")
    return EntryHeader(flags, *others)


def count_between(start: Positions, stop: Positions) -> int:
    """How many changes lie in (start, stop] of streams whose positions count their changes."""
    return sum(position - start.get(stream, 0) for stream, position in stop.items())
