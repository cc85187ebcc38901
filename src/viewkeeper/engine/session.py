"""The Spark session that epochs run in.

In: a session of the user's, or nothing. Out: a session with the settings that the epoch program needs. Always: a user's
session keeps its own settings (ours are those of a sibling session on the same context); Spark's Python is the
interpreter that runs us; without Java 17 the error is raised before anything is started.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from viewkeeper.errors import JavaMissing, StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DAEMON = "viewkeeper.engine.daemon"
_JAVA_MIN = 17
_NICENESS = 5
_FILES_MIN = 400
# AQE may drop a stage whose result it no longer needs, and with it the stage's writes (R18a).
_EPOCH_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}


def require_spark() -> str:
    """The Java that Spark can use; raises unless it and PySpark are installed."""
    if importlib.util.find_spec("pyspark") is None:
        raise StoreError("the package pyspark is not installed", "pip install 'viewkeeper[spark]'")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = "install Java 17 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if not java or not Path(java).exists() or os.environ.get("VIEWKEEPER_JAVA") == "none":
        raise JavaMissing("Spark needs Java 17 and none was found", hint)
    version = _java_version(java)
    if version is None or version < _JAVA_MIN:
        raise JavaMissing(f"Spark needs Java 17, {java} is {version or 'unknown'}", hint)
    return java


@lru_cache(maxsize=4)
def _java_version(java: str) -> int | None:
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    return int(version[1]) if version else None


def default_session(view_managers: int, *, java_options: str = "") -> SparkSession:
    """A local session with a task slot for each view manager, up to the number of cores; lost tasks are retried.

    `java_options` are those of the JVM, if it is started here.
    """
    java = require_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from viewkeeper.engine.classarchive import archive_options
    from viewkeeper.engine.failures import spark_lost_told

    is_ours = SparkContext._active_spark_context is None
    options = f"{java_options} {archive_options(java)}".strip() if is_ours else java_options
    slots = max(1, min(view_managers, os.cpu_count() or 1))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{slots},4]")
        .appName("viewkeeper")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", options)
        .config("spark.speculation", "false")
        .config("spark.python.daemon.module", DAEMON)
        .config("spark.python.factory.idleWorkerMaxPoolSize", str(slots))
        .config("spark.sql.shuffle.partitions", str(slots))
    )
    if is_ours and "SPARK_LOCAL_DIRS" not in os.environ:
        builder = builder.config("spark.local.dir", _private_folder())
    if is_ours:
        _require_files()
    with spark_lost_told():
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    if is_ours:
        _let_others_go_first(session)
    return session


def _require_files() -> None:
    """Raise where the JVM may not open its archives of classes: it would say that one of its files is missing."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # Java raises its own limit up to the hard one
    if most != resource.RLIM_INFINITY and most < _FILES_MIN:
        raise StoreError(f"Spark opens about {_FILES_MIN} files, and may have {most} open", "ulimit -n 1024, or more")


def is_set_up_by_us(session: SparkSession) -> bool:
    """Whether `default_session` made it: in a process that has a session already it takes that one."""
    return session.sparkContext.getConf().get("spark.python.daemon.module") == DAEMON


def cancel_jobs() -> None:
    """Cancel what Spark does for this process, if anything."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        with contextlib.suppress(Exception):  # it may be shutting down by itself
            context.cancelAllJobs()


def _private_folder() -> str:
    """Where Spark spills and shuffles: it holds rows, so no other user may read it. It is removed with this process."""
    folder = tempfile.mkdtemp(prefix="viewkeeper-spark-")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # not at the end of a forked child
        shutil.rmtree(folder, ignore_errors=True)


def _let_others_go_first(session: SparkSession) -> None:
    """Lower the priority of the JVM's threads; threads and Python workers started by them inherit it.

    Views are computed with what base writes and everything else on the machine leave over.
    """
    process = getattr(session.sparkContext._gateway, "proc", None)
    tasks = Path(f"/proc/{process.pid}/task") if process is not None else None
    for task in tasks.iterdir() if tasks is not None and tasks.is_dir() else ():
        _lower_priority(int(task.name))


def let_others_go_first_here() -> None:
    """The same for the calling thread, for good."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        _lower_priority(threading.get_native_id())


def _lower_priority(thread: int) -> None:
    """Never raise it: our caller may have lowered it further."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


def epoch_session(session: SparkSession) -> SparkSession:
    """A sibling of `session` with the settings that epochs need."""
    sibling = session.newSession()
    for name, value in _EPOCH_SETTINGS.items():
        sibling.conf.set(name, value)
    return sibling


def run_first_job(session: SparkSession, tasks: int) -> None:
    """Run an empty job like an epoch's, so that classes are loaded, code is generated and Python workers exist."""
    numbers = session.range(0, tasks, 1, tasks).selectExpr("CAST(id AS INT) AS manager")
    blocks = numbers.mapInArrow(_pass_on, "manager int").repartitionById(tasks, "manager")
    blocks.mapInArrow(_pass_on, "manager int").collect()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
