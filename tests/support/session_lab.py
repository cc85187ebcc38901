"""The laboratory of users' sessions: a process that passes Spark sessions of all kinds, and tells what came of it.

In: a folder, a Python that is no good for workers, and the names of experiments. Out: one line of JSON: of each experiment
what was raised, and what holds afterwards. Always: what `run` does is done by jobs, however small; experiments follow one
another in one JVM.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import viewkeeper as vk
from viewkeeper.client.pipeline import Pipeline
from viewkeeper.events import Began, Event
from viewkeeper.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 700
SECONDS_MAX = 120  # a bound for a broken run, not a measure
# What users set for queries of their own, and what epochs must not depend on.
ODD = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.speculation": "true",
}


class Laboratory:
    def __init__(self, folder: Path, wrong_python: str) -> None:
        self.wrong_python = wrong_python
        self.told: dict[str, object] = {}
        self.db = vk.connect(f"embedded:{folder / 's'}?sync=off")
        self.db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT, at TIMESTAMP)")
        self.db.execute("CREATE MATERIALIZED VIEW n AS SELECT g, COUNT(*) AS n, MAX(k) AS most FROM t GROUP BY g")
        self.db.execute("CREATE MATERIALIZED VIEW days AS SELECT k, CAST(at AS DATE) AS day FROM t WHERE g < 3")
        self._round = 0

    def write(self) -> vk.Token:
        self._round += 1
        at = datetime(2026, 1, self._round, 20, tzinfo=UTC)
        return self.db.table("t").put_many([{"k": k, "g": k % (6 + self._round), "at": at} for k in range(ROWS)])

    def is_right(self) -> bool:
        """Whether the views are what the table says, and no epoch was ever given up."""
        groups: dict[int, list[int]] = {}
        for row in self.db.table("t").scan():
            groups.setdefault(row["g"], []).append(row["k"])
        expected = [{"g": g, "n": len(keys), "most": max(keys)} for g, keys in sorted(groups.items())]
        days = {row["day"] for row in self.db.view("days").scan()}
        record = self.db.store.read_epoch_record()
        is_whole = list(self.db.view("n").scan()) == expected and days == {date(2026, 1, self._round)}
        return is_whole and record.inflight is None and not record.aborted

    def session(self, python: str = sys.executable, **options: str) -> SparkSession:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = python
        builder = SparkSession.builder.master("local[2]").appName("a user's").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
        for name, value in options.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        return session

    def run(self, spark: object = None, *, events: Callable[[Event], None] | None = None) -> None:
        """All that waits, as jobs."""
        with self.pipeline(spark, events) as pipeline:
            pipeline.run_available()

    def pipeline(self, spark: object, events: Callable[[Event], None] | None = None) -> Pipeline:
        settings = EngineSettings(small_work_max=0, meanwhile_work=0)
        return self.db.pipeline(spark=spark, events=events, settings=settings)

    def attempt(self, name: str, *works: Callable[[], object]) -> None:
        """What each raises."""
        for number, work in enumerate(works):
            try:
                work()
                self.told[f"{name} {number}"] = None
            except Exception as error:
                self.told[f"{name} {number}"] = f"{type(error).__name__}: {error}"

    def text(self) -> None:
        db = self.db
        self.attempt(
            "text",
            lambda: db.pipeline(spark="local[2]"),
            lambda: db.check(spark="local[2]"),
            lambda: db.repair(spark="local[2]"),
            lambda: db.rebuild("n", spark="local[2]"),
            lambda: db.retry_set_aside("n", spark="local[2]"),
        )

    def wrong(self) -> None:
        """Workers that cannot run tasks; without a session the one of the process is taken, which is the same."""
        self.write()
        session = self.session(self.wrong_python)
        self.attempt("wrong", lambda: self.run(session), self.run, lambda: self.run_in_the_background(session))
        record = self.db.store.read_epoch_record()
        self.told["wrong epochs"] = record.last, sorted(record.aborted)
        tracker = session.sparkContext.statusTracker()
        self.told["wrong jobs"] = len(tracker.getJobIdsForGroup(None))
        session.stop()
        self.attempt(
            "stopped before",
            lambda: self.db.pipeline(spark=session),
            lambda: self.db.check(spark=session),
            lambda: self.db.repair(spark=session),
        )

    def run_in_the_background(self, session: SparkSession) -> None:
        with self.db.pipeline(spark=session, engine="spark") as pipeline:
            pipeline.start()
            pipeline.wait_for(self.write(), timeout=SECONDS_MAX)

    def good(self) -> None:
        session = self.session(**ODD)
        self.write()
        self.attempt("good", lambda: self.run(session), lambda: self.run_in_the_background(session))
        self.told["good right"] = self.is_right()
        self.told["good checked"] = self.db.check(spark=session).ok
        self.told["good kept"] = session.conf.get("spark.sql.session.timeZone")

        def stop(event: Event) -> None:
            if isinstance(event, Began):
                session.stop()

        self.write()
        self.attempt("stopped in an epoch", lambda: self.run(session, events=stop))
        self.attempt("default", self.run)
        self.told["default right"] = self.is_right()

    def stopped(self) -> None:
        session = self.session()

        def stop_beside() -> None:
            with self.db.pipeline(spark=session, engine="spark") as pipeline:
                pipeline.start()
                pipeline.wait_for(self.write(), timeout=SECONDS_MAX)
                session.stop()
                while True:
                    pipeline.raise_failure()

        self.attempt("stopped beside", stop_beside)
        self.write()
        self.attempt("another", lambda: self.run(self.session()))
        self.told["stopped right"] = self.is_right()

    def killed(self) -> None:
        session = self.session()
        self.run(session)
        self.write()

        def kill(event: Event) -> None:
            if isinstance(event, Began):
                session.sparkContext._gateway.proc.kill()
                session.sparkContext._gateway.proc.wait(60)

        self.attempt(
            "killed",
            lambda: self.run(session, events=kill),
            lambda: self.db.pipeline(spark=session),
            lambda: self.db.check(spark=session),
            lambda: self.db.repair(spark=session),
            lambda: self.db.pipeline().run_available(),  # small work needs no Spark
        )
        self.told["killed right"] = self.is_right()


def main(folder: str, wrong_python: str, *experiments: str) -> None:
    laboratory = Laboratory(Path(folder), wrong_python)
    for name in experiments:
        getattr(laboratory, name)()
    print(json.dumps(laboratory.told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
