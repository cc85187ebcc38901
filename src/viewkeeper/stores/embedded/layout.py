"""Layout: the directory of an embedded store.

    store.json      format, number of nodes and places, kind of log, incarnation; written last, so a store exists or does not
    meta/           catalog, epoch record, clock
    node-N/         base rows and log of node N
    place-N/        view records
    pipeline.lock   held by the living pipeline

In: a URL `embedded:PATH[?nodes=N&before_images=off&sync=off]`. Out: a frozen `Layout`. Always: what is fixed when the store
is made is read from `store.json`, and a directory that is not a store is refused, never written into.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from viewkeeper.errors import CorruptStore, InputError, NewerFormat, StoreError

FORMAT = 1
PLACES = 8
NODES_MAX = 64
MANIFEST = "backup.json"  # what a backup has in the place of store.json
_FILE = "store.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a store is and what was fixed when it was made."""

    path: Path
    nodes: int
    places: int
    incarnation: str
    before_images: bool
    synced: bool

    @property
    def url(self) -> str:
        return f"embedded:{self.path}" + ("" if self.synced else "?sync=off")

    @property
    def meta(self) -> Path:
        return self.path / "meta"

    @property
    def lock(self) -> Path:
        return self.path / "pipeline.lock"

    def node(self, number: int) -> Path:
        return self.path / f"node-{number}"

    def place(self, number: int) -> Path:
        return self.path / f"place-{number}"


def open_layout(url: str, *, create: bool) -> Layout:
    """The store at `url`, made when it is not there and `create` says so."""
    path, options = parse_url(url)
    if not (path / _FILE).exists():
        if (path / MANIFEST).exists():
            raise CorruptStore(f"{path} is a backup, not a store", "vk.restore(backup, url) makes a store from it")
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            raise CorruptStore(f"{path} is not a ViewKeeper store", "name an empty or new directory, or a store")
        if not create:
            raise StoreError(f"there is no store at {path}", "connect without read_only to make one")
        _create(path, int(options.get("nodes", 1)), before_images=options.get("before_images") != "off")
    facts = _read(path / _FILE)
    if "nodes" in options and int(options["nodes"]) != facts["nodes"]:
        raise InputError(
            f"the store has {facts['nodes']} nodes, not {options['nodes']}",
            "the number is fixed when the store is made: leave ?nodes out",
        )
    images = facts["before_images"]
    if "before_images" in options and (options["before_images"] == "on") != images:
        raise InputError(
            f"the store's log is kept {'with' if images else 'without'} before-images",
            "that is fixed when the store is made: leave ?before_images out",
        )
    synced = options.get("sync", "on") == "on"
    return Layout(path.resolve(), facts["nodes"], facts["places"], facts["incarnation"], images, synced)


def parse_url(url: str) -> tuple[Path, dict[str, str]]:
    """The directory that a URL names, and its options."""
    scheme, colon, rest = url.partition(":")
    place, _, query = rest.partition("?")
    if scheme != "embedded" or not colon or not place:
        raise InputError(f"{url!r} is not the URL of a store", "write embedded:PATH")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name == "nodes":
            if not value.isdecimal() or not 1 <= int(value) <= NODES_MAX:
                raise InputError(f"nodes={value} is not a number of nodes", f"use 1 to {NODES_MAX}")
        elif name in ("sync", "before_images"):
            if value not in ("on", "off"):
                raise InputError(f"{name}={value} is not an option", f"use {name}=on or {name}=off")
        else:
            raise InputError(f"the URL option {name} is unknown", "known are nodes, before_images and sync")
    return Path(place).expanduser(), options


def _create(path: Path, nodes: int, *, before_images: bool) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {path}: {error.strerror}", "name a directory you may write") from error
    with locked(path):  # two processes may make the same store: the second finds it made
        if (path / _FILE).exists():
            return
        for folder in folders(nodes, PLACES):
            (path / folder).mkdir(mode=0o700, exist_ok=True)
        write_facts(path, nodes=nodes, places=PLACES, before_images=before_images, incarnation=uuid.uuid4().hex)


def folders(nodes: int, places: int) -> list[str]:
    """The names of a store's environments."""
    return ["meta", *(f"node-{n}" for n in range(nodes)), *(f"place-{n}" for n in range(places))]


def write_facts(path: Path, *, nodes: int, places: int, before_images: bool, incarnation: str) -> None:
    """Write `store.json`: from here on the directory is a store."""
    facts: dict[str, object] = {"format": FORMAT, "nodes": nodes, "places": places}
    facts |= {"before_images": before_images, "incarnation": incarnation}
    temporary = path / f"{_FILE}.new"
    temporary.write_text(json.dumps(facts, indent=1) + "\n")
    temporary.rename(path / _FILE)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The directory's lock: one process at a time makes or repairs a store."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(file: Path) -> dict:
    try:
        facts = json.loads(file.read_text())
        written = int(facts["format"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CorruptStore(f"{file} cannot be read", "restore the store from a backup") from error
    if written > FORMAT:
        raise NewerFormat(
            f"the store at {file.parent} has format {written}", f"this ViewKeeper reads up to {FORMAT}: use a newer one"
        )
    missing = {"nodes", "places", "before_images", "incarnation"} - facts.keys()
    missing |= {name for name in ("meta", "node-0", "place-0") if not (file.parent / name).is_dir()}
    if missing:
        raise CorruptStore(f"the store at {file.parent} lacks {', '.join(sorted(missing))}", "restore it from a backup")
    return facts
