"""New directories: a store or a backup that appears under its name as a whole, or not at all.

In: the name of a directory that does not exist, or is empty. Out: a directory to fill, in a `with` block. Always: it is
filled under another name, `NAME.unfinished`, made durable, and renamed when the block ends well; what a killed process
left under that other name is cleared away by the next one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkeeper.errors import InputError, StoreError, StoreFull
from viewkeeper.failpoints import failpoint


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """The directory to fill; `target` is there, whole and durable, after the block, unless the block raised."""
    require_free(target)
    with os_errors_told(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f"{target.name}.unfinished")
        unfinished.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(unfinished, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _take(descriptor, unfinished)
            try:
                yield unfinished
                sync_tree(unfinished)
                failpoint("newdirectory.filled")
                unfinished.rename(target)  # fails unless the target is absent or an empty directory
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            sync_directory(target.parent)
            failpoint("newdirectory.renamed")
        finally:
            os.close(descriptor)


def require_free(target: Path) -> None:
    """Raise unless a directory can be made under this name."""
    if target.is_symlink() or target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise InputError(f"{target} is there already", "name a new directory")


def require_space(target: Path, size: int) -> None:
    """Raise StoreFull unless the disk has room for so many bytes."""
    there = next(folder for folder in (target, *target.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if free < size:
        raise StoreFull(
            f"{target} needs {size:,} bytes and the disk has {free:,} free", "free space, or name another disk"
        )


def sync_tree(folder: Path) -> None:
    """Everything below the folder survives a power loss from here on."""
    for path in sorted(folder.rglob("*")):
        sync_directory(path)
    sync_directory(folder)


def sync_directory(path: Path) -> None:
    """A directory's names, or a file's bytes, survive a power loss from here on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take(descriptor: int, unfinished: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(f"{unfinished} is being written by another process", "wait for it to end") from None
    for left in unfinished.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def os_errors_told(target: Path) -> Iterator[None]:
    """Errors of the disk leave the block as ours."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"no space left for {target}", "free space, or name another disk") from error
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise InputError(f"{target} is there already", "name a new directory") from error
        raise StoreError(f"cannot write {target}: {error.strerror}", "name a directory you may write") from error
