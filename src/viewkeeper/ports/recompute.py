"""Recompute: the port through which a check has a view computed anew by another engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from viewkeeper.model.schema import Column


class Recompute(Protocol):
    """Batch SQL over tables in Parquet files; `viewkeeper_try(x)` in it is NULL where x fails."""

    def register(self, name: str, columns: Sequence[Column], file: Path) -> None:
        """Make columns of a file readable in SQL as the table `name`."""
        ...

    def answer(self, sql: str, target: Path, name: str | None = None) -> None:
        """Write the result of Spark SQL text as Parquet files in `target`, readable in SQL as `name` if one is given.

        May be called by several threads at once. Raises EpochFailed where there is no result, and InputError where it
        was cancelled.
        """
        ...

    def cancel(self) -> None:
        """Cancel running queries."""
        ...
