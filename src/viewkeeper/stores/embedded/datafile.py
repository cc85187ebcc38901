"""Data files: LMDB's `data.mdb`, checked before it is mapped.

In: the path of a data file. Out: nothing, or CorruptStore. Always: every page that LMDB may follow lies in the file;
otherwise the first missing page of a truncated file would end the process by SIGBUS.

    page            number u64 | pad u16 | flags u16 | lower u16, upper u16 (or, of an overflow page, pages u32) | …
    pages 0 and 1   … | magic u32 | version u32 | address, size of the map u64 | two trees: free pages, main
                    | last page u64 | transaction u64
    tree            page size u32 | flags, depth u16 | branch, leaf, overflow pages, entries u64 | root u64
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import CorruptStore, StoreError
from viewkeeper.stores.embedded.newdirectory import no_space_told

_META = struct.Struct(
    "<16xII16xI36xQ48xQQ"
)  # magic, version, page size, root of the free pages, last page, transaction
_NODE = struct.Struct(
    "<HHHH"
)  # size of the data, low and high; flags; size of the key. Of a branch all but the last: a page
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE_HEAD = 16
_BRANCH, _BIG = 1, 1  # flags of a page, and of a node in a leaf
_NO_PAGE = (1 << 64) - 1
_LOOKS_MAX = 5
_HINT = "restore the store from a backup"


@dataclass(frozen=True, slots=True)
class _Head:
    """The contents of the newer of the two meta pages."""

    transaction: int
    page_bytes: int
    last_page: int
    free_root: int


def require_whole(file: Path) -> None:
    """Raise CorruptStore unless LMDB can map the file: it exists, is LMDB's, and was not truncated."""
    try:
        with no_space_told(str(file)):
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CorruptStore(f"the store at {file.parents[1]} lacks {file.parent.name}/{file.name}", _HINT) from None
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    try:
        head = _read_head(descriptor)
        for _ in range(_LOOKS_MAX):
            if head is None:
                raise CorruptStore(f"{file} is not a readable LMDB environment", _HINT)
            if _is_whole(descriptor, head):
                return
            before, head = head, _read_head(descriptor)
            if head == before:  # no writer in between
                break
        raise CorruptStore(f"{file} was truncated: it is shorter than LMDB left it", _HINT)
    finally:
        os.close(descriptor)


def _read_head(descriptor: int) -> _Head | None:
    first = _head_at(descriptor, 0)
    second = _head_at(descriptor, first.page_bytes) if first else None
    return max(first, second, key=lambda head: head.transaction) if first and second else None


def _head_at(descriptor: int, offset: int) -> _Head | None:
    page = os.pread(descriptor, _META.size, offset)
    if len(page) < _META.size:
        return None
    magic, version, page_bytes, free_root, last_page, transaction = _META.unpack(page)
    return _Head(transaction, page_bytes, last_page, free_root) if (magic, version) == (_MAGIC, _VERSION) else None


def _is_whole(descriptor: int, head: _Head) -> bool:
    """Whether all pages in use are in the file. Free ones at its end may never have been written."""
    pages = os.fstat(descriptor).st_size // head.page_bytes
    if pages > head.last_page:
        return True
    try:
        unwritten = {page for page in _free_pages(descriptor, head) if pages <= page <= head.last_page}
    except struct.error:
        return False
    return len(unwritten) == head.last_page + 1 - pages


def _free_pages(descriptor: int, head: _Head) -> Iterator[int]:
    """The numbers of all pages that LMDB lists as free."""
    waiting, left = [head.free_root], head.last_page
    while waiting and waiting[-1] != _NO_PAGE and left:
        left -= 1  # a damaged tree may have cycles
        page = _read(descriptor, head, waiting.pop(), head.page_bytes)
        flags, lower = struct.unpack_from("<HH", page, 10)
        for at in struct.unpack_from(f"<{max(0, lower - _PAGE_HEAD) // 2}H", page, _PAGE_HEAD):
            low, high, more, key_bytes = _NODE.unpack_from(page, at)
            start, size = at + _NODE.size + key_bytes, low | high << 16
            if flags & _BRANCH:
                waiting.append(size | more << 32)
            elif more & _BIG:
                (number,) = struct.unpack_from("<Q", page, start)
                yield from _numbers(_read(descriptor, head, number, _PAGE_HEAD + size)[_PAGE_HEAD:])
            else:
                yield from _numbers(page[start : start + size])


def _read(descriptor: int, head: _Head, page: int, size: int) -> bytes:
    return os.pread(descriptor, size, page * head.page_bytes) if page <= head.last_page else b""


def _numbers(listed: bytes) -> tuple[int, ...]:
    """A list of page numbers: the count, then the numbers."""
    (count,) = struct.unpack_from("<Q", listed)
    return struct.unpack_from(f"<{min(count, len(listed))}Q", listed, 8)
