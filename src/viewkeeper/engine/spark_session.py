"""The Spark session that epochs run in, and the archive of Java classes that makes it start faster.

In: a session of the user's, or nothing; the installed Java and PySpark. Out: a session with the settings that the epoch
program needs. Always: a user's session keeps its own settings (ours are those of a sibling session); Spark's Python is
the interpreter that runs us. The first JVM writes the archive when it ends, and later ones map it, which halves the cost
of starting Spark. It holds classes and no data; where it cannot be written, or does not fit, Spark starts without it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkeeper.errors import JavaMissing, StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


_MAGIC = 0xF00BABA8  # of a dynamic archive; the JVM writes it last, so a file that begins with it is whole
_CLAIM_SECONDS = 600
_KEPT_MAX = 3
_QUIET = "-Xlog:cds*=off -Xlog:class+path*=off"


def archive_options(java: str) -> str:
    """Options for a JVM of `java`: to map the archive, to write it where no other process is about to, or none."""
    try:
        cache = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(cache) if cache else Path.home() / ".cache") / "viewkeeper"
        archive = folder / f"spark-{version('pyspark')}-{_fingerprint(java)}.jsa"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o022:  # a JVM runs what is in it
            return ""
        written = archive.with_suffix(".part")
        if _is_whole(written):
            written.replace(archive)
            found = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
            for file in found[_KEPT_MAX:]:  # a few of other Javas and Sparks are kept
                if file != archive:
                    file.unlink()
        if archive.exists():
            return f'-XX:SharedArchiveFile="{archive}" {_QUIET}'
        if written.exists() and time.time() - written.stat().st_mtime < _CLAIM_SECONDS:
            return ""
        written.touch(mode=0o600)
        return f'-XX:ArchiveClassesAtExit="{written}" {_QUIET}'
    except (OSError, RuntimeError):  # no home, no space, no permission; or another process was faster
        return ""


def _fingerprint(java: str) -> str:
    """Identifies what an archive depends on: which Java, and which jars."""
    spark = find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    jars = Path(spark.origin).parent / "jars"
    parts = (Path(java).resolve(), jars.resolve())
    told = [f"{part} {part.stat().st_mtime_ns}" for part in parts]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def _is_whole(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return int.from_bytes(opened.read(4), "little") == _MAGIC
    except FileNotFoundError:
        return False


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
    if find_spec("pyspark") is None:
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
    """A local session with a task slot for each manager, up to the number of cores; lost tasks are retried."""
    java = require_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from viewkeeper.engine.spark_errors import translate_spark_lost

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
        .config("spark.speculation", "false")
        .config("spark.python.daemon.module", DAEMON)
        .config("spark.python.factory.idleWorkerMaxPoolSize", str(slots))
        .config("spark.sql.shuffle.partitions", str(slots))
    )
    if is_ours and "SPARK_LOCAL_DIRS" not in os.environ:
        folder = _private_folder()
        options = f'{options} -Djava.io.tmpdir="{folder}"'.strip()
        builder = builder.config("spark.local.dir", folder)
    if is_ours:
        _require_files()
    builder = builder.config("spark.driver.extraJavaOptions", options)
    with translate_spark_lost():
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    if is_ours:
        # Views are computed with what base writes and everything else on the machine leave over: threads and Python
        # workers that the JVM's threads start inherit their priority.
        process = getattr(session.sparkContext._gateway, "proc", None)
        tasks = Path(f"/proc/{process.pid}/task") if process is not None else None
        for task in tasks.iterdir() if tasks is not None and tasks.is_dir() else ():
            _lower_priority(int(task.name))
    return session


_launching = threading.Lock()
_launches: list[subprocess.Popen[bytes]] = []  # JVMs whose session is not up yet
_is_ending = threading.Event()


@contextlib.contextmanager
def launch_known() -> Iterator[None]:
    """Within the block a JVM that PySpark starts is known from its first moment, so that it can be ended at any time."""
    from pyspark import java_gateway

    def launch(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(*arguments, **options)
        _launches.append(process)
        if _is_ending.is_set():
            process.kill()
        return process

    with _launching:
        java_gateway.Popen = launch
        try:
            yield
        finally:
            java_gateway.Popen = subprocess.Popen
            _launches.clear()


def end_launches() -> None:
    """End JVMs that are being started, at the end of the process: PySpark then no longer waits for them."""
    _is_ending.set()
    for process in list(_launches):
        process.kill()


_folders: list[str] = []  # of this process, removed at its end
os.register_at_fork(after_in_child=_launches.clear)
os.register_at_fork(after_in_child=_folders.clear)


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
    _folders.append(folder)
    return folder


@atexit.register
def _remove_folders() -> None:
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


def let_others_go_first_here() -> None:
    """Lower the priority of the calling thread, for good."""
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
