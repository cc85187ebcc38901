"""Compaction: returns to the disk what LMDB keeps. A data file never shrinks by itself; it keeps its free pages.

In: a store that no other process has open. Out: the same store in smaller files. Always: each environment is copied
beside itself, made durable, and renamed over the old file. Both hold the same, so a kill between any two steps leaves a
whole store, some of its files compacted and perhaps a copy that the next compaction removes. It needs the store alone,
because a process that has the old file open would go on writing to a file that no longer has a name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from viewkeeper.errors import PipelineRunning, StoreInUse
from viewkeeper.failpoints import failpoint
from viewkeeper.ports.upkeep import Progress
from viewkeeper.stores.embedded.directory import Directory
from viewkeeper.stores.embedded.environment import Environment
from viewkeeper.stores.embedded.heldfile import locked
from viewkeeper.stores.embedded.lock import PipelineLock
from viewkeeper.stores.embedded.newdirectory import os_errors_told, require_space, sync_directory
from viewkeeper.stores.embedded.parts import Part


@contextmanager
def alone(directory: Directory) -> Iterator[None]:
    """Within the block no other process has the store open or can open it, and no pipeline runs."""
    layout = directory.layout
    try:
        pipeline = PipelineLock(layout.lock, take_over=False)
    except PipelineRunning as error:
        raise PipelineRunning(error.fact, "stop it first") from None
    try:
        # The directory's lock separates two processes that want the store alone: for one that has it open, taking it is
        # not atomic.
        with locked(layout.path), directory.taken():
            yield
    finally:
        pipeline.release()


def compact_files(directory: Directory, nodes: Sequence[int], progress: Progress | None = None) -> None:
    """Replace every environment's file by a compacted copy, and remove nodes that are retired; only within `alone`."""
    path, parts = directory.layout.path, directory.layout.parts(nodes)
    sizes = {part: _size(path / part.name / "data.mdb") for part in parts}
    total, done = sum(sizes.values()), 0
    with directory.files_closed():
        for folder in path.glob("node-*"):
            if folder.name not in {part.name for part in parts}:
                shutil.rmtree(folder)
        for part in parts:
            _compact(path / part.name, part)
            done += sizes[part]
            if progress:
                progress(done, total)


def _compact(folder: Path, part: Part) -> None:
    old, new = folder / "data.mdb", folder / "data.mdb.new"
    new.unlink(missing_ok=True)
    with os_errors_told(new):
        try:
            _write_copy(folder, part, new)
            failpoint("compact.copied")
            if _size(new) < _size(old):
                new.rename(old)
                failpoint("compact.renamed")
                sync_directory(folder)
        finally:
            new.unlink(missing_ok=True)
    failpoint("compact.done")


def _write_copy(folder: Path, part: Part, target: Path) -> None:
    environment = Environment(folder, part, synced=True)
    try:
        with environment.held() as snapshot:
            require_space(folder, _size(folder / "data.mdb"))
            target.touch(mode=0o600)
            with open(target, "wb") as file, closing(environment.copy(snapshot)) as pieces:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
    finally:
        environment.close(StoreInUse("the copy is made"))


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
