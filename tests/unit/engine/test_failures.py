"""What Spark and the driver fail of is told as an error of ours."""

from __future__ import annotations

import pytest

import viewkeeper as vk
from viewkeeper.engine.failures import spark_lost_told, translate
from viewkeeper.errors import InvariantBroken


def test_a_job_that_failed_is_an_epoch_that_failed() -> None:
    told = translate(RuntimeError("Job aborted due to stage failure: Task 1 failed 4 times\n\tat org.apache"), 7)

    assert type(told) is vk.EpochFailed
    assert told.fact == "epoch 7 failed: Job aborted due to stage failure: Task 1 failed 4 times"


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
