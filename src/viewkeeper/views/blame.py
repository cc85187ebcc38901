"""Blame: whose work it was that failed.

In: the table of a view and a block of its work. Out: ViewFailed in place of what the block failed of. Always: what is not
the view's doing (a newer epoch, the store, the machine's memory) passes as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from viewkeeper.errors import InvariantBroken, ViewFailed

# ArrowInvalid is a ValueError, but so is ArrowMemoryError a MemoryError: that one is nobody's fault.
_ITS_OWN = (InvariantBroken, duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError)


@contextmanager
def blamed(table: int) -> Iterator[None]:
    """Within the block, work for the view with that table is done."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise
    except _ITS_OWN as error:
        raise ViewFailed(table, f"{type(error).__name__}: {str(error).splitlines()[0][:300]}") from error
