"""One SparkSession for the whole run: it takes seconds to start, and Spark allows one for each process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_local import start_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests arm failpoints of Spark's Python workers; this process itself imported the module unarmed."""
    return tmp_path_factory.mktemp("failpoints")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, failpoints: Path) -> Iterator[SparkSession]:
    """A local session with two slots, in which a failed task is tried again as it would be on a cluster."""
    session = start_local(failpoints, tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()
