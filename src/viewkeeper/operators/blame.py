"""Blame: which view's work failed.

In: the table of a view and a block of its work. Out: ViewFailed in place of the block's error, EpochTooLarge where an
Arrow array cannot hold the data. Always: what the view did not cause (a newer epoch, the store, the machine's memory)
passes; a record of a newer epoch passes with its table. The reason holds no value of a row: it goes into the epoch record,
and from there into every status.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from viewkeeper.codegen.causes import cause_of
from viewkeeper.errors import EpochTooLarge, InvariantBroken, LaterRecord, ViewFailed

# ArrowInvalid is a ValueError; ArrowMemoryError is a MemoryError, for which no view is to blame.
_ITS_OWN = (InvariantBroken, duckdb.Error, pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError)
_TOO_LARGE = ("offset overflow", "binary array capacity", "maximum total string size")


@contextmanager
def blamed(table: int) -> Iterator[None]:
    """The block works for the view with that table."""
    try:
        yield
    except LaterRecord as error:
        raise LaterRecord(error.epoch, table) from error
    except duckdb.OutOfMemoryException:
        raise
    except (pa.ArrowCapacityError, OSError, *_ITS_OWN) as error:
        reason = cause_of(error)
        if _is_too_large(error):
            raise EpochTooLarge(table, reason) from error
        if isinstance(error, OSError):
            raise
        raise ViewFailed(table, reason) from error


def _is_too_large(error: Exception) -> bool:
    """Whether one Arrow array would exceed 2 GiB, in an Arrow function or in a result of DuckDB."""
    return isinstance(error, pa.ArrowCapacityError) or any(words in str(error) for words in _TOO_LARGE)
