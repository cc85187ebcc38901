"""Recompute: the port through which a check has a view computed anew by another engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from viewkeeper.model.schema import Column


class Recompute(Protocol):
    """Batch SQL over tables in Parquet files; `viewkeeper_try(x)` in it is NULL where x fails."""

    def register(self, name: str, columns: Sequence[Column], file: Path) -> None:
        """Let SQL read columns of a file as the table `name`."""
        ...

    def answer(self, sql: str, target: Path) -> None:
        """Write the answer of Spark SQL text as Parquet files in `target`.

        May be called by several threads at once. Raises EpochFailed where there is no answer, and InputError
        where it was cancelled.
        """
        ...

    def cancel(self) -> None:
        """End what is being answered."""
        ...
