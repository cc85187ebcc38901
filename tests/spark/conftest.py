"""One SparkSession for the whole run: it takes seconds to start, and Spark allows one for each process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def failpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests arm failpoints of Spark's Python workers; this process itself imported the module unarmed."""
    return tmp_path_factory.mktemp("failpoints")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, failpoints: Path) -> Iterator[SparkSession]:
    """A local session with two slots, in which a failed task is tried again as it would be on a cluster."""
    from pyspark.sql import SparkSession

    import viewkeeper.failpoints  # noqa: F401 - before the variable is set: this process is not to be killed
    from viewkeeper.engine.session import DAEMON

    os.environ["VIEWKEEPER_FAILPOINT_DIR"] = str(failpoints)
    _let_workers_import_what_we_import()
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("viewkeeper-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.daemon.module", DAEMON)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    del os.environ["VIEWKEEPER_FAILPOINT_DIR"]
    yield session
    session.stop()


def _let_workers_import_what_we_import() -> None:
    """Workers are new processes: give them this interpreter, and the paths that pytest added to ours."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    inherited = os.environ.get("PYTHONPATH", "")
    wanted = [str(ROOT / "src"), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*wanted, *filter(None, [inherited])])
