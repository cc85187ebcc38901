"""Backup: the whole store as it was at one moment, while writers and the pipeline go on.

    DEST/backup.json                            the manifest, written last: what was copied, with sizes and digests
    DEST/meta.mdb, node-N.mdb, partition-N.mdb  the environments, compacted

In: an open store and a new directory. Out: a backup, or nothing that looks like one. Always: its parts belong together
(R19). A read transaction is opened on every environment, and meta did not change meanwhile; so views are those of the
epoch record, with what the epoch in flight has written so far, and the log reaches all positions that the record names.
Several nodes are caught at one instant, because no writer is at work while their transactions are opened (R17).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.failpoints import failpoint
from viewkeeper.ports.upkeep import Backup, Progress
from viewkeeper.stores.embedded.layout import FORMAT as STORE_FORMAT
from viewkeeper.stores.embedded.layout import MANIFEST, Layout
from viewkeeper.stores.embedded.meta import Meta
from viewkeeper.stores.embedded.newdirectory import new_directory, require_free, require_path, require_space

if TYPE_CHECKING:
    import lmdb

    from viewkeeper.stores.embedded.environment import Environment

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
        record = meta.epoch_record_in(parts[0].snapshot)
        nodes = meta.placement_in(parts[0].snapshot).nodes
        expected = sum(part.environment.bytes_used(part.snapshot) for part in parts)
        require_space(target, expected)
        with new_directory(target) as folder:
            files: dict[str, dict[str, object]] = {}
            done = 0
            for part in parts:
                digest, size = hashlib.blake2b(), 0
                for piece in _copy(part, folder):
                    digest.update(piece)
                    size += len(piece)
                    if progress:
                        progress(done + size, max(done + size, expected))
                done += size
                files[f"{part.name}.mdb"] = {"bytes": size, "blake2b": digest.hexdigest()}
                part.snapshot.abort()  # from here on writers may reuse this environment's old pages
                failpoint("backup.copied")
            _write_manifest(layout, folder, files, epoch=record.committed, nodes=nodes)
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
            listed = meta.placement_in(parts[0].snapshot).nodes
            if {f"node-{number}" for number in listed} == nodes.keys():  # else one was added meanwhile
                yield parts
                return


def _open_together(environments: dict[str, Environment]) -> tuple[list[_Part], ExitStack]:
    """Open again until meta did not change from the first opening to the last.

    The record read first may be older than the partitions read next, which would then hold epochs it does not know; the
    one read last may be newer than they are. If both are the same, all parts are of the time in which it was current.
    The same holds for the catalog: what it lists has not been dropped yet.
    """
    while True:
        with ExitStack() as opened:
            parts = [_Part(name, one, opened.enter_context(one.held())) for name, one in environments.items()]
            if parts[0].environment.last_change() == parts[0].snapshot.id():
                return parts, opened.pop_all()


def _copy(part: _Part, folder: Path) -> Iterator[bytes]:
    """Write the file of one environment; yields each piece once it is written."""
    target = folder / f"{part.name}.mdb"
    target.touch(mode=0o600)
    # Always closed before the snapshot is: LMDB copies in a thread of its own.
    with open(target, "wb") as file, closing(part.environment.copy(part.snapshot)) as pieces:
        for piece in pieces:
            file.write(piece)
            yield piece


def _write_manifest(
    layout: Layout, folder: Path, files: dict[str, dict[str, object]], *, epoch: int, nodes: tuple[int, ...]
) -> None:
    facts = {
        "format": FORMAT,
        "made": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "store": {"format": STORE_FORMAT, **layout.facts},
        "nodes": nodes,
        "epoch": epoch,
        "files": files,
    }
    (folder / MANIFEST).touch(mode=0o600)
    (folder / MANIFEST).write_text(json.dumps(facts, indent=1) + "\n")
    failpoint("backup.manifest")
