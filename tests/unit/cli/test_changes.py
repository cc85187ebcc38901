"""changes from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import Result

from tests.support.running import keep_up
from viewkeeper.client.database import connect

Run = Callable[..., Result]


def change(shop: str) -> None:
    database = connect(shop)
    database.table("orders").put("o1", {"amount": 31})
    database.table("orders").delete("o2")
    keep_up(database)


def test_changes_are_lines_and_the_last_line_is_the_epoch_to_go_on_from(run: Run, fresh_shop: str) -> None:
    change(fresh_shop)
    told = run("changes", fresh_shop, "revenue", "--since", "1", "--json")

    assert [json.loads(line) for line in told.stdout.splitlines()] == [
        {
            "epoch": 2,
            "key": ["eu"],
            "before": {"region": "eu", "n": 1, "total": 30},
            "after": {"region": "eu", "n": 1, "total": 31},
        },
        {"epoch": 2, "key": ["us"], "before": {"region": "us", "n": 1, "total": -5}, "after": None},
        {"epoch": 2},
    ]
    assert run("changes", fresh_shop, "revenue", "--since", "2", "--json").stdout == '{"epoch": 2}\n'


def test_changes_for_people_end_with_how_to_go_on(run: Run, fresh_shop: str) -> None:
    change(fresh_shop)
    lines = run("changes", fresh_shop, "revenue", "--since", "1").stdout.splitlines()

    assert lines[0].split() == ["epoch", "key", "before", "after"]
    assert lines[-1] == "up to epoch 2: --since 2 goes on from here"


def test_changes_that_are_not_kept_end_with_the_code_of_a_read_that_cannot_be_answered(
    run: Run, fresh_shop: str
) -> None:
    told = run("changes", fresh_shop, "revenue", "--since", "0")

    assert (told.exit_code, told.stdout) == (5, "")
    assert told.stderr.splitlines()[1] == "hint: scan the view instead; changes may be asked for since epoch 1"


def test_keep_says_what_is_kept_and_changes_go_further_back(run: Run, fresh_shop: str) -> None:
    told = run("keep", fresh_shop, "--epochs", "20", "--seconds", "60")
    assert (
        told.stdout == "from the next epoch on the changes of the last 20 epochs and of the last 60 seconds are kept\n"
    )
    with connect(fresh_shop) as db:
        first = db.epoch
        for number in range(5):
            db.table("orders").put(f"n{number}", {"region": "eu", "amount": number})
            keep_up(db)
    told = run("changes", fresh_shop, "revenue", "--since", str(first), "--json")
    assert told.exit_code == 0
    assert len(told.stdout.splitlines()) == 6
    assert run("keep", fresh_shop).stdout == "from the next epoch on the changes of the last two epochs are kept\n"
    assert run("keep", fresh_shop, "--epochs", "-1").exit_code == 2
