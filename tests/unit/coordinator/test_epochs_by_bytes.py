"""An epoch is bounded in bytes too, and one that still does not fit is made smaller before anybody is blamed (R8)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.engine.lazy_session import LazySession
from viewkeeper.engine.runner import SparkRunner
from viewkeeper.errors import EpochFailed, Fenced, InvariantBroken, StoreFull, ViewFailed
from viewkeeper.model.work_stats import Counts
from viewkeeper.operators.aggregate import AggregateOperator
from viewkeeper.operators.operator import Operator
from viewkeeper.settings import EpochLimits

SIZE = 60_000
OVERFLOW = "offset overflow while concatenating arrays, consider casting input from `binary` to `large_binary` first."


@pytest.fixture(params=[True, False], ids=["before-images", "plain log"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images={'on' if request.param else 'off'}")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g INT, v STRING)")
    return db


def define(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW copied AS SELECT k, v FROM t WHERE g >= 0")
    db.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, COUNT(*) AS n, SUM(LENGTH(v)) AS size FROM t GROUP BY g")


def write(db: vk.Database, count: int) -> None:
    for number in range(count):
        db.table("t").put(f"{number:03}", {"g": number % 3, "v": "x" * SIZE})


def are_right(db: vk.Database, count: int) -> bool:
    sums = [{"g": g, "n": n, "size": n * SIZE} for g in range(3) if (n := len(range(g, count, 3)))]
    return list(db.view("sums").scan()) == sums and sum(1 for _ in db.view("copied").scan()) == count


def test_the_log_of_an_epoch_and_the_rows_of_a_fill_are_bounded_in_bytes(db: vk.Database) -> None:
    write(db, 30)
    keep_up(db)
    define(db)
    sizes, epochs = [], []

    class Measured(HereRunner):
        def run(self, plan: object, epoch: object) -> None:
            sizes.append(db.store.describe(epoch.start, epoch.stop.positions).bytes)
            epochs.append(epoch)
            return super().run(plan, epoch)

    Coordinator(db.store, Measured(db.store), limits=EpochLimits(bytes=5 * SIZE)).catch_up()
    filled = [chunk.bytes for epoch in epochs for chunk in epoch.chunks]
    assert len(epochs) > 5
    assert SIZE < max(filled) < 20 * SIZE  # a row at least of each of 8 partitions
    assert are_right(db, 30)

    sizes.clear()
    write(db, 60)
    Coordinator(db.store, Measured(db.store), limits=EpochLimits(bytes=5 * SIZE)).catch_up()
    assert 4 * SIZE < max(sizes) < 7 * SIZE
    assert are_right(db, 60)


def overflow_in_combine(patch: pytest.MonkeyPatch, error: Exception, is_too_much: Callable) -> None:
    for operator in (Operator, AggregateOperator):
        combine = operator.combine

        def overflows(self: Operator, node: object, channel: object, tables: list, partitions: int, combine=combine):
            if is_too_much(node, tables):
                raise error
            return combine(self, node, channel, tables, partitions)

        patch.setattr(operator, "combine", overflows)


def test_a_consolidation_that_does_not_fit_makes_epochs_smaller_and_stops_nobody(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the input of a part leaves the 2 GiB that an Arrow array may have."""
    define(db)
    keep_up(db)
    write(db, 40)
    overflow_in_combine(monkeypatch, pa.ArrowInvalid(OVERFLOW), lambda node, tables: sum(map(len, tables)) > 25)
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    record = db.store.read_epoch_record()

    assert record.aborted
    assert record.stopped == {}
    assert are_right(db, 40)


def test_a_view_that_is_too_large_in_the_smallest_epoch_is_stopped_alone(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(db)
    keep_up(db)
    copied = db.view("copied").definition.node.table
    error = pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")
    overflow_in_combine(monkeypatch, error, lambda node, tables: node.table == copied)
    write(db, 5)
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    stopped = {view.name: view.stopped for view in db.status().views}

    assert "ArrowCapacityError" in stopped["copied"]
    assert stopped["sums"] is None
    assert db.view("sums").get(0)["n"] == 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError("Arrow Appender"),
        pa.ArrowInvalid("x"),
        duckdb.Error("x"),
        InvariantBroken("x"),
        KeyError(1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_ends_the_run_on_the_driver_is_an_epoch_that_failed(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    define(db)
    keep_up(db)
    write(db, 5)

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("viewkeeper.engine.runner.run_in_process", fails)
    runner = SparkRunner(db.store, LazySession(None, view_managers=2), view_managers=2)
    with pytest.raises(EpochFailed, match=f"{type(error).__name__}"):
        Coordinator(db.store, runner).step()
    monkeypatch.undo()
    keep_up(db)
    assert are_right(db, 5)


@pytest.mark.parametrize("error", [StoreFull("no space"), Fenced("newer"), ViewFailed(3, "its sums leave 128 bits")])
def test_what_is_ours_already_passes_as_it_is(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("viewkeeper.engine.runner.run_in_process", fails)
    write(db, 1)
    define(db)
    epochs = []

    class Once:
        def run(self, plan: object, epoch: object) -> Counts:
            with pytest.raises(type(error)) as raised:
                SparkRunner(db.store, LazySession(None, view_managers=2), view_managers=2).run(plan, epoch)
            epochs.append(raised.value)
            return Counts()

    Coordinator(db.store, Once()).step()
    assert epochs == [error]


@pytest.mark.deep
def test_more_than_two_gibibytes_go_in_one_call_and_out_in_epochs_that_fit(tmp_path: Path) -> None:
    """230 rows of 10 MB: more than one Arrow array, one log entry or one block holds."""
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v BINARY)")
    db.execute("CREATE MATERIALIZED VIEW copied AS SELECT k, v FROM t WHERE k >= 0")
    db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
    value = bytes(10 << 20)
    db.table("t").put_many([{"k": number, "v": value} for number in range(230)])
    db.execute("CREATE MATERIALIZED VIEW late AS SELECT k, v FROM t WHERE k >= 0")
    keep_up(db)

    assert db.store.read_epoch_record().stopped == {}
    assert db.view("n").get() == {"n": 230}
    for name in ("copied", "late"):
        assert sum(len(row["v"]) == len(value) for row in db.view(name).scan()) == 230
