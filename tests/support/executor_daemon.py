"""Spark's Python daemon, as `viewkeeper.engine.daemon`, whose armed failpoints kill the whole executor.

In: the input of `pyspark.daemon`. Out: workers. Always: the executor's JVM is killed before the worker that came to the
point, so that no receipt of it gets out.
"""

from __future__ import annotations

import os

from viewkeeper import failpoints
from viewkeeper.engine.daemon import manager


class Signals:
    """`os` as a failpoint uses it."""

    executor = os.getppid()
    getpid = staticmethod(os.getpid)

    @staticmethod
    def kill(pid: int, number: int) -> None:
        for one in (Signals.executor, pid):
            os.kill(one, number)


failpoints.os = Signals

if __name__ == "__main__":
    manager()
