"""Layout: the directory of an embedded store.

    store.json      format, nodes at first, partitions, kind of log, incarnation; written last: a store exists or does not
    meta/           catalog, epoch record, clock, and which nodes there are now
    node-N/         base rows and log of node N
    partition-N/    view records
    pipeline.lock   held by the living pipeline

In: a URL `embedded:PATH[?nodes=N&before_images=off&sync=off]`. Out: a frozen `Layout`. Always: what is fixed when the
store is made is read from `store.json` and repeated in every part, so neither can change alone; a directory that is not
a store is refused, never written into.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import CorruptStore, InputError, NewerFormat, StoreError
from viewkeeper.failpoints import failpoint
from viewkeeper.model.json_codec import UNREADABLE
from viewkeeper.stores.kv.atomic_directory import (
    MARKER,
    clear_unfinished,
    mark_unfinished,
    require_path,
    sync_directory,
    translate_no_space,
    translate_os_errors,
)
from viewkeeper.stores.kv.file_locks import BUSY_SECONDS, locked
from viewkeeper.stores.kv.lmdb_files import Part, folders, make_part, part_of
from viewkeeper.stores.local.meta import StoreLayout
from viewkeeper.stores.local.placement import SLOTS
from viewkeeper.stores.open import MAP_MB_MAX, NODES_MAX, require_same, split_url

FORMAT = 5
PARTITIONS = 8
MANIFEST = "backup.json"  # what a backup has instead of store.json
_FILE = "store.json"
_OPTIONS = ("nodes", "before_images", "sync", "busy_timeout", "map_mb")
_FACTS = {"nodes": int, "partitions": int, "before_images": bool, "incarnation": str}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(StoreLayout):
    """Where a store is and what was fixed when it was made."""

    path: Path
    map_mb: int = MAP_MB_MAX  # the most addresses that one part reserves

    @property
    def url(self) -> str:
        options = [] if self.synced else ["sync=off"]
        options += [] if self.busy_seconds == BUSY_SECONDS else [f"busy_timeout={self.busy_seconds:g}"]
        options += [] if self.map_mb == MAP_MB_MAX else [f"map_mb={self.map_mb}"]
        return f"embedded:{self.path}" + (f"?{'&'.join(options)}" if options else "")

    @property
    def file(self) -> Path:
        return self.path / _FILE

    @property
    def lock(self) -> Path:
        return self.path / "pipeline.lock"

    @property
    def facts(self) -> dict[str, object]:
        """What was fixed when the store was made."""
        return {name: getattr(self, name) for name in _FACTS}

    def part(self, name: str) -> Part:
        """The part of that name."""
        return part_of(self.facts, name, self.map_mb)

    def require_parts(self, nodes: Iterable[int]) -> None:
        """Raise CorruptStore unless all folders are there."""
        _require_whole(self.path, {name for name in folders(nodes, self.partitions) if not (self.path / name).is_dir()})


def open_layout(url: str, *, create: bool, read_only: bool = False) -> Layout:
    """The store at `url`, made when it does not exist and `create` is set."""
    path, options = parse_url(url)
    if not (path / _FILE).exists():
        _require_place_for_store(path)
        if not create:
            raise StoreError(f"there is no store at {path}", "connect without read_only to make one")
        _create(path, options)
    facts = _read(path / _FILE)
    require_same(options, nodes=facts["nodes"], before_images=facts["before_images"])
    needed = [path / name for name in ("", "meta", "meta/data.mdb")]
    is_writable = all(os.access(file, os.W_OK) for file in needed if file.exists())
    if not is_writable and not read_only:
        raise StoreError(f"the store at {path} cannot be written from here", "connect with read_only=True to read it")
    return Layout(
        path=path.resolve(),
        **facts,
        synced=options.get("sync") != "off",
        is_writable=is_writable,
        busy_seconds=float(options.get("busy_timeout", BUSY_SECONDS)),
        map_mb=int(options.get("map_mb", MAP_MB_MAX)),
    )


def _require_place_for_store(path: Path) -> None:
    """Raise where a directory, or a file, is something other than a store that is being made."""
    if (path / MANIFEST).exists():
        raise CorruptStore(f"{path} is a backup, not a store", "vk.restore(backup, url) makes a store from it")
    names = os.listdir(path) if path.is_dir() else []
    is_foreign = bool(names) and MARKER not in names and _FILE not in names
    if path.is_file() or is_foreign:
        raise CorruptStore(f"{path} is not a ViewKeeper store", "name an empty or new directory, or a store")


def parse_url(url: str) -> tuple[Path, dict[str, str]]:
    """The directory that a URL names, and its options."""
    path, options = split_url(url, _OPTIONS)
    if not url.startswith("embedded:") or not path:
        raise InputError(f"{url!r} is not the URL of a store", "write embedded:PATH")
    if path.startswith("//") and not path.startswith("///"):
        raise InputError(
            "the URL names a host, and an embedded store is a directory of this machine",
            "write embedded:PATH, as in embedded:/srv/shop or embedded:./shop",
        )
    return require_path(Path(path)), options


def _create(path: Path, options: Mapping[str, str]) -> None:
    nodes, before_images = int(options.get("nodes", 1)), options.get("before_images") != "off"
    synced, map_mb = options.get("sync") != "off", int(options.get("map_mb", MAP_MB_MAX))
    facts = {"nodes": nodes, "partitions": PARTITIONS, "before_images": before_images, "incarnation": uuid.uuid4().hex}
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {path}: {error.strerror}", "name a directory you may write") from error
    # two processes may make the same store: the second finds it there
    with translate_os_errors(path), locked(path, float(options.get("busy_timeout", BUSY_SECONDS))):
        if (path / _FILE).exists():
            return
        mark_unfinished(path)
        clear_unfinished(path)
        for name in folders(range(nodes), PARTITIONS):
            make_part(path / name, part_of(facts, name, map_mb))
            failpoint("layout.part")
        for file in (*path.glob("*/data.mdb"), path) if synced else ():
            sync_directory(file)
        write_facts(path, facts)
        (path / MARKER).unlink()


def write_facts(path: Path, facts: Mapping[str, object]) -> None:
    """Write `store.json`: from here on the directory is a store."""
    temporary = path / f"{_FILE}.new"
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps({"format": FORMAT, **facts}, indent=1) + "\n")
    temporary.rename(path / _FILE)


def _read(file: Path) -> dict:
    try:
        with translate_no_space(str(file)):
            facts = json.loads(file.read_text())
        written = int(facts["format"])
    except (*UNREADABLE, OSError) as error:
        raise CorruptStore(f"{file} cannot be read", "restore the store from a backup") from error
    if written != FORMAT and not _is_same_but_for_nodes(facts):
        fact, more = f"the store at {file.parent} has format {written}", f"this ViewKeeper reads {FORMAT}"
        if written > FORMAT:
            raise NewerFormat(fact, f"{more}: use a newer one")
        raise StoreError(fact, f"{more}: make a new store and write the rows again")
    wrong = {name for name, kind in _FACTS.items() if type(facts.get(name)) is not kind}
    wrong |= {name for name in ("nodes", "partitions") if name not in wrong and not 1 <= facts[name] <= NODES_MAX}
    if not wrong:  # the nodes are those of the placement, which is in meta
        wrong = {name for name in folders((), facts["partitions"]) if not (file.parent / name).is_dir()}
    _require_whole(file.parent, wrong)
    return {name: facts[name] for name in _FACTS}


def _is_same_but_for_nodes(facts: Mapping[str, object]) -> bool:
    """Whether a store of the format before has its rows where this one would: then only its number is different."""
    nodes = facts.get("nodes")
    return facts["format"] == FORMAT - 1 and type(nodes) is int and nodes > 0 and SLOTS % nodes == 0


def raise_format(path: Path) -> None:
    """From here on, an older ViewKeeper refuses the store. One byte changes in place: others hold a lock on the file."""
    descriptor = os.open(path / _FILE, os.O_RDWR | os.O_CLOEXEC)
    try:
        old, new = (f'"format": {number}'.encode() for number in (FORMAT - 1, FORMAT))
        at = os.pread(descriptor, 4096, 0).find(old)
        if at >= 0:
            os.pwrite(descriptor, new, at)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_whole(path: Path, lacking: Collection[str]) -> None:
    if lacking:
        raise CorruptStore(f"the store at {path} lacks {', '.join(sorted(lacking))}", "restore it from a backup")
