"""A log that was truncated by hand: the error names the way out, and that way makes every view right again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper import failpoints
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.stores.local.log_format import position_key

Run = Callable[..., Result]
GROUPED = "SELECT region, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY region"
LARGE = "SELECT id, amount FROM orders WHERE amount > 10"


class Dies:
    """A runner whose process ends before it has done anything."""

    def run(self, plan: object, epoch: object) -> None:
        raise KeyboardInterrupt


def lose(db: vk.Database, first: int, last: int) -> None:
    """Remove entries of every node's log."""
    for node in db.store.nodes:
        with node.kernel.write("log") as log:
            log.delete_many([position_key(position) for position in range(first, last + 1)])


@pytest.fixture(params=["on", "off"], ids=["with before-images", "without"])
def stuck(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store whose epoch in flight begins with changes that the log no longer holds."""
    url = f"embedded:{tmp_path / 's'}?sync=off&before_images={request.param}"
    with vk.connect(url) as db:
        db.execute("CREATE TABLE orders (id INT PRIMARY KEY, region STRING, amount BIGINT)")
        db.execute(f"CREATE MATERIALIZED VIEW revenue AS {GROUPED}; CREATE MATERIALIZED VIEW large AS {LARGE}")
        table = db.table("orders")
        for number in range(8):
            table.put(number, {"region": "eu" if number % 2 else "us", "amount": 5 * number})
        keep_up(db)
        table.delete(1)
        table.put(2, {"region": "eu"})
        table.put(20, {"region": "far", "amount": 100})
        with pytest.raises(KeyboardInterrupt):
            Coordinator(db.store, Dies()).step()
        table.put(21, {"region": "far", "amount": 11})
        lose(db, 9, 10)
    return url


def rows(run: Run, url: str, query: str) -> list[str]:
    return sorted(run("sql", url, query, "--json").stdout.splitlines())


def test_the_way_out_that_the_error_names_fills_all_views_anew_and_changes_no_row(run: Run, stuck: str) -> None:
    base = rows(run, stuck, "SELECT * FROM orders")
    for _ in range(2):
        told = run("run", stuck, "--until-caught-up")
        assert told.exit_code != 0
        assert "the log no longer holds position 9" in told.output
        assert "viewkeeper rebuild URL VIEW" in told.output
    told = run("rebuild", stuck, "revenue", "--json")

    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["views"] == ["large", "revenue"]
    assert rows(run, stuck, "SELECT * FROM orders") == base
    assert rows(run, stuck, "SELECT * FROM revenue") == rows(run, stuck, GROUPED)
    assert rows(run, stuck, "SELECT * FROM large") == rows(run, stuck, LARGE)


def test_after_the_way_out_the_pipeline_goes_on_as_ever(run: Run, stuck: str) -> None:
    run("rebuild", stuck, "large")
    run("sql", stuck, "INSERT INTO orders VALUES (30, 'far', 1000); DELETE FROM orders WHERE id = 3")
    assert run("run", stuck, "--until-caught-up").exit_code == 0

    assert rows(run, stuck, "SELECT * FROM revenue") == rows(run, stuck, GROUPED)
    assert rows(run, stuck, "SELECT * FROM large") == rows(run, stuck, LARGE)


def test_changes_lost_between_two_epochs_have_the_same_way_out(run: Run, tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 's'}?sync=off"
    with vk.connect(url) as db:
        db.execute("CREATE TABLE orders (id INT PRIMARY KEY, region STRING, amount BIGINT)")
        db.execute(f"CREATE MATERIALIZED VIEW revenue AS {GROUPED}")
        db.table("orders").put(1, {"region": "eu", "amount": 3})
        keep_up(db)
        db.table("orders").put(2, {"region": "eu", "amount": 4})
        db.table("orders").put(3, {"region": "eu", "amount": 5})
        lose(db, 1, 2)
    told = run("run", url, "--until-caught-up")
    assert told.exit_code != 0 and "viewkeeper rebuild URL VIEW" in told.output
    assert run("rebuild", url, "revenue").exit_code == 0

    assert rows(run, url, "SELECT * FROM revenue") == rows(run, url, GROUPED)


@pytest.mark.parametrize("point", ["anew.logged", "anew.swapped", "run.receipts", "commit.swapped"])
def test_a_way_out_that_is_cut_short_is_taken_again(run: Run, stuck: str, point: str) -> None:
    def stop(name: str) -> None:
        if name == point:
            failpoints.hook(None)
            raise SystemExit(137)

    failpoints.hook(stop)
    try:
        assert run("rebuild", stuck, "revenue").exit_code == 137
    finally:
        failpoints.hook(None)
    told = run("rebuild", stuck, "revenue")

    assert told.exit_code == 0, told.output
    assert rows(run, stuck, "SELECT * FROM revenue") == rows(run, stuck, GROUPED)
    assert rows(run, stuck, "SELECT * FROM large") == rows(run, stuck, LARGE)
