"""What Spark and the driver fail of is told as an error of ours."""

from __future__ import annotations

import pytest

import viewkeeper as vk
from viewkeeper.engine.failures import spark_lost_told, translate
from viewkeeper.errors import EpochTooLarge, InvariantBroken, ViewFailed

JOB = """Job aborted due to stage failure: Task 1 in stage 3.0 failed 4 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "tasks.py", line 88, in apply
{error}

	at org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("viewkeeper.errors.Fenced: epoch 7 met the fence of epoch 8", vk.Fenced),
        ("viewkeeper.errors.StoreFull: no space left for place-3; free space on the disk", vk.StoreFull),
        ("viewkeeper.errors.StoreBusy: process 7 has been writing for more than 60 s", vk.StoreBusy),
        ("viewkeeper.errors.CorruptStore: place-1 is not a readable LMDB environment", vk.CorruptStore),
        ("viewkeeper.errors.InvariantBroken: a record of place 1 reached a manager", vk.EpochFailed),
        ("MemoryError", vk.EpochFailed),
        ("OSError: Invalid Input Error: Arrow Appender", vk.EpochFailed),
    ],
)
def test_the_error_of_a_task_is_found_in_the_text_of_the_job(line: str, expected: type[Exception]) -> None:
    told = translate(RuntimeError(JOB.format(error=line)), 7)

    assert type(told) is expected
    if "viewkeeper.errors" in line and expected is not vk.Fenced:
        assert line.split(": ")[1].split(";")[0] in told.fact


@pytest.mark.parametrize("error", [ViewFailed(12, "its sums leave 128 bits"), EpochTooLarge(12, "2 GiB")])
def test_the_view_at_fault_is_known_on_the_driver_too(error: ViewFailed | EpochTooLarge) -> None:
    told = translate(RuntimeError(JOB.format(error=f"viewkeeper.errors.{type(error).__name__}: {error}")), 7)

    assert type(told) is type(error)
    assert (told.table, told.reason) == (12, error.reason)


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(111, "Connection refused"), ConnectionResetError(), BrokenPipeError()]
)
def test_a_jvm_that_is_gone_is_told_as_that_and_gives_no_epoch_up(error: Exception) -> None:
    assert isinstance(translate(error, 7), vk.SparkLost)
    with pytest.raises(vk.SparkLost, match="new process"), spark_lost_told():
        raise error


def test_other_errors_pass_where_only_a_lost_jvm_is_looked_for() -> None:
    with pytest.raises(KeyError), spark_lost_told():
        raise KeyError(1)
    assert isinstance(translate(InvariantBroken("two rows"), 7), vk.EpochFailed)
