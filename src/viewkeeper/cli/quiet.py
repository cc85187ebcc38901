"""Quiet Java: hides the lines that Spark's JVM prints at every start and that do not help a user.

In: the process's stderr. Out: the same without these lines, in a `with` block. Always: any other line of the JVM
reaches stderr unchanged; what Python writes to stderr does not pass through here.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_NOISE = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting default log level to"
    rb"|To adjust logging level use|.* WARN NativeCodeLoader: |.* WARN Utils: (Your hostname|Set SPARK_LOCAL_IP)"
    rb"|.* WARN SparkConf: Note that spark.local.dir will be overridden"
)


def is_noise(line: bytes) -> bool:
    """Whether a line of the JVM is one of those it always prints."""
    return _NOISE.match(line) is not None


@contextmanager
def quiet_java() -> Iterator[None]:
    """Within the block, child processes write to a pipe whose reader passes on all but the noise."""
    real = os.dup(2)
    reader, writer = os.pipe()
    threading.Thread(target=_pass_on, args=(reader, real), name="viewkeeper-stderr", daemon=True).start()
    ours, sys.stderr = sys.stderr, _on_real_stderr(real)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = ours
        os.dup2(real, 2)  # the JVM may live on and keep the pipe, so its reader stays


def _on_real_stderr(real: int) -> TextIO:
    """Python's stderr past the pipe; one that is not the process's own, as in a test, stays as it is."""
    try:
        is_own = sys.stderr.fileno() == 2
    except (OSError, ValueError):
        is_own = False
    if not is_own:
        return sys.stderr
    return open(real, "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1, closefd=False)


def _pass_on(reader: int, real: int) -> None:
    with open(reader, "rb") as lines:
        for line in lines:
            if not is_noise(line):
                os.write(real, line)
