"""LMDB's files: what each environment of a store holds, whether its file is whole, and LMDB's errors as ours.

In: what was fixed when the store was made; a data file; an error of LMDB. Out: the parts of the store; nothing, or an
error of `errors.py`. Always: a part is read only by the store whose identity it carries. Every page that LMDB may follow
lies in the file, or the first missing one would end the process by SIGBUS. Lack of space is reported in all its forms.

    page            number u64 | pad u16 | flags u16 | lower u16, upper u16 (or, of an overflow page, pages u32) | …
    pages 0 and 1   … | magic u32 | version u32 | address, size of the map u64 | two trees: free pages, main
                    | last page u64 | transaction u64
    tree            page size u32 | flags, depth u16 | branch, leaf, overflow pages, entries u64 | root u64
"""

from __future__ import annotations

import json
import os
import resource
import stat
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import lmdb

from viewkeeper.errors import CorruptStore, InputError, StoreBusy, StoreError, StoreFull, ViewKeeperError
from viewkeeper.model.json_codec import reading
from viewkeeper.stores.kv.atomic_directory import too_many_files, translate_no_space
from viewkeeper.stores.open import MAP_MB_MAX

_NO_SPACE = ("No space left", "quota exceeded", "File too large")
_CUT_SHORT = "Input/output error"  # LMDB's error for a partial write
_MORE = "connect with a larger ?map_mb, or without"
_ROOM_BYTES = 16 << 20  # less than this counts as none
_CORRUPT = lmdb.CorruptedError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PanicError, lmdb.NotFoundError


def translate(error: lmdb.Error, path: Path, *, map_bytes: int | None = None) -> ViewKeeperError:
    """Our error for one of LMDB's; `map_bytes`: of an environment that was to be opened."""
    text = str(error)
    if isinstance(error, lmdb.MemoryError) and map_bytes is not None:
        return StoreError(
            f"{path.name} reserves {map_bytes >> 20:,} MiB of addresses, and the system refuses them",
            "raise the limit (ulimit -v), or reserve less: ?map_mb=64 in the URL lets a part grow to 64 MiB",
        )
    if "Too many open files" in text:
        return too_many_files(path)
    if "closed/deleted" in text:
        return InputError("the database is closed", "connect again")
    if any(words in text for words in _NO_SPACE) or (_CUT_SHORT in text and not _has_room(path)):
        return StoreFull(f"no space left for {path}", "free space on the disk; every acknowledged write is safe")
    if isinstance(error, lmdb.MapFullError):
        return StoreFull(f"the map of {path.name} is full", f"every acknowledged write is safe; {_MORE}")
    if isinstance(error, lmdb.MapResizedError):
        return StoreFull(f"others have written more to {path.name} than the map of this process holds", _MORE)
    if isinstance(error, _CORRUPT):
        return CorruptStore(f"{path.name} is not a readable LMDB environment", "restore the store from a backup")
    if _CUT_SHORT in text:
        return StoreError(f"{path.name}: {text}", "the disk may be failing: look into the system's log")
    return StoreError(f"{path.name}: {text}")


def _has_room(path: Path) -> bool:
    """Whether the file system, and the limit of this process, let the data file grow."""
    try:
        facts, size = os.statvfs(path), os.stat(path / "data.mdb").st_size
    except OSError:
        return True
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    may_grow = limit == resource.RLIM_INFINITY or size + _ROOM_BYTES <= limit
    return may_grow and facts.f_bavail * facts.f_frsize >= _ROOM_BYTES


def readers_full(name: str, table: str) -> StoreBusy:
    """For an environment whose reader slots are all taken; `table` is LMDB's own list of them."""
    lines = [line.split() for line in table.splitlines()[1:]]
    holders = Counter(line[0] for line in lines if line).most_common(1)
    most = f", {holders[0][1]:,} by process {holders[0][0]}" if holders else ""
    return StoreBusy(
        f"all reader slots of {name} are taken{most}",
        "close snapshots and scans that are not needed any more, or end that process",
    )


# Of a meta page: magic, version, page size, root of the free pages, last page, transaction.
_META = struct.Struct("<16xII16xI36xQ48xQQ")
# Of a node: size of the data, low and high; flags; size of the key. In a branch all but the last are a page's number.
_NODE = struct.Struct("<HHHH")
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE_HEAD = 16
_BRANCH, _BIG = 1, 1  # flags of a page, and of a node in a leaf
_NO_PAGE = (1 << 64) - 1
_LOOKS_MAX = 5
_HINT = "restore the store from a backup"


class _Head(NamedTuple):
    """The contents of the newer of the two meta pages."""

    page_bytes: int
    free_root: int
    last_page: int
    transaction: int


def require_whole(file: Path) -> None:
    """Raise CorruptStore unless LMDB can map the file: it exists, is LMDB's, and was not truncated."""
    try:
        with translate_no_space(str(file)):
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
    except FileNotFoundError:
        raise CorruptStore(f"the store at {file.parents[1]} lacks {file.parent.name}/{file.name}", _HINT) from None
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CorruptStore(f"{file} is not a file", _HINT)
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
    magic, version, *head = _META.unpack(page)
    return _Head(*head) if (magic, version) == (_MAGIC, _VERSION) else None


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


DATABASES_MAX = 8
READERS_MAX = 1024
_LOCK_BYTES = READERS_MAX * 64 + 4096  # at least what LMDB needs for so many
IDENTITY = b"identity"  # in the main database, beside the names of the others
# Reserved, not used: a sparse map is never resized during an open transaction. A process has 128 TiB of addresses.
_KINDS = {
    "meta": (("meta",), 1 << 32),
    "node": (("rows", "log", "info"), 1 << 40),
    "partition": (("records", "tombstones", "written", "info"), 1 << 38),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One environment: the name of its folder, what is in it, and the record that states it."""

    name: str
    databases: tuple[str, ...]
    map_bytes: int
    identity: bytes

    def require_identity(self, path: Path, found: bytes | None) -> None:
        """Raise CorruptStore unless the identity found in the environment is this part's."""
        if found != self.identity:
            with reading(f"identity in {path.name}"):
                told, wanted = json.loads(found or b"{}"), json.loads(self.identity)
                wrong = [
                    f"{name} {told.get(name)}, not {value}" for name, value in wanted.items() if told.get(name) != value
                ]
            raise CorruptStore(
                f"{path} does not belong to this store, or store.json was changed: it says {'; '.join(wrong)}",
                "restore the whole store from a backup, not a part of it",
            )


def folders(nodes: Iterable[int], partitions: int) -> list[str]:
    """The names of a store's parts, of which the nodes are those of these numbers."""
    return ["meta", *(f"node-{n}" for n in nodes), *(f"partition-{n}" for n in range(partitions))]


def part_of(facts: Mapping[str, object], name: str, map_mb: int = MAP_MB_MAX) -> Part:
    """The part of that name in the store of these facts; `map_mb` is the most that it may reserve."""
    databases, map_bytes = _KINDS[name.partition("-")[0]]
    identity = json.dumps({**facts, "part": name}, sort_keys=True).encode()
    return Part(name, databases, min(map_bytes, map_mb << 20), identity)


def make_part(folder: Path, part: Part) -> None:
    """Make an environment, not synced, or give one that no process has open the identity of another store."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if not (folder / "lock.mdb").exists():  # with all its pages: touching a hole on a full disk would end us by SIGBUS
        descriptor = os.open(folder / "lock.mdb", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _LOCK_BYTES)
        finally:
            os.close(descriptor)
    try:
        environment = lmdb.open(
            str(folder), map_size=part.map_bytes, max_dbs=DATABASES_MAX, sync=False, metasync=False, mode=0o600
        )
    except lmdb.Error as error:
        raise translate(error, folder, map_bytes=part.map_bytes) from error
    try:
        with environment.begin(write=True) as transaction:
            for database in part.databases:
                environment.open_db(database.encode(), txn=transaction)
            transaction.put(IDENTITY, part.identity)
    finally:
        environment.close()
