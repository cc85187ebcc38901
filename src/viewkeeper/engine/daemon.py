"""The process from which Spark forks Python workers, with what tasks need already imported.

In: the input of `pyspark.daemon`. Out: workers that begin at once and share the imported code's memory. Always: no
thread runs when a worker is forked, because threads are not copied.

Spark ends a worker that idled for a minute. The next large epoch would begin with a second or two of imports in every
worker.
"""

# ruff: noqa: F401

from __future__ import annotations

import os

# read during import: each of these libraries would start a thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")

import pandas
import pyspark.worker
from pyspark.daemon import manager

import viewkeeper.engine.jobs
from viewkeeper.stores.open import import_for_workers

import_for_workers()

if __name__ == "__main__":
    manager()
