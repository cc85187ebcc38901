"""Atomic directories: a store or a backup appears under its name as a whole, or not at all.

In: the name of a directory that does not exist, or is empty. Out: a directory to fill, in a `with` block. Always: it is
filled under another name, `NAME.unfinished`, made durable, and renamed when the block succeeds. A marker shows that it is
ours: the next process clears away what a killed one left; anything else is refused and left alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from viewkeeper.errors import InputError, StoreError, StoreFull
from viewkeeper.failpoints import failpoint
from viewkeeper.model.wording import shown

MARKER = ".viewkeeper-unfinished"
_NAME_BYTES_MAX, _PATH_BYTES_MAX = 255, 3_900  # of 4,095, so that there is room for the files of a store
_NO_SPACE = errno.ENOSPC, errno.EDQUOT, errno.EFBIG


@contextmanager
def fill_atomically(target: Path) -> Iterator[Path]:
    """The directory to fill; after the block `target` exists, whole and durable, unless the block raised."""
    require_free(target)
    unfinished = target.with_name(f"{target.name}.unfinished")
    with translate_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _taken(unfinished):
            try:
                yield unfinished
                sync_tree(unfinished)
                failpoint("newdirectory.filled")
                unfinished.rename(target)  # fails unless the target is absent or an empty directory
            except BaseException:
                with suppress(OSError):
                    clear_unfinished(unfinished)
                    (unfinished / MARKER).unlink()
                    unfinished.rmdir()
                raise
            failpoint("newdirectory.renamed")
            (target / MARKER).unlink()  # last: until then it marks the contents as ours, whatever kills us
            sync_directory(target)
            sync_directory(target.parent)


@contextmanager
def _taken(unfinished: Path) -> Iterator[None]:
    """Within the block the directory exists, empty but for its marker, and no other process fills it."""
    with suppress(FileExistsError):
        unfinished.mkdir(mode=0o700)
    try:
        descriptor = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _foreign(unfinished) from None
        raise
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(descriptor), os.lstat(unfinished)):  # its holder has just renamed it
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError):
            raise StoreError(f"{unfinished} is being written by another process", "wait for it to end") from None
        mark_unfinished(unfinished)
        clear_unfinished(unfinished)
        yield
    finally:
        os.close(descriptor)


def mark_unfinished(folder: Path) -> None:
    """Mark the folder's contents as ours and not whole; refused where there is something else."""
    names = os.listdir(folder)
    if names and MARKER not in names:
        raise _foreign(folder)
    (folder / MARKER).touch(mode=0o600)


def clear_unfinished(folder: Path) -> None:
    """Remove what a killed process left in a marked folder; the marker stays."""
    for left in folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        elif left.name != MARKER:
            left.unlink()


def _foreign(folder: Path) -> InputError:
    return InputError(
        f"{folder} is needed, and what is there is not ViewKeeper's", "move it, or name another directory"
    )


def require_path(path: Path) -> Path:
    """The path with `~` replaced; raises where no file system can have it."""
    try:
        sizes = [len(os.fsencode(part)) for part in path.parts]
    except UnicodeEncodeError:
        raise InputError(f"{shown(str(path))} is not a path", "it holds half of a character") from None
    if "\0" in str(path) or any(size > _NAME_BYTES_MAX for size in sizes):
        raise InputError(
            f"{shown(str(path))} is not a path", f"a name has at most {_NAME_BYTES_MAX} bytes, none of them 0"
        )
    if sum(sizes) + len(sizes) > _PATH_BYTES_MAX:
        raise InputError(f"{shown(str(path))} is not a path", f"a path has at most {_PATH_BYTES_MAX:,} bytes")
    return path.expanduser()


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
    """From here on everything below the folder survives a power loss."""
    for path in sorted(folder.rglob("*")):
        sync_directory(path)
    sync_directory(folder)


def sync_directory(path: Path) -> None:
    """From here on a directory's names, or a file's bytes, survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def too_many_files(what: object) -> StoreError:
    """For a file that cannot be opened because this process has too many."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return StoreError(
        f"{what} cannot be opened: this process may have {most:,} files open, and has them",
        "raise the limit (ulimit -n 1024), or close databases that are not needed any more",
    )


@contextmanager
def translate_no_space(
    what: str, hint: str = "free space on the disk; every acknowledged write is safe"
) -> Iterator[None]:
    """Raise StoreFull where the disk, a quota or a limit leaves no space, and for too many files; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise too_many_files(what) from error
        if error.errno not in _NO_SPACE:
            raise
        raise StoreFull(f"no space left for {what}", hint) from error


@contextmanager
def translate_os_errors(target: Path) -> Iterator[None]:
    """Raise errors of the disk as ours."""
    try:
        with translate_no_space(str(target), "free space, or name another disk"):
            yield
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise InputError(f"{target} is there already", "name a new directory") from error
        raise StoreError(f"cannot write {target}: {error.strerror}", "name a directory you may write") from error
