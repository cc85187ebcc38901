"""LMDB errors: errors of LMDB and the file system, as errors of ours.

In: an LMDB error, and the folder where it occurred. Out: one of `errors.py`. Always: lack of space is reported as such,
in all its forms: the disk or a quota is full, a file may not grow any more, or a write was cut short.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from pathlib import Path

import lmdb

from viewkeeper.errors import CorruptStore, InputError, StoreBusy, StoreError, StoreFull, ViewKeeperError
from viewkeeper.stores.embedded.newdirectory import too_many_files

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
        return StoreFull(f"no space left for {path.name}", "free space on the disk; what was acknowledged is safe")
    if isinstance(error, lmdb.MapFullError):
        return StoreFull(f"the map of {path.name} is full", f"what was acknowledged is safe; {_MORE}")
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
