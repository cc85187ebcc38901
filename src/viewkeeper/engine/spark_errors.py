"""Spark's errors: errors of Spark or of the driver, as errors of ours.

In: an exception of any kind; a task's own error is in its receipt, and is one of ours already. Out: one of `errors.py`.
Always: a JVM that has ended, a session that was stopped and workers that lack what tasks need abort no epoch; a job
that failed for any other reason is an epoch that failed (R8).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from viewkeeper.errors import SparkLost, SparkUnfit, StoreError, ViewKeeperError
from viewkeeper.operators.receipts import Failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LETTERS_MAX = 300
_OTHER_PYTHON = re.compile(r"Python in worker has different version: (\S+) than that in driver: ([^\s,]+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)".*error=(?:2|8|13|20)\b')  # missing, or nothing that can be run
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_AT_ITS_START = "Error from python worker:"
_LAST_OF_A_STACK = re.compile(r"^\s*(\w+(?:Error|Exception)\b.*)$", re.MULTILINE)


def translate_error(error: Exception, epoch: int, session: SparkSession | None = None) -> ViewKeeperError:
    """Our error for what ended the run of an epoch; `session`: it ran as a job of that one."""
    if isinstance(error, ViewKeeperError):
        return Failure.of(error, epoch).error
    if is_jvm_gone(error) or (session is not None and is_lost(session)):
        return spark_lost(session)
    if session is not None and (found := unfit_of(error)) is not None:
        return found
    for line in str(error).splitlines():
        if "Job aborted" in line:
            # of the failure behind it the kind alone: its text may hold values
            said, _, behind = line.strip().partition(", most recent failure")
            kind = re.search(r"[\w.$]*(?:Exception|Error|Failure)\b", behind)
            reason = f"{said[:_LETTERS_MAX]}{f', by {kind[0]}' if kind else ''}"
            return Failure.because(reason, epoch, error).error
    return Failure.of(error, epoch).error


@contextmanager
def translate_spark_lost(session: SparkSession | None = None) -> Iterator[None]:
    """Within the block, raise SparkLost where a call to a JVM that has ended, or to a session that was stopped, fails."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ViewKeeperError):
            raise
        if is_jvm_gone(error) or (session is not None and is_lost(session)):
            raise spark_lost(session) from error
        raise


def is_jvm_gone(error: Exception) -> bool:
    """Whether a call to Spark failed because its JVM has ended."""
    if isinstance(error, ConnectionError):
        return True
    if "pyspark" not in sys.modules:  # then it was never called
        return False
    from py4j.protocol import Py4JNetworkError
    from pyspark import SparkContext

    if isinstance(error, Py4JNetworkError):
        return True
    context = SparkContext._active_spark_context
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    return process is not None and process.poll() is not None


def is_lost(session: SparkSession) -> bool:
    """Whether a session was stopped, by whomever, or its JVM has ended."""
    from py4j.protocol import Py4JError

    context = session.sparkContext
    if context._jsc is None:
        return True
    try:
        return bool(context._jsc.sc().isStopped())
    except (OSError, Py4JError):
        return True


def spark_lost(session: SparkSession | None = None) -> SparkLost:
    """The error for a JVM that has ended or, where it has not, for a session that was stopped."""
    if session is not None and session.sparkContext._jsc is None:
        return SparkLost(
            "the Spark session was stopped while it was used",
            "pass one that runs, or none: nothing is lost, the next pipeline takes up what was in flight",
        )
    return SparkLost(
        "Spark's JVM has ended", "start the pipeline in a new process: nothing is lost, it takes up what was in flight"
    )


def not_started(error: BaseException) -> StoreError:
    """The error for a session that did not come up."""
    reason = (str(error).splitlines() or [type(error).__name__])[0][:_LETTERS_MAX]
    return StoreError(f"Spark did not start: {reason}", "Java's own words, if any, are above; nothing is lost")


def is_late_worker(error: Exception) -> bool:
    """Whether a job failed because a Python worker took more than Spark's ten seconds to start: a matter of load."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getClass().getName() != "java.net.SocketTimeoutException":
        cause = cause.getCause()
    return cause is not None


def unfit_of(error: Exception) -> SparkUnfit | None:
    """What Spark's Python workers lack, if a job failed of that; None: it failed of something else."""
    text = str(error)
    if found := _OTHER_PYTHON.search(text):
        return unfit(f"they have Python {found[1]}, and this process has {found[2]}")
    if found := _NO_PROGRAM.search(text):
        return unfit(f"{found[1]} is no program that can be run there")
    if found := _NO_MODULE.search(text):
        return unfit(f"they have no module {found[1]}")
    if _AT_ITS_START in text:
        last = _LAST_OF_A_STACK.findall(text.partition(_AT_ITS_START)[2].partition("PYTHONPATH was")[0])
        return unfit(f"they do not start: {last[-1][:_LETTERS_MAX]}") if last else None
    return None


def unfit(reason: str) -> SparkUnfit:
    """The error for Python workers that cannot run our tasks."""
    wanted = "Python {}.{}".format(*sys.version_info[:2])
    return SparkUnfit(
        f"Spark's Python workers cannot run epochs: {reason}",
        f"before the session is made, set PYSPARK_PYTHON or spark.pyspark.python to a {wanted} with the same viewkeeper and"
        " its packages, or ship them (spark.archives); nothing is lost, a pipeline with a session that fits goes on",
    )
