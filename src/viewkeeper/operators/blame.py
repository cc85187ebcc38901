"""Blame: whose work it was that failed.

In: the table of a view and a block of its work. Out: ViewFailed in place of what the block failed of, EpochTooLarge where
an Arrow array cannot hold it. Always: what is not the view's doing (a newer epoch, the store, the machine's memory) passes
as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from viewkeeper.errors import EpochTooLarge, InvariantBroken, ViewFailed

# ArrowInvalid is a ValueError, but so is ArrowMemoryError a MemoryError: that one is nobody's fault.
_ITS_OWN = (InvariantBroken, duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError)
_TOO_LARGE = ("offset overflow", "binary array capacity", "maximum total string size")


@contextmanager
def blamed(table: int) -> Iterator[None]:
    """Within the block, work for the view with that table is done."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise
    except (pa.ArrowCapacityError, OSError, *_ITS_OWN) as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
        if _is_too_large(error):
            raise EpochTooLarge(table, reason) from error
        if isinstance(error, OSError):
            raise
        raise ViewFailed(table, reason) from error


def _is_too_large(error: Exception) -> bool:
    """Whether more than 2 GiB were to be one Arrow array: by Arrow's own functions, or as a result of DuckDB's."""
    return isinstance(error, pa.ArrowCapacityError) or any(words in str(error) for words in _TOO_LARGE)
