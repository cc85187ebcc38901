"""Mapped pages: memory of this process that only mirrors the system's cache of a file.

In: the path of a mapped file. Out: nothing. Always: best effort, and harmless: the pages stay in the system's cache,
and are mapped again when read again.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MAPS = Path("/proc/self/maps")  # only on Linux
_DONT_NEED = 4  # MADV_DONTNEED of <sys/mman.h>


def let_go_of_pages(path: Path) -> None:
    """Remove the pages of a mapped file from this process's resident memory.

    A process that reads a long log from start to end would otherwise seem to hold all of it, and be the first to be
    killed when memory is short.
    """
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None or not _MAPS.exists():
        return
    mapped = os.fsencode(path)
    for line in _MAPS.read_bytes().splitlines():
        if line.endswith(b" " + mapped):
            start, end = (int(address, 16) for address in line.split(b" ", 1)[0].split(b"-"))
            advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED)
