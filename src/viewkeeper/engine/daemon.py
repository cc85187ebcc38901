"""The process that Spark forks Python workers off, with what tasks need already imported.

In: what `pyspark.daemon` is given. Out: workers that begin at once and share the imported code's memory. Always: no thread
runs when a worker is forked off, for threads would not come along.

Spark ends a worker that idled for a minute. The next large epoch would begin with a second or two of imports in every worker.
"""

# ruff: noqa: F401

from __future__ import annotations

import os

# read while they are imported: each of these libraries would start a thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")

import pandas
import pyspark.worker
from pyspark.daemon import manager

import viewkeeper.engine.tasks
from viewkeeper.stores.open import import_for_workers

import_for_workers()

if __name__ == "__main__":
    manager()
