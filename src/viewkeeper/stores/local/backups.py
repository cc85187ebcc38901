"""Backups: backup, restore and compaction, all of them copies of the store's environments.

    DEST/backup.json                            the manifest, written last: what was copied, with sizes and digests
    DEST/meta.mdb, node-N.mdb, partition-N.mdb  the environments, compacted

In: an open store and a new directory; a backup and the URL of a store that does not exist; or a store that no other
process has open. Out: a backup, a new store, or the same store in smaller files; or nothing that looks like one.
Always: the parts of a backup belong together (R19). A read transaction is opened on every environment, and meta did not
change meanwhile; so views are those of the epoch record, and the log reaches all positions that the record names.
Several nodes are caught at one instant, because no writer is at work while their transactions are opened (R17).

A restored store begins a new incarnation: every file is compared with the manifest before LMDB sees it, tokens of the
old store do not fit the new one, and epoch numbers continue. A compacted copy is made durable beside its environment
and renamed over it, so a kill between any two steps leaves a whole store; no other process may have the store open,
because it would go on writing to the old file.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.errors import DamagedBackup, InputError, NewerFormat, StoreInUse
from viewkeeper.failpoints import failpoint
from viewkeeper.model.json_codec import UNREADABLE
from viewkeeper.ports.admin import Backup, Progress
from viewkeeper.stores.kv.atomic_directory import (
    fill_atomically,
    require_free,
    require_path,
    require_space,
    sync_directory,
    translate_os_errors,
)
from viewkeeper.stores.kv.lmdb_environment import Environment
from viewkeeper.stores.kv.lmdb_files import Part, folders, make_part, part_of
from viewkeeper.stores.local.directory import Directory
from viewkeeper.stores.local.layout import FORMAT as STORE_FORMAT
from viewkeeper.stores.local.layout import MANIFEST, Layout, parse_url, write_facts
from viewkeeper.stores.local.meta import Meta
from viewkeeper.stores.open import MAP_MB_MAX

if TYPE_CHECKING:
    import lmdb


FORMAT = 3


@dataclass(frozen=True, slots=True)
class _Part:
    """One environment as it was at the moment of the backup."""

    name: str
    environment: Environment
    snapshot: lmdb.Transaction


def back_up(
    layout: Layout,
    meta: Meta,
    environments: Callable[[], dict[str, Environment]],
    destination: Path,
    progress: Progress | None,
) -> Backup:
    """Write a backup of the store, which now has these environments, meta first, to a new directory."""
    target = require_path(destination).resolve()
    require_free(target)
    with _held(meta, environments) as parts:
        # Read here, while nothing can have changed since the transactions were opened: see `_open_together`.
        stored = parts[0].environment.map_in(parts[0].snapshot, "meta")
        record, nodes = meta.epoch_record_in(stored), meta.placement_in(stored).nodes
        expected = sum(part.environment.bytes_used(part.snapshot) for part in parts)
        require_space(target, expected)
        with fill_atomically(target) as folder:
            files: dict[str, dict[str, object]] = {}
            done = 0
            for part in parts:
                digest, size = hashlib.blake2b(), 0
                for piece in _copy(part.environment, part.snapshot, folder / f"{part.name}.mdb"):
                    digest.update(piece)
                    size += len(piece)
                    if progress:
                        progress(done + size, max(done + size, expected))
                done += size
                files[f"{part.name}.mdb"] = {"bytes": size, "blake2b": digest.hexdigest()}
                part.snapshot.abort()  # from here on writers may reuse this environment's old pages
                failpoint("backup.copied")
            facts = {
                "format": FORMAT,
                "made": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                "store": {"format": STORE_FORMAT, **layout.facts},
                "nodes": nodes,
                "epoch": record.committed,
                "files": files,
            }
            (folder / MANIFEST).touch(mode=0o600)
            (folder / MANIFEST).write_text(json.dumps(facts, indent=1) + "\n")
            failpoint("backup.manifest")
    inflight = record.inflight.epoch if record.inflight else None
    return Backup(target, record.committed, inflight, done)


@contextmanager
def _held(meta: Meta, environments: Callable[[], dict[str, Environment]]) -> Iterator[list[_Part]]:
    """A read transaction on every environment, all of one moment; meta comes first."""
    while True:
        with ExitStack() as locks:
            found = environments()
            nodes = {name: environment for name, environment in found.items() if name.startswith("node-")}
            if len(nodes) > 1:  # always in the order of their numbers, as one who moves rows takes two: no deadlock
                for node in nodes.values():
                    locks.enter_context(node.writer_lock_held())
            parts, snapshots = _open_together(found)
        with snapshots:
            listed = meta.placement_in(parts[0].environment.map_in(parts[0].snapshot, "meta")).nodes
            if {f"node-{number}" for number in listed} == nodes.keys():  # else one was added meanwhile
                yield parts
                return


def _open_together(environments: dict[str, Environment]) -> tuple[list[_Part], ExitStack]:
    """Open again until meta did not change from the first opening to the last.

    Partitions read after the record could hold epochs that it does not know, and those read before could lack some. If
    both are the same, all parts are of the time in which it was current, and so is the catalog.
    """
    while True:
        with ExitStack() as opened:
            parts = [_Part(name, one, opened.enter_context(one.snapshot())) for name, one in environments.items()]
            if parts[0].environment.last_change() == parts[0].snapshot.id():
                return parts, opened.pop_all()


def _copy(environment: Environment, snapshot: lmdb.Transaction, target: Path) -> Iterator[bytes]:
    """Write the file of one environment; yields each piece once it is written."""
    target.touch(mode=0o600)
    # Always closed before the snapshot is: LMDB copies in a thread of its own.
    with open(target, "wb") as file, closing(environment.copy(snapshot)) as pieces:
        for piece in pieces:
            file.write(piece)
            yield piece


_PIECE_BYTES = 1 << 20
_HINT = "copy it again from where it was made, or restore an older backup"


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The contents of a backup's manifest."""

    nodes: int  # with which the store was made
    numbers: tuple[int, ...]  # of its nodes when it was backed up
    before_images: bool
    partitions: int
    files: dict[str, tuple[int, str]]  # size and digest

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


def restore_store(backup: Path, url: str, progress: Progress | None = None) -> None:
    """Make the store at `url` from the backup."""
    source = backup.expanduser()
    path, options = parse_url(url)
    target = path.resolve()
    manifest = _read_manifest(source)
    if options.get("before_images") == ("off" if manifest.before_images else "on"):
        has = "with" if manifest.before_images else "without"
        raise InputError(f"the backup's log is {has} before-images", "leave ?before_images out")
    if int(options.get("nodes", manifest.nodes)) != manifest.nodes:
        raise InputError(f"the store was made with {manifest.nodes} nodes, not {options['nodes']}", "leave ?nodes out")
    require_free(target)
    _require_sizes(source, manifest)
    require_space(target, manifest.bytes)
    with fill_atomically(target) as folder:
        done = 0
        for name in folders(manifest.numbers, manifest.partitions):
            (folder / name).mkdir(mode=0o700)
            done = _copy_file(source, folder, name, manifest, progress, done)
            failpoint("restore.copied")
        # It is a new store, every part of it (R19).
        facts = {name: getattr(manifest, name) for name in ("nodes", "partitions", "before_images")}
        facts["incarnation"] = incarnation = uuid.uuid4().hex
        map_mb = int(options.get("map_mb", MAP_MB_MAX))
        for name in folders(manifest.numbers, manifest.partitions):
            make_part(folder / name, part_of(facts, name, map_mb))
        meta = Environment(folder / "meta", part_of(facts, "meta", map_mb), synced=True)
        try:
            Meta(lambda: meta, manifest.nodes).begin_incarnation(incarnation)
        finally:
            meta.close(InputError("the store is made"))
        write_facts(folder, facts)
        failpoint("restore.written")


def _read_manifest(source: Path) -> _Manifest:
    if not (source / MANIFEST).is_file():
        raise DamagedBackup(f"{source} is not a backup", f"a whole one has a file {MANIFEST}")
    try:
        facts = json.loads((source / MANIFEST).read_text())
        written, store = int(facts["format"]), facts["store"]
        if written > FORMAT or int(store["format"]) > STORE_FORMAT:
            raise NewerFormat(f"the backup {source} was made by a newer ViewKeeper", "use a newer one here too")
        if written < FORMAT or int(store["format"]) < STORE_FORMAT:
            raise DamagedBackup(f"the backup {source} has an older format", "restore it by the ViewKeeper that made it")
        files = {name: (int(file["bytes"]), str(file["blake2b"])) for name, file in facts["files"].items()}
        numbers = tuple(int(number) for number in facts["nodes"])
        made = (int(store["nodes"]), numbers, bool(store["before_images"]), int(store["partitions"]))
        manifest = _Manifest(*made, files)
        complete = bool(numbers) and set(files) == {f"{name}.mdb" for name in folders(numbers, manifest.partitions)}
    except UNREADABLE as error:
        raise DamagedBackup(f"{source / MANIFEST} cannot be read", _HINT) from error
    if not complete:
        raise DamagedBackup(f"{source / MANIFEST} does not name every part of a store", _HINT)
    return manifest


def _require_sizes(source: Path, manifest: _Manifest) -> None:
    """Check the sizes of all files before the first is copied."""
    for name, (size, _) in manifest.files.items():
        file = source / name
        if not file.is_file():
            raise DamagedBackup(f"the backup {source} lacks {name}", _HINT)
        if file.stat().st_size != size:
            raise DamagedBackup(f"{file} has {file.stat().st_size:,} bytes, not {size:,}", _HINT)


def _copy_file(source: Path, folder: Path, name: str, manifest: _Manifest, progress: Progress | None, done: int) -> int:
    """Copy one environment's file; returns how many bytes are done by then."""
    size, wanted = manifest.files[f"{name}.mdb"]
    digest, start = hashlib.blake2b(), done
    target = folder / name / "data.mdb"
    target.touch(mode=0o600)
    with open(source / f"{name}.mdb", "rb") as old, open(target, "wb") as new:
        while piece := old.read(_PIECE_BYTES):
            new.write(piece)
            digest.update(piece)
            done += len(piece)
            if progress:
                progress(done, manifest.bytes)
    if done - start != size or digest.hexdigest() != wanted:
        raise DamagedBackup(f"{source / name}.mdb is not what was backed up", _HINT)
    return done


def compact_files(directory: Directory, nodes: Sequence[int], progress: Progress | None = None) -> None:
    """Replace every environment's file by a compacted copy, and remove nodes that are retired; only within `alone`."""
    layout, path = directory.layout, directory.layout.path
    parts = [layout.part(name) for name in folders(nodes, layout.partitions)]
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
    with translate_os_errors(new):
        try:
            environment = Environment(folder, part, synced=True)
            try:
                with environment.snapshot() as snapshot:
                    require_space(folder, _size(old))
                    deque(_copy(environment, snapshot, new), maxlen=0)
            finally:
                environment.close(StoreInUse("the copy is made"))
            sync_directory(new)
            failpoint("compact.copied")
            if _size(new) < _size(old):
                new.rename(old)
                failpoint("compact.renamed")
                sync_directory(folder)
        finally:
            new.unlink(missing_ok=True)
    failpoint("compact.done")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
