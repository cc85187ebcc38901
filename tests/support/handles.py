"""Handles: LMDB environments that tests left open in this process.

In: nothing. Out: nothing. Always: a store is opened anew by whoever uses it next. Each environment reserves a TiB of
addresses and a store has ten, so a process that never lets go can open about a dozen stores.
"""

from __future__ import annotations

import sys


def close_environments() -> None:
    """Close every environment of this process; if nothing was opened, nothing is imported either."""
    module = sys.modules.get("viewkeeper.stores.local.directory")
    for directory in list(module._ALL) if module is not None else ():
        with directory._lock:
            while directory._handles:
                handle = directory._handles.popitem()[1]
                handle._is_shut = True
                handle._env.close()
                handle._file.close()
