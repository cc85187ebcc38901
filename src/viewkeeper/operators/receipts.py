"""Receipts: what a task of an epoch did, as a value that reaches the coordinator.

In: counts of one task, or its error. Out: messages. Always: an epoch is committed only with the receipts of all its tasks,
and without a failure (R18a).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from viewkeeper import errors
from viewkeeper.errors import EpochFailed, InvariantBroken, ViewKeeperError
from viewkeeper.model.json_codec import from_json_value, to_json_value
from viewkeeper.model.wording import cause_of
from viewkeeper.model.work_stats import Counts, add_up

_MOST_TELLING = (errors.Fenced, errors.ViewFailed, errors.EpochTooLarge, errors.StoreError, ViewKeeperError)


@dataclass(frozen=True, slots=True)
class Task:
    """One of an epoch's tasks: reading a split (stage 0), or a manager's share of a later stage."""

    stage: int
    number: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """A task is done, and all its output has been sent; `rows` of input by shard show how even the shares are."""

    task: Task
    counts: Counts
    rows: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A task failed; a task that receives this does nothing more for the epoch."""

    error: ViewKeeperError

    @staticmethod
    def of(error: Exception, epoch: int) -> Failure:
        """An error of the store itself (full, busy, corrupt) stays as it is, and aborts no epoch; everything else is
        EpochFailed, so that an epoch that cannot finish is made smaller or aborted (R8).
        """
        if isinstance(error, ViewKeeperError) and not isinstance(error, InvariantBroken):
            return Failure(error)
        return Failure.because(cause_of(error), epoch, error)

    @staticmethod
    def because(reason: str, epoch: int, error: Exception) -> Failure:
        failed = EpochFailed(f"epoch {epoch} failed: {reason}", "it stays in flight and is run again")
        failed.__cause__ = error
        return Failure(failed)


def result_to_json(result: Receipt | Failure) -> dict[str, Any]:
    """The result as JSON: what comes out of a shuffle is data, and no code that it names is run."""
    if isinstance(result, Receipt):
        return {"receipt": to_json_value(result)}
    # instead of an adapter's own error its nearest public base class
    kind = next(kind for kind in type(result.error).__mro__ if hasattr(errors, kind.__name__))
    return {"failure": kind.__name__, "of": list(result.error.__reduce__()[1])}


def result_from_json(value: dict[str, Any]) -> Receipt | Failure:
    if "receipt" in value:
        return from_json_value(Receipt, value["receipt"])
    kind = getattr(errors, value["failure"])
    if not issubclass(kind, ViewKeeperError):
        raise InvariantBroken(f"{value['failure']} is no error of ours")
    return Failure(kind(*value["of"]))


def require_all(tasks: Collection[Task], got: Iterable[Receipt | Failure]) -> Counts:
    """R18a: require the receipt of every task; a task that ran twice counts once. Raises the error of a failed task."""
    results = list(got)
    receipts = {one.task: one for one in results if isinstance(one, Receipt)}
    failures = [one.error for one in results if isinstance(one, Failure)]
    for error in (error for kind in _MOST_TELLING for error in failures if isinstance(error, kind)):
        raise error
    if missing := set(tasks) - receipts.keys():
        named = ", ".join(
            f"task {task.number} of stage {task.stage}" for task in sorted(missing, key=attrgetter("stage"))
        )
        raise EpochFailed(f"the epoch has no result from {named}", "it stays in flight and is run again")
    return Counts.total(receipt.counts for receipt in receipts.values())


def rows_of_all(got: Iterable[Receipt | Failure]) -> dict[int, int]:
    return add_up([{}, *(one.rows for one in got if isinstance(one, Receipt))])
