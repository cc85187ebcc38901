"""Stores by URL: the one dictionary of adapters.

In: a URL. Out: an open store, one for each URL and process. Always: an adapter is imported only when its scheme is asked
for, and a URL, never a client, travels to executors.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from typing import Any

from viewkeeper.errors import InputError

_ADAPTERS = {"embedded": ("viewkeeper.stores.embedded.store", "EmbeddedStore")}


def open_store(url: str, *, create: bool = True) -> Any:
    """A store of the adapter that the URL's scheme names."""
    scheme = url.partition(":")[0]
    if scheme not in _ADAPTERS:
        known = ", ".join(f"{name}:" for name in _ADAPTERS)
        raise InputError(f"no store is reached by {url!r}", f"the URL starts with {known} as in embedded:./shop")
    module, name = _ADAPTERS[scheme]
    return getattr(importlib.import_module(module), name)(url, create=create)


def open_shared(url: str) -> Any:
    """The process's own open store of `url`: what a task on an executor uses."""
    return _shared(url, os.getpid())


@lru_cache(maxsize=16)
def _shared(url: str, pid: int) -> Any:  # the pid parts a forked worker from its parent
    return open_store(url, create=False)
