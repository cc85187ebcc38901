"""Stores by URL, `SCHEME:WHERE[?OPTION=VALUE&…]`: the one dictionary of adapters, and the options in a URL.

In: a URL. Out: an open store, one for each URL and process; for an adapter, its options as text. Always: an adapter is
imported only when its scheme is asked for; an unknown option, or an invalid value, is refused before anything is made. A
URL and an incarnation, never a client, travel to executors. A URL holds no password, and is printed by `shown`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from viewkeeper.errors import InputError, NotOffered, StoreReplaced
from viewkeeper.model.wording import suggestion

if TYPE_CHECKING:
    from viewkeeper.ports.store import Store

NODES_MAX = 64
PARTITIONS_MAX = 128
MAP_MB_MIN, MAP_MB_MAX = 16, 1 << 20
_SECONDS = re.compile(r"\d{1,20}(\.\d{1,20})?")
_SECONDS_MIN = 0.001
_SECONDS_MAX = {"retention": 10**9, "late": 10**6, "every": 86_400}  # of HBase: logs may be kept for years
_WAIT_SECONDS_MAX = 2_000_000  # of a wait: in milliseconds it is a number of 32 bits


def split_url(url: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The text between the scheme and the options, and the options, each one of the `known` ones."""
    where, _, query = url.partition(":")[2].partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in known:
            raise InputError(f"the URL option {name} is unknown", suggestion(name, known, "known are"))
        _require_value(name, value)
    return where, options


def _require_value(name: str, value: str) -> None:
    match name:
        case "nodes":
            if not value.isdecimal() or not 1 <= int(value) <= NODES_MAX:
                raise InputError(f"nodes={value} is not a number of nodes", f"use 1 to {NODES_MAX}")
        case "map_mb":
            if not value.isdecimal() or not MAP_MB_MIN <= int(value) <= MAP_MB_MAX:
                raise InputError(f"map_mb={value} is not a size of maps", f"use {MAP_MB_MIN} to {MAP_MB_MAX:,}")
        case "partitions":
            if not value.isdecimal() or not 1 <= int(value) <= PARTITIONS_MAX:
                raise InputError(f"partitions={value} is not a number of partitions", f"use 1 to {PARTITIONS_MAX}")
        case "busy_timeout" | "timeout" | "patience" | "late" | "retention" | "every":
            most = _SECONDS_MAX.get(name, _WAIT_SECONDS_MAX)
            if not _SECONDS.fullmatch(value) or not _SECONDS_MIN <= float(value) <= most:
                raise InputError(
                    f"{name}={value} is not a number of seconds", f"use {_SECONDS_MIN} to {most:,}, as in 2.5"
                )
        case "rootdir":
            pass
        case _:
            if value not in ("on", "off"):
                raise InputError(f"{name}={value} is not an option", f"use {name}=on or {name}=off")


def require_same(options: Mapping[str, str], *, nodes: int, before_images: bool) -> None:
    """Raise where options differ from what was fixed when the store was made."""
    if "nodes" in options and int(options["nodes"]) != nodes:
        raise InputError(
            f"the store was made with {nodes} nodes, not {options['nodes']}",
            "leave ?nodes out; ALTER STORE ADD NODE adds one",
        )
    if "before_images" in options and (options["before_images"] == "on") != before_images:
        raise InputError(
            f"the store's log is kept {'with' if before_images else 'without'} before-images",
            "that is fixed when the store is made: leave ?before_images out",
        )


_ADAPTERS = {
    "embedded": ("viewkeeper.stores.local.embedded_store", "EmbeddedStore"),
    "memory": ("viewkeeper.stores.local.memory_store", "MemoryStore"),
    "hbase": ("viewkeeper.stores.hbase.store", "HBaseStore"),
}
_RESTORERS = {"embedded": ("viewkeeper.stores.local.backups", "restore_store")}
_FOR_WORKERS = (
    "viewkeeper.stores.local.embedded_store",
    "viewkeeper.stores.local.partition",
    "viewkeeper.stores.local.log_batches",
)
_LOCAL = ("embedded:", "memory:")  # a file's name may have an @
_PASSWORD = re.compile(r"//[^/@]*:[^/@]*@")
_SHARED: dict[str, Store] = {}


def open_store(url: str, *, create: bool = True, read_only: bool = False) -> Store:
    """A store of the adapter for the URL's scheme; `read_only` is for one that cannot, or need not, be written."""
    return _load(*_ADAPTERS[_scheme_of(url)])(url, create=create, read_only=read_only)


def restore_store(backup: Path, url: str, progress: Callable[[int, int], None] | None = None) -> None:
    """Make the store at `url` from a backup, where stores of that scheme have backups."""
    scheme = _scheme_of(url)
    if scheme not in _RESTORERS:
        raise NotOffered(f"a store at {scheme}: is not made from a backup", "restore it to embedded:PATH")
    _load(*_RESTORERS[scheme])(backup, url, progress)


def import_for_workers() -> None:
    """Import what tasks need of the adapters, before workers are forked; nothing is opened."""
    for module in _FOR_WORKERS:
        importlib.import_module(module)


def _scheme_of(url: str) -> str:
    """The scheme of a URL that names an adapter and holds no user or password: URLs are printed, logged and sent about."""
    scheme = url.partition(":")[0]
    if scheme not in _ADAPTERS:
        known = " or ".join(f"{name}:" for name in _ADAPTERS)
        raise InputError(
            f"no store is reached by {shown(url)!r}", f"the URL starts with {known}, as in embedded:./shop"
        )
    where, _, query = url.partition("?")
    if "@" in where and not url.startswith(_LOCAL):
        fact = f"the URL {shown(url)} holds a user or a password, and no store takes one"
        raise InputError(fact, "leave out all before the @")
    if _PASSWORD.search(unquote(query)):
        raise InputError(
            "the URL's rootdir holds a password",
            "leave it out: file systems take it from the environment or from their own settings",
        )
    return scheme


def shown(url: str) -> str:
    """The URL as it may be printed: what stands before an @ may be a password."""
    before, at, where = url.rpartition("@")
    return f"…@{where}" if at and not before.startswith(_LOCAL) else url


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def open_shared(url: str, incarnation: str) -> Store:
    """The process's own open store of `url` with that incarnation: what a task on an executor uses."""
    close_replaced()
    if url not in _SHARED:
        _SHARED[url] = open_store(url, create=False, read_only=True)
    if _SHARED[url].incarnation != incarnation:
        raise StoreReplaced(
            f"the store at {url} was removed or replaced while a pipeline or a check used it", "connect again"
        )
    return _SHARED[url]


def close_replaced() -> None:
    """Close stores of `open_shared` that were removed or replaced since: a process outlives many of them."""
    for known in [known for known, store in _SHARED.items() if not store.is_current()]:
        _SHARED.pop(known).close()


os.register_at_fork(after_in_child=_SHARED.clear)
