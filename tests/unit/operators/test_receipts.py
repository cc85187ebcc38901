"""Receipts: an epoch is done with all of them, and what a task failed of reaches the coordinator as it was."""

from __future__ import annotations

import pytest

import viewkeeper as vk
from viewkeeper.errors import EpochTooLarge, InvariantBroken, ViewFailed, ViewKeeperError
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.messages import Channel, Input, Message, encode, from_batch, to_batch
from viewkeeper.operators.receipts import Failure, Receipt, Task, require_all

TASKS = [Task(0, 0), Task(0, 1), Task(1, 0)]


def receipt(task: Task, rows: int = 1) -> Receipt:
    return Receipt(task, Counts(rows_read=rows, apply_seconds=0.5))


def test_all_receipts_come_to_the_counts_of_the_epoch_and_one_that_came_twice_counts_once() -> None:
    got = [receipt(task, rows) for task, rows in zip(TASKS, (3, 4, 0), strict=True)]

    assert require_all(TASKS, [*got, got[1]]) == Counts(rows_read=7, apply_seconds=1.5)


@pytest.mark.parametrize("missing", TASKS)
def test_without_the_receipt_of_every_task_an_epoch_failed(missing: Task) -> None:
    got = [receipt(task) for task in TASKS if task != missing]

    with pytest.raises(vk.EpochFailed, match=f"no result from task {missing.number} of stage {missing.stage}"):
        require_all(TASKS, got)


ERRORS = [
    vk.Fenced("epoch 7 cannot write: epoch 8 has started"),
    vk.StoreFull("no space left for partition-3", "free space on the disk"),
    vk.StoreBusy("process 7 holds the writer's lock"),
    vk.CorruptStore("partition-1 is not a readable LMDB environment"),
    ViewFailed(12, "its sums leave 128 bits"),
    EpochTooLarge(12, "2 GiB"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_ours_crosses_the_shuffle_as_it_is(error: ViewKeeperError) -> None:
    (message,) = from_batch(to_batch([encode(Message(1, Failure.of(error, 7)))]))

    with pytest.raises(type(error)) as raised:
        require_all([], [message.body])
    assert vars(raised.value) == vars(error)
    assert str(raised.value) == str(error)


def test_an_error_of_an_adapter_crosses_the_shuffle_as_the_kind_that_everybody_knows() -> None:
    class Refused(vk.StoreError):
        """HBase's, for one."""

    (message,) = from_batch(to_batch([encode(Message(1, Failure.of(Refused("no such table", "make it"), 7)))]))

    with pytest.raises(vk.StoreError, match="no such table; make it") as raised:
        require_all([], [message.body])
    assert type(raised.value) is vk.StoreError


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError("Invalid Input Error: Arrow Appender"), InvariantBroken("two rows")]
)
def test_any_other_error_is_an_epoch_that_failed(error: Exception) -> None:
    failed = Failure.of(error, 7).error

    assert type(failed) is vk.EpochFailed
    assert failed.fact.startswith("epoch 7 failed: ") and type(error).__name__ in failed.fact


def test_of_several_failures_the_most_telling_is_raised() -> None:
    failures = [Failure(error) for error in (vk.EpochFailed("?"), vk.StoreFull("!"), ViewFailed(3, "?"))]

    with pytest.raises(ViewFailed):
        require_all(TASKS, failures)
    with pytest.raises(vk.Fenced):
        require_all(TASKS, [*failures, Failure(vk.Fenced("newer"))])


def test_receipts_and_input_cross_the_shuffle() -> None:
    import pyarrow as pa

    sent = [Message(2, receipt(Task(1, 2), 5)), Message(0, Input(9, Channel("aside", 1), pa.table({"key": [b"a"]})))]

    assert list(from_batch(to_batch([encode(message) for message in sent]))) == sent


@pytest.mark.parametrize("error", [ViewFailed(3, "sums"), EpochTooLarge(4, "2 GiB"), vk.StoreFull("full", "free some")])
def test_a_failure_crosses_the_shuffle(error: vk.ViewKeeperError) -> None:
    (got,) = from_batch(to_batch([encode(Message(1, Failure(error)))]))

    assert type(got.body.error) is type(error) and vars(got.body.error) == vars(error)
    assert str(got.body.error) == str(error)
