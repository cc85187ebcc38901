"""load from the command line."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import Result

from viewkeeper.cli import display, rows

Run = Callable[..., Result]

ORDERS = "id,region,amount\no4,eu,30\no5,,-5\n"


@pytest.fixture
def orders(tmp_path: Path) -> str:
    path = tmp_path / "orders.csv"
    path.write_text(ORDERS, encoding="utf-8")
    return str(path)


def ids(run: Run, url: str) -> list[str]:
    return [json.loads(line)["id"] for line in run("scan", url, "orders", "--json").stdout.splitlines()]


def test_a_load_ends_with_a_line_of_rows_and_seconds(run: Run, shop: str, orders: str) -> None:
    told = run("load", shop, "orders", orders)

    assert told.exit_code == 0, told.stderr
    assert told.stdout.startswith("2 rows loaded into orders in ")
    assert told.stdout.endswith(" rows/s\n")
    assert told.stderr == ""
    assert ids(run, shop) == ["o1", "o2", "o3", "o4", "o5"]


def test_json_tells_the_same_with_the_token(run: Run, shop: str, orders: str) -> None:
    told = json.loads(run("load", shop, "orders", orders, orders, "--json").stdout)

    assert (told["table"], told["rows"], told["created"]) == ("orders", 4, None)
    assert told["token"].startswith("vk1:")
    assert (told["added"], told["replaced"]) == (2, 2)
    assert set(told) == {
        "table",
        "rows",
        "added",
        "replaced",
        "seconds",
        "rows_per_second",
        "token",
        "created",
        "nulls",
    }


def test_create_makes_store_and_table_and_prints_the_statement(run: Run, url: str, orders: str) -> None:
    told = run("load", url, "orders", orders, "--create", "--key", "id")

    assert told.exit_code == 0, told.stderr
    statement = told.stdout.splitlines()[0]
    assert statement == "CREATE TABLE orders (id STRING, region STRING, amount BIGINT, PRIMARY KEY (id));"
    assert ids(run, url) == ["o4", "o5"]
    again = run("load", url, "orders", orders, "--create", "--key", "id")
    assert (again.exit_code, again.stdout.splitlines()[0][:6]) == (0, "2 rows")
    assert again.stderr == "warning: 2 of 2 rows replaced a row with the same key; 0 keys are new\n"
    other = run("load", url, "orders", orders, "--create", "--key", "id,amount")
    assert (other.exit_code, other.stderr.splitlines()[1]) == (2, "hint: leave --create out to load into it")


@pytest.mark.parametrize("content", ["id,amount\n,1\n", "id,amount\no1\n"])
def test_files_that_do_not_fit_leave_no_store_behind(run: Run, url: str, tmp_path: Path, content: str) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(content, encoding="utf-8")

    assert run("load", url, "orders", str(bad), "--create", "--key", "id").exit_code == 2
    assert not (tmp_path / "shop").exists()
    assert run("load", url, "orders", str(bad)).exit_code == 4


def test_the_input_is_loaded_when_its_format_is_named(run: Run, shop: str) -> None:
    told = run("load", shop, "orders", "-", "--format", "jsonl", input='{"id": "o9"}\n')
    assert told.exit_code == 0, told.stderr
    assert ids(run, shop)[-1] == "o9"
    assert run("load", shop, "orders", "-", input=ORDERS).stderr.splitlines()[1].startswith("hint: say it: --format")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("nope", "FILE"), "hint: --create, with --key, makes it from the files"),
        (("orders", "FILE", "--key", "id"), "hint: --create makes the table"),
        (("new", "FILE", "--create"), "hint: name the key columns: --key id"),
        (("orders", "WIDE"), "hint: the table has id, region, amount; --ignore-unknown leaves the others out"),
        (("orders", "none.csv"), "hint: is the path right?"),
        (("orders", "NAS"), 'hint: nothing was written; --null "NA" reads it as NULL, --guess-null finds such texts'),
    ],
)
def test_hints_speak_of_options(
    run: Run, shop: str, orders: str, tmp_path: Path, arguments: tuple[str, ...], hint: str
) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text("id,other\no1,2\n", encoding="utf-8")
    nas = tmp_path / "nas.csv"
    nas.write_text("id,amount\no1,NA\n", encoding="utf-8")
    files = {"FILE": orders, "WIDE": str(wide), "NAS": str(nas)}
    told = run("load", shop, *(files.get(part, part) for part in arguments))

    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.splitlines()[1].startswith(hint)
    assert ids(run, shop) == ["o1", "o2", "o3"]


def test_options_reach_the_reader(run: Run, shop: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.txt"
    path.write_text("id:region:other\no4:NA:x\n", encoding="utf-8")
    options = ("--format", "csv", "--delimiter", ":", "--null", "NA", "--ignore-unknown")

    assert run("load", shop, "orders", str(path), *options).exit_code == 0
    assert json.loads(run("get", shop, "orders", "o4", "--json").stdout)["region"] is None


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    seen = io.StringIO()
    monkeypatch.setattr(display, "console", lambda *, stderr: Console(file=seen, force_terminal=True, width=100))
    with display.bar("checking", then="loading", bytes_counted=False) as progress:
        progress(50, 100)

    assert "loading" in seen.getvalue() and "50/100" in seen.getvalue()


def test_a_key_that_is_not_unique_is_refused_with_two_lines_and_the_option_that_insists(
    run: Run, url: str, orders: str, tmp_path: Path
) -> None:
    Path(orders).write_text(ORDERS + "o4,us,1\n", encoding="utf-8")
    command = ("load", url, "orders", orders, "--create", "--key", "id")
    told = run(*command)
    assert told.exit_code == 2
    assert f"{orders}, line 2 and {orders}, line 4 are both id=o4" in told.stderr
    assert "--last-wins keeps the last row" in told.stderr
    assert not (tmp_path / "shop").exists()

    told = run(*command, "--last-wins")
    assert told.exit_code == 0
    assert told.stderr == "warning: 1 of 3 rows replaced a row with the same key; 2 keys are new\n"


def test_ctrl_c_between_transactions_says_how_far_it_came_and_the_same_command_goes_on(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "many.csv"
    path.write_text("id\n" + "".join(f"{number}\n" for number in range(25_000)), encoding="utf-8")
    command = ("load", f"{url}?sync=off", "many", str(path), "--create", "--key", "id")

    @contextmanager
    def interrupting(*what: object, **options: object) -> Iterator[Callable[[int, int], None]]:
        yield lambda done, total: signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(rows, "bar", interrupting)
        told = run(*command)
    assert (told.exit_code, told.stdout) == (130, "")
    assert told.stderr.startswith("interrupted: 10,000 of 25,000 rows are in many; the same command puts all")
    assert told.stderr.count("\n") == 1

    told = run(*command)
    assert told.exit_code == 0
    assert told.stderr == "warning: 10,000 of 25,000 rows replaced a row with the same key; 15,000 keys are new\n"


@pytest.mark.parametrize(
    ("name", "first", "line"),
    [
        ("many.csv", "id,a,b\n", "{0},x{0},2026-01-31\n"),
        ("many.jsonl", "", '{{"id": {0}, "a": "x{0}", "b": "2026-01-31"}}\n'),
    ],
)
def test_ctrl_c_while_files_are_checked_is_one_line_too(
    url: str, tmp_path: Path, name: str, first: str, line: str
) -> None:
    path, temporary = tmp_path / name, tmp_path / "temporary"
    temporary.mkdir()
    path.write_text(first + "".join(line.format(number) for number in range(1_000_000)))
    command = [sys.executable, "-m", "viewkeeper", "load", url, "many", str(path), "--create", "--key", "id"]
    with subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True
    ) as load:
        while not list(temporary.glob("viewkeeper-load-*")):
            assert load.poll() is None
        load.send_signal(signal.SIGINT)
        told = load.communicate(timeout=120)[1]

    assert load.returncode == 130
    assert told.startswith("interrupted: no row is in many; ") and told.count("\n") == 1
    assert not (tmp_path / "shop").exists() and list(temporary.iterdir()) == []
