"""Fitness: whether a Spark session can do our work.

In: what a caller passed as a session, or a session. Out: the session, or the error that names what is wrong with it. Always:
looking at a session runs no job; its Python workers are tried once for each application of Spark, by one task, before the
first job of ours. What a loaded machine fails of is no fault of the session.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from viewkeeper.engine.failures import is_lost, spark_lost, spark_lost_told, unfit, unfit_of
from viewkeeper.errors import InputError, NotOffered, SparkLost
from viewkeeper.settings import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_tried: set[str] = set()  # applications of Spark whose workers fit


def take_session(given: object) -> SparkSession | None:
    """The session that a caller passed, or None; raises where no work can begin with it."""
    if given is None:
        return None
    if type(given).__module__.startswith("pyspark.sql.connect"):
        raise NotOffered(
            "a session of Spark Connect cannot run epochs: it reaches no executor's store",
            "pass a session with a SparkContext, as SparkSession.builder.master(…) makes it, or none",
        )
    with contextlib.suppress(ImportError):
        from pyspark.sql import SparkSession

        if isinstance(given, SparkSession):
            _require_running(given)
            return given
    raise InputError(
        f"spark is a SparkSession, not {type(given).__name__}",
        "pass SparkSession.builder.master(…).getOrCreate(), or leave it out",
    )


def _require_running(session: SparkSession) -> None:
    if not is_lost(session):
        return
    if session.sparkContext._jsc is None:
        raise InputError("the Spark session that was passed is stopped", "pass one that runs, or leave it out")
    raise spark_lost(session)


def require_fit(session: SparkSession) -> None:
    """Raise SparkUnfit where the session's Python workers cannot run our tasks."""
    context = session.sparkContext
    try:
        with spark_lost_told(session):
            if (application := context.applicationId) in _tried:
                return
            told = context.parallelize([0], 1).mapPartitions(_describing()).collect()[0]
    except SparkLost:
        raise
    except Exception as error:
        if (found := unfit_of(error)) is None:
            return  # it may be the machine's load; a job that fails of it tells
        raise found from error
    facts = json.loads(told)
    if "lacks" in facts:
        raise unfit(f"{facts['python']} has no module {facts['lacks']}")
    if facts["viewkeeper"] != VERSION:
        raise unfit(f"{facts['python']} has viewkeeper {facts['viewkeeper']}, and this process {VERSION}")
    _tried.add(application)


def _describing() -> Callable[[Iterable[int]], list[str]]:
    """A function that tells what a worker has. It is nested so that it travels as code: the worker may lack this module."""

    def describe(numbers: Iterable[int]) -> list[str]:
        import json
        import sys

        facts = {"python": sys.executable}
        try:
            import viewkeeper.engine.exchange  # noqa: F401 - a worker needs it
            from viewkeeper.settings import VERSION
            from viewkeeper.stores.open import import_for_workers

            facts["viewkeeper"] = VERSION
            import_for_workers()
        except ImportError as error:
            facts["lacks"] = error.name or "viewkeeper"
        return [json.dumps(facts)]

    return describe
