"""Mapped pages: memory of this process that is nothing but the system's cache of a file.

In: the path of a file that is mapped. Out: nothing. Always: best effort, and harmless: the pages stay in the system's cache,
and one that is read again is there again.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MAPS = Path("/proc/self/maps")  # Linux alone has it
_DONT_NEED = 4  # MADV_DONTNEED of <sys/mman.h>


def let_go_of_pages(path: Path) -> None:
    """Take the pages of a mapped file off this process's account.

    Whoever reads a long log from its start to its end would otherwise seem to hold all of it, and be taken for the
    process to kill when memory is short.
    """
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None or not _MAPS.exists():
        return
    mapped = os.fsencode(path)
    for line in _MAPS.read_bytes().splitlines():
        if line.endswith(b" " + mapped):
            start, end = (int(address, 16) for address in line.split(b" ", 1)[0].split(b"-"))
            advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED)
