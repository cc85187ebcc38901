"""Failures: what went wrong in Spark or on the driver, as errors of ours.

In: an exception of any kind, in whose text a task's own error may stand. Out: one of `errors.py`. Always: what the store
says of itself (full, busy, corrupt) is told as that, wherever it was met, and gives no epoch up; everything else is
EpochFailed, so that an epoch that cannot finish is made smaller or given up (R8).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from viewkeeper import errors
from viewkeeper.errors import (
    EpochFailed,
    EpochTooLarge,
    Fenced,
    InvariantBroken,
    SparkLost,
    StoreError,
    ViewFailed,
    ViewKeeperError,
)

_OF_A_VIEW = re.compile(
    r"errors\.(ViewFailed|EpochTooLarge): view table (\d+) (?:failed|has too much at once): (.*?)$", re.M
)
_OF_US = re.compile(r"viewkeeper\.errors\.(\w+): (.*?)$", re.M)
_HINTS = re.compile(r"; (?:the view is stopped|a smaller epoch follows).*$")


def translate(error: Exception, epoch: int) -> ViewKeeperError:
    """Our error for what ended the run of an epoch."""
    if isinstance(error, ViewKeeperError) and not isinstance(error, InvariantBroken):
        return error
    if is_jvm_gone(error):
        return spark_lost()
    text = f"viewkeeper.errors.InvariantBroken: {error}" if isinstance(error, InvariantBroken) else str(error)
    if "viewkeeper.errors.Fenced" in text:
        return Fenced(f"epoch {epoch} met a newer epoch", "another pipeline has taken over")
    if found := _OF_A_VIEW.search(text):
        of_view = ViewFailed if found[1] == "ViewFailed" else EpochTooLarge
        return of_view(int(found[2]), _HINTS.sub("", found[3]).strip()[:300])
    told = _OF_US.findall(text)
    for name, reason in told:
        kind = getattr(errors, name, None)
        if inspect.isclass(kind) and issubclass(kind, StoreError):
            return kind(reason.strip()[:300])
    reason = f"{told[-1][0]}: {told[-1][1]}" if told else _first_line(error, text)
    return EpochFailed(f"epoch {epoch} failed: {reason[:300]}", "it stays in flight and is run again")


def _first_line(error: Exception, text: str) -> str:
    named = [line.strip() for line in text.splitlines() if line.startswith("Error")]
    return f"{type(error).__name__}: {(named or text.splitlines() or ['no reason given'])[-1 if named else 0]}"


@contextmanager
def spark_lost_told() -> Iterator[None]:
    """Within the block, SparkLost in place of what a call to a JVM that has ended fails of."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ViewKeeperError) or not is_jvm_gone(error):
            raise
        raise spark_lost() from error


def is_jvm_gone(error: Exception) -> bool:
    """Whether a call to Spark failed because its JVM is no longer there."""
    if isinstance(error, ConnectionError):
        return True
    if "pyspark" not in sys.modules:  # then nobody has called it
        return False
    from py4j.protocol import Py4JNetworkError
    from pyspark import SparkContext

    if isinstance(error, Py4JNetworkError):
        return True
    context = SparkContext._active_spark_context
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    return process is not None and process.poll() is not None


def spark_lost() -> SparkLost:
    """What to tell of a JVM that has ended."""
    return SparkLost(
        "Spark's JVM has ended", "start the pipeline in a new process: nothing is lost, it takes up what was in flight"
    )
