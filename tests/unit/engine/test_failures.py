"""What Spark and the driver fail of is told as an error of ours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import viewkeeper as vk
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.engine.spark_errors import is_late_worker, not_started, translate_error, translate_spark_lost, unfit_of
from viewkeeper.errors import InvariantBroken
from viewkeeper.events import Where
from viewkeeper.ports.meta import live_holder
from viewkeeper.settings import EngineSettings


def test_a_job_that_failed_is_an_epoch_that_failed() -> None:
    told = translate_error(RuntimeError("Job aborted due to stage failure: Task 1 failed 4 times\n\tat org.apache"), 7)

    assert type(told) is vk.EpochFailed
    assert told.fact == "epoch 7 failed: Job aborted due to stage failure: Task 1 failed 4 times"


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(111, "Connection refused"), ConnectionResetError(), BrokenPipeError()]
)
def test_a_jvm_that_is_gone_is_told_as_that_and_gives_no_epoch_up(error: Exception) -> None:
    assert isinstance(translate_error(error, 7), vk.SparkLost)
    with pytest.raises(vk.SparkLost, match="new process"), translate_spark_lost():
        raise error


def test_other_errors_pass_where_only_a_lost_jvm_is_looked_for() -> None:
    with pytest.raises(KeyError), translate_spark_lost():
        raise KeyError(1)
    assert isinstance(translate_error(InvariantBroken("two rows"), 7), vk.EpochFailed)


MISMATCH = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.13 than that in driver: 3.11, PySpark"
AT_START = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task
Error from python worker:
  Traceback (most recent call last):
    File "daemon.py", line 20, in <module>
  {}
PYTHONPATH was:
  /somewhere
java.io.EOFException: and Java's own words
"""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (MISMATCH, "they have Python 3.13, and this process has 3.11"),
        ('java.io.IOException: Cannot run program "/no/python": error=2, No such', "/no/python is no program"),
        (AT_START.format("ModuleNotFoundError: No module named 'pandas'"), "they have no module pandas"),
        (AT_START.format("AttributeError: module 'importlib' has no x"), "they do not start: AttributeError: module"),
    ],
)
def test_workers_that_cannot_run_tasks_are_told_as_that_and_give_no_epoch_up(words: str, reason: str) -> None:
    told = unfit_of(RuntimeError(words))

    assert type(told) is vk.SparkUnfit and reason in told.fact
    assert "PYSPARK_PYTHON" in (told.hint or "") and "spark.pyspark.python" in (told.hint or "")


@pytest.mark.parametrize(
    "words",
    [
        "Python worker failed to connect back.",
        'Cannot run program "python3": error=12, Cannot allocate memory',
        "Job aborted due to stage failure: Task 1 failed 4 times, most recent failure: ExecutorLostFailure",
    ],
)
def test_what_load_and_lost_executors_fail_of_is_no_fault_of_the_session(words: str) -> None:
    assert unfit_of(RuntimeError(words)) is None


class _OfConnect:
    """As pyspark.sql.connect names its session, which needs packages that are not installed here."""


_OfConnect.__module__ = "pyspark.sql.connect.session"


def test_what_is_no_session_with_a_context_is_refused_before_anything_begins() -> None:
    with vk.connect("memory:") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        with pytest.raises(vk.NotOffered, match="Spark Connect"):
            db.pipeline(spark=_OfConnect())
        with pytest.raises(vk.InputError, match="spark is a SparkSession, not str"):
            db.pipeline(spark="local[2]")
        assert live_holder(db.store) is None


class _OfJava(Exception):
    """An error of Spark as py4j raises it: behind it is an exception of Java, behind that its cause."""

    def __init__(self, *classes: str) -> None:
        super().__init__("Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times")
        self.java_exception = None
        for name in reversed(classes):
            self.java_exception = SimpleNamespace(
                getClass=lambda name=name: SimpleNamespace(getName=lambda: name),
                getCause=lambda cause=self.java_exception: cause,
            )


def test_a_late_worker_is_known_by_what_java_raised() -> None:
    late = _OfJava("org.apache.spark.SparkException", "java.net.SocketTimeoutException")
    assert is_late_worker(late)
    assert not is_late_worker(_OfJava("org.apache.spark.SparkException", "java.io.EOFException"))
    assert not is_late_worker(RuntimeError("Python worker failed to connect back."))


def test_an_epoch_whose_workers_start_too_late_is_done_by_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []

    def late(*arguments: object) -> None:
        jobs.append(arguments)
        raise _OfJava("org.apache.spark.SparkException", "java.net.SocketTimeoutException")

    monkeypatch.setattr(SparkRunner, "_run_job", late)
    session = SimpleNamespace(is_ready=True, for_epochs=lambda: None, begin=lambda: None)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
        db.table("t").put(1, {})
        runner = SparkRunner(db.store, session, view_managers=1, settings=EngineSettings(small_work_max=0))
        Coordinator(db.store, runner).catch_up()
        assert (len(jobs), db.view("n").get(), db.store.read_epoch_record().aborted) == (1, {"n": 1}, ())
        assert runner.where == Where("driver", "Spark's workers were late")


@pytest.mark.parametrize("letters", [299, 300, 301])
def test_of_a_long_line_of_spark_the_first_300_letters_are_told(letters: int) -> None:
    said = "OSError: Job aborted ".ljust(letters, "x")
    told = said[:300]
    started = unfit_of(RuntimeError(AT_START.format(said)))

    assert translate_error(RuntimeError(f"{said}, most recent failure: java.lang.Error"), 7).fact == (
        f"epoch 7 failed: {told}, by java.lang.Error"
    )
    assert not_started(RuntimeError(f"{said}\nmore")).fact == f"Spark did not start: {told}"
    assert started is not None and started.fact.endswith(f"they do not start: {told}")
