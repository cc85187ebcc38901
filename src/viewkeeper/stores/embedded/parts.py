"""Parts: the environments that a store consists of, and the record in each that identifies it.

In: what was fixed when the store was made. Out: its parts, and the identity of each. Always: a part is read only by the
store whose identity it carries, so one that was left over, swapped or brought from elsewhere is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import lmdb

from viewkeeper.errors import CorruptStore
from viewkeeper.model.plain import reading
from viewkeeper.stores.embedded.lmdb_errors import translate
from viewkeeper.stores.urls import MAP_MB_MAX

DATABASES_MAX = 8
READERS_MAX = 1024
_LOCK_BYTES = READERS_MAX * 64 + 4096  # at least what LMDB needs for so many
IDENTITY = b"identity"  # in the main database, beside the names of the others
# Reserved, not used: a sparse map never has to be resized during an open transaction. A process has 128 TiB of
# addresses.
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
    """Make an environment, or give an existing one the identity of another store; no process has it open.

    It is not synced: the caller, who makes several, does that.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    _reserve_lock(folder / "lock.mdb")
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


def _reserve_lock(file: Path) -> None:
    """Make LMDB's lock file with all its pages: touching a hole on a full disk would end the process by SIGBUS."""
    if not file.exists():
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _LOCK_BYTES)
        finally:
            os.close(descriptor)
