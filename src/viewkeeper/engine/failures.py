"""Failures: errors of Spark or of the driver, as errors of ours.

In: an exception of any kind; a task's own error is in its receipt, and is one of ours already. Out: one of `errors.py`.
Always: a JVM that has ended aborts no epoch; a job that failed is an epoch that failed (R8).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from viewkeeper.errors import SparkLost, ViewKeeperError
from viewkeeper.operators.receipts import Failure

_LETTERS_MAX = 300


def translate(error: Exception, epoch: int) -> ViewKeeperError:
    """Our error for what ended the run of an epoch."""
    if isinstance(error, ViewKeeperError):
        return Failure.of(error, epoch).error
    if is_jvm_gone(error):
        return spark_lost()
    for line in str(error).splitlines():
        if "Job aborted" in line:
            return Failure.because(_aborted(line.strip()), epoch, error).error
    return Failure.of(error, epoch).error


def _aborted(line: str) -> str:
    """What Spark says of a job that it aborted; of the failure behind it the kind alone, because its text may hold values."""
    said, _, behind = line.partition(", most recent failure")
    kind = re.search(r"[\w.$]*(?:Exception|Error|Failure)\b", behind)
    return f"{said[:_LETTERS_MAX]}{f', by {kind[0]}' if kind else ''}"


@contextmanager
def spark_lost_told() -> Iterator[None]:
    """Within the block, raise SparkLost where a call to a JVM that has ended fails."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ViewKeeperError) or not is_jvm_gone(error):
            raise
        raise spark_lost() from error


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


def spark_lost() -> SparkLost:
    """The error for a JVM that has ended."""
    return SparkLost(
        "Spark's JVM has ended", "start the pipeline in a new process: nothing is lost, it takes up what was in flight"
    )
