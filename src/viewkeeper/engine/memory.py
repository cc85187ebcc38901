"""Memory of a Python worker: what a task no longer needs is returned to the system.

In: nothing. Out: nothing. Always: best effort; a worker lives through many epochs, and what its allocators keep for
later would otherwise add up to more than any one epoch needs.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa

from viewkeeper.operators.duck import forget_relations


def give_back_memory() -> None:
    """Called at the end of a task."""
    forget_relations()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in glibc
    if trim is not None:
        trim(0)
