"""Finishing: what was asked of the pipeline, waited for.

In: a database, and whether a request is still to be done. Out: it is done. Always: the pipeline that runs does it; one that
is open in this process and not started is run here. Without one this process becomes the pipeline for as long as it takes. A
pipeline that does not go on is told of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from viewkeeper.client.connection import Connection
from viewkeeper.client.pipeline import Pipeline, pipeline_here
from viewkeeper.errors import PipelineRunning, StaleRead

if TYPE_CHECKING:
    from viewkeeper.engine.session import SparkSession

_POLL_SECONDS = 0.02
_STUCK_SECONDS = 300.0  # without a step of the pipeline


def finish(database: Connection, is_pending: Callable[[], bool], spark: SparkSession | None) -> None:
    """Return once nothing is pending."""
    seen, since = None, time.monotonic()
    while is_pending():
        own = pipeline_here(database)
        if own is not None and own.run_if_idle():
            continue
        if database.store.claimed_by() is None:
            try:
                with Pipeline(
                    database, view_managers=2, spark=spark, take_over=False, changes_per_epoch=None
                ) as pipeline:
                    pipeline.run_available()
                continue
            except PipelineRunning:
                pass  # another one was faster
        record = database.store.read_epoch_record()
        if (progress := (record.last, record.committed)) != seen:
            seen, since = progress, time.monotonic()
        if time.monotonic() > since + _STUCK_SECONDS:
            raise StaleRead("the pipeline of this store does not go on", "start it: the request waits for it")
        time.sleep(_POLL_SECONDS)
