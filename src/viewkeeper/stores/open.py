"""Stores by URL: the one dictionary of adapters.

In: a URL. Out: an open store, one for each URL and process. Always: an adapter is imported only when its scheme is
asked for; a URL and an incarnation, never a client, travel to executors, and the store opened there has that
incarnation; a URL holds no password, and one that came from outside is printed by `shown`.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from viewkeeper.errors import InputError, NotOffered, StoreReplaced

_ADAPTERS = {
    "embedded": ("viewkeeper.stores.embedded.store", "EmbeddedStore"),
    "memory": ("viewkeeper.stores.memory.cellstore", "open_memory"),
    "hbase": ("viewkeeper.stores.hbase.store", "HBaseStore"),
}
_RESTORERS = {"embedded": ("viewkeeper.stores.embedded.restore", "restore_store")}
_FOR_WORKERS = (
    "viewkeeper.stores.embedded.store",
    "viewkeeper.stores.embedded.partition",
    "viewkeeper.stores.logbatches",
)
_LOCAL = ("embedded:", "memory:")  # a file's name may have an @
_PASSWORD = re.compile(r"//[^/@]*:[^/@]*@")
_SHARED: dict[str, Any] = {}


def open_store(url: str, *, create: bool = True, read_only: bool = False) -> Any:
    """A store of the adapter for the URL's scheme; `read_only` is for one that cannot, or need not, be written."""
    return _load(_ADAPTERS[_scheme_of(url)])(url, create=create, read_only=read_only)


def restore_store(backup: Path, url: str, progress: Callable[[int, int], None] | None = None) -> None:
    """Make the store at `url` from a backup, where stores of that scheme have backups."""
    scheme = _scheme_of(url)
    if scheme not in _RESTORERS:
        raise NotOffered(f"a store at {scheme}: is not made from a backup", "restore it to embedded:PATH")
    _load(_RESTORERS[scheme])(backup, url, progress)


def import_for_workers() -> None:
    """Import what tasks need of the adapters, before workers are forked; nothing is opened."""
    for module in _FOR_WORKERS:
        importlib.import_module(module)


def _scheme_of(url: str) -> str:
    scheme = url.partition(":")[0]
    if scheme not in _ADAPTERS:
        known = " or ".join(f"{name}:" for name in _ADAPTERS)
        raise InputError(
            f"no store is reached by {shown(url)!r}", f"the URL starts with {known}, as in embedded:./shop"
        )
    _refuse_password(url)
    return scheme


def shown(url: str) -> str:
    """The URL as it may be printed: what stands before an @ may be a password."""
    before, at, where = url.rpartition("@")
    return f"…@{where}" if at and not before.startswith(_LOCAL) else url


def _refuse_password(url: str) -> None:
    """Raise where a URL holds a user or a password: no store takes one, and URLs are printed, logged and sent about."""
    where, _, query = url.partition("?")
    if "@" in where and not url.startswith(_LOCAL):
        raise InputError(
            f"the URL {shown(url)} holds a user or a password, and no store takes one", "leave out all before the @"
        )
    if _PASSWORD.search(unquote(query)):
        raise InputError(
            "the URL's rootdir holds a password",
            "leave it out: file systems take it from the environment or from their own settings",
        )


def _load(found: tuple[str, str]) -> Any:
    module, name = found
    return getattr(importlib.import_module(module), name)


def open_shared(url: str, incarnation: str) -> Any:
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
