"""Restore: a new store made from a backup, in a new incarnation (R19).

In: a backup and the URL of a store that does not exist. Out: the store. Always: every file is compared with the
manifest before LMDB sees it, so a truncated or altered one is an error and not a crash; tokens of the store that was
backed up do not fit the new one, epoch numbers continue, and an epoch that was in flight is run again by the first
pipeline. Views are marked clean: what was copied was a whole state, and is durable.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import DamagedBackup, InputError, NewerFormat
from viewkeeper.failpoints import failpoint
from viewkeeper.ports.upkeep import Progress
from viewkeeper.stores.embedded.backup import FORMAT
from viewkeeper.stores.embedded.environment import Environment
from viewkeeper.stores.embedded.layout import FORMAT as STORE_FORMAT
from viewkeeper.stores.embedded.layout import MANIFEST, parse_url, write_facts
from viewkeeper.stores.embedded.meta import Meta
from viewkeeper.stores.embedded.newdirectory import new_directory, require_free, require_space
from viewkeeper.stores.embedded.parts import folders, make_part, part_of
from viewkeeper.stores.urls import MAP_MB_MAX

_PIECE_BYTES = 1 << 20
_HINT = "take another backup"


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
    if options.get("before_images", "on" if manifest.before_images else "off") == (
        "off" if manifest.before_images else "on"
    ):
        raise InputError("the backup has another kind of log", "leave ?before_images out")
    if int(options.get("nodes", manifest.nodes)) != manifest.nodes:
        raise InputError(f"the store was made with {manifest.nodes} nodes, not {options['nodes']}", "leave ?nodes out")
    require_free(target)
    _require_sizes(source, manifest)
    require_space(target, manifest.bytes)
    with new_directory(target) as folder:
        done = 0
        for name in folders(manifest.numbers, manifest.partitions):
            (folder / name).mkdir(mode=0o700)
            done = _copy_file(source, folder, name, manifest, progress, done)
            failpoint("restore.copied")
        _begin_incarnation(folder, manifest, uuid.uuid4().hex, int(options.get("map_mb", MAP_MB_MAX)))
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
            raise DamagedBackup(f"the backup {source} has an older format, which is not read any more", _HINT)
        files = {name: (int(file["bytes"]), str(file["blake2b"])) for name, file in facts["files"].items()}
        numbers = tuple(int(number) for number in facts["nodes"])
        made = (int(store["nodes"]), numbers, bool(store["before_images"]), int(store["partitions"]))
        manifest = _Manifest(*made, files)
        complete = bool(numbers) and set(files) == {f"{name}.mdb" for name in folders(numbers, manifest.partitions)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
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


def _begin_incarnation(folder: Path, manifest: _Manifest, incarnation: str, map_mb: int) -> None:
    """Make a new store of what was copied, every part of it (R19)."""
    facts = {name: getattr(manifest, name) for name in ("nodes", "partitions", "before_images")}
    facts["incarnation"] = incarnation
    for name in folders(manifest.numbers, manifest.partitions):
        make_part(folder / name, part_of(facts, name, map_mb))
    meta = Environment(folder / "meta", part_of(facts, "meta", map_mb), synced=True)
    try:
        Meta(lambda: meta, manifest.nodes).begin_incarnation(incarnation)
    finally:
        meta.close(InputError("the store is made"))
    write_facts(folder, facts)
