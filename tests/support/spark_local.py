"""A local Spark session for tests, whose Python workers have failpoints.

In: a folder in which points of the workers are armed, and one for Spark's own files. Out: a session with two slots, in which
a failed task is tried again as it would be on a cluster. Always: this process itself is not killed by those points.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper.failpoints  # noqa: F401 - before the variable is set: this process is not to be killed
from tests.support.source_tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_local(points: Path, folder: Path) -> SparkSession:
    """The session."""
    from pyspark.sql import SparkSession

    from viewkeeper.engine.spark_session import DAEMON

    os.environ["VIEWKEEPER_FAILPOINT_DIR"] = str(points)
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
        .config("spark.sql.warehouse.dir", str(folder))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    del os.environ["VIEWKEEPER_FAILPOINT_DIR"]
    return session


def _let_workers_import_what_we_import() -> None:
    """Workers are new processes: give them this interpreter, and the paths that pytest added to ours."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    inherited = os.environ.get("PYTHONPATH", "")
    wanted = [str(ROOT / "src"), str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*wanted, *filter(None, [inherited])])
