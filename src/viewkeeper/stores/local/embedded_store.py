"""The embedded store: a local store on LMDB, in one directory, for many processes at once.

In: keys and rows as bytes. Out: the same, in key order across nodes and partitions. Always: the promises of the port
`Store`; each partition is an environment of its own, and a snapshot is a read transaction on each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.errors import CorruptStore, LogDiverged, StoreBusy, StoreError
from viewkeeper.model.epochs import EpochRecord, Inflight, forget_views
from viewkeeper.ports.meta import change_epoch_record, claimed
from viewkeeper.stores.kv import lmdb_files
from viewkeeper.stores.kv.atomic_directory import sync_directory, sync_tree, translate_os_errors
from viewkeeper.stores.kv.file_locks import FileLock, PipelineLock, holder_of, locked
from viewkeeper.stores.local.directory import enter_directory
from viewkeeper.stores.local.layout import Layout, open_layout, raise_format
from viewkeeper.stores.local.local_store import LocalStore
from viewkeeper.stores.local.node import LIMITS, Limits

if TYPE_CHECKING:
    from viewkeeper.ports.admin import Backup, Progress
    from viewkeeper.ports.meta import Holder
    from viewkeeper.stores.kv.lmdb_environment import Environment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class EmbeddedStore(LocalStore):
    """A store in one directory."""

    many_processes = True
    layout: Layout

    def __init__(self, url: str, *, create: bool = True, read_only: bool = False, limits: Limits = LIMITS) -> None:
        layout = open_layout(url, create=create, read_only=read_only)
        self._directory = enter_directory(layout)
        self._leaving = self._directory.leave_when_gone(self)
        try:
            super().__init__(layout, limits=limits)
            layout.require_parts(self.placement.nodes)
            self._open_epoch_record()
            last_stamp = max(node.log_end().stamp for node in self.nodes)
            self.boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "unknown"
            self._clock_base = self.meta.clock_base(self.boot, last_stamp, is_writable=layout.is_writable)
            if self.meta.unclean_boot() not in (None, self.boot):
                self._forget_torn_views()
            for number in range(layout.partitions):  # opened when needed, but a missing one must be noticed now
                lmdb_files.require_whole(layout.path / f"partition-{number}" / "data.mdb")
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return self.layout.url

    def close(self) -> None:
        """Close; the process's handles are closed with the last open store of this directory."""
        if self._leaving.detach():
            self._directory.leave()

    def is_current(self) -> bool:
        """Whether the open store is the one at its path; False when it was removed, replaced or restored there."""
        return self._directory.is_current(self.layout)

    def _open_epoch_record(self) -> None:
        """Make the epoch record of a new store; refuse a store whose parts are not of one moment."""
        ends, retired = self.ends(), self.placement.retired
        if not self.meta.has_epoch_record() and any(ends.values()):
            raise CorruptStore("the store has rows and no epoch record", "restore the whole store from a backup")
        if self.layout.is_writable:
            self.meta.create_epoch_record(EpochRecord.first(self.layout.incarnation))
        for stream, position in self.meta.read_frontier().positions.items():
            if ends.get(stream, 0) < position and int(stream) not in retired:
                raise LogDiverged(
                    f"the log of node {stream} ends at {ends.get(stream, 0)}, but {position} is committed",
                    "restore the whole store, not a part of it",
                )

    def _forget_torn_views(self) -> None:
        """Start the views anew after a power loss.

        Between the protocol's sync points partitions are written without a sync, so LMDB promises nothing for them
        then; base and log are synced with every write, and everything is recomputed from there. Readers are informed
        first. DELTA is lost too: every row of a table that has one is logged again.
        """
        if not self.layout.is_writable:
            raise StoreError(
                f"views of the store at {self.layout.path} may be torn, for its machine went down while they were written",
                "open it once from a process that can write the directory",
            )
        with locked(self.layout.path, self.layout.busy_seconds):
            if self.meta.unclean_boot() in (None, self.boot):
                return
            stored = [table["id"] for table in self.read_catalog().get("tables", ()) if table["delta"] is not None]
            self.settle()  # rows that have left a node and arrived at none would be missed
            for node in self.nodes:
                node.log_rows(stored, self.now)
            rebuilt = self.ends() if stored else {}
            change_epoch_record(self, lambda record: forget_views(record, rebuilt))
            for number in range(self.partitions):
                self._directory.remake(self.layout.part(f"partition-{number}"))
            self.meta.mark_views(self.boot, clean=True)

    # its parts

    def _handle(self, part: str) -> Callable[[], Environment]:
        """Meta is synced with every commit, and nodes are unless the store was opened with sync=off."""
        synced = part == "meta" or (part.startswith("node") and self.layout.synced)
        return partial(self._directory.environment, self.layout.part(part), synced=synced)

    def make_part(self, part: str) -> None:
        folder = self.layout.path / part
        with translate_os_errors(folder):
            if folder.exists():
                shutil.rmtree(folder)
            lmdb_files.make_part(folder, self.layout.part(part))
            sync_tree(folder)
            sync_directory(self.layout.path)

    def _close_idle(self, part: str) -> bool:
        return self._directory.close_idle(self.layout.part(part))

    @contextmanager
    def altering(self) -> Iterator[None]:
        """Among all processes; one that dies leaves no lock."""
        self._require_in_place()
        file = FileLock(self.layout.path / "alter.lock", os.O_RDWR | os.O_CREAT)
        try:
            if not file.lock(exclusive=True):
                raise StoreBusy(f"{file.holders()} is adding or removing a node", "wait until it has ended")
            raise_format(self.layout.path)
            yield
        finally:
            file.close()

    # what a power loss may tear

    def admit(self, epoch: Inflight) -> None:
        self._open_views()
        super().admit(epoch)

    def drop(self, table: int) -> None:
        self._open_views()
        super().drop(table)

    def _open_views(self) -> None:
        """From here on a power loss may tear the views, durably."""
        if self.meta.unclean_boot() != self.boot:
            self.meta.mark_views(self.boot, clean=False)

    def sync(self, *, closed_by: str | None = None) -> None:
        super().sync()
        if closed_by is not None:
            self.meta.mark_views(self.boot, clean=True, owner=closed_by)

    # the store as a whole

    def claim(self, *, take_over: bool, instead_of: Holder | None = None) -> PipelineLock:
        self._require_in_place()
        return PipelineLock(self.layout.lock, take_over=take_over, instead_of=instead_of)

    def _require_in_place(self) -> None:
        self._handle("meta")().require_in_place()

    def holder(self) -> Holder | None:
        return holder_of(self.layout.lock)

    def purge(self, record: EpochRecord, *, records_max: int) -> int:
        """Old versions are dropped with the write of a newer one, tombstones when an epoch is admitted."""
        for environment in self.environments().values():
            environment.clear_stale_readers()
        return 0

    def environments(self) -> dict[str, Environment]:
        """All of the store's environments by name, meta first."""
        nodes = (f"node-{number}" for number in self._refresh_placement().nodes)
        partitions = (f"partition-{number}" for number in range(self.partitions))
        return {part: self._handle(part)() for part in ("meta", *nodes, *partitions)}

    def back_up(self, destination: Path, progress: Progress | None = None) -> Backup:
        """The whole store as of one moment, in a new directory."""
        from viewkeeper.stores.local.backups import back_up

        return back_up(self.layout, self.meta, self.environments, destination, progress)

    @contextmanager
    def alone(self) -> Iterator[Callable[[Progress | None], None]]:
        # The lock separates two processes that want the store alone: for one that has it open, taking it is not atomic.
        with claimed(self), locked(self.layout.path), self._directory.taken():
            yield self._compact

    def _compact(self, progress: Progress | None) -> None:
        from viewkeeper.stores.local.backups import compact_files

        compact_files(self._directory, self._refresh_placement().nodes, progress)
        super().sync()
        self.meta.mark_views(self.boot, clean=True)

    def _bytes_used(self) -> int:
        return sum(file.stat().st_blocks * 512 for file in self.layout.path.rglob("data.mdb"))
