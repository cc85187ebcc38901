"""SQL from arguments, files, pipes and the prompt."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from viewkeeper.cli.shell import MORE, PROMPT, is_whole

Run = Callable[..., Result]

CREATE = "CREATE TABLE t (a INT PRIMARY KEY, b STRING)"


def test_every_statement_gives_its_answer(run: Run, url: str) -> None:
    told = run("sql", url, f"{CREATE}; INSERT INTO t VALUES (1, 'x'), (2, NULL)", "SELECT * FROM t ORDER BY a")

    assert told.exit_code == 0, told.stderr
    lines = [line.rstrip() for line in told.stdout.splitlines()]
    assert lines[:2] == ["table t created", "2 rows put"]
    assert [lines[2].split(), lines[4].split(), lines[5].split()] == [["a", "b"], ["1", "x"], ["2", "NULL"]]
    assert lines[6] == "(2 rows)"


def test_json_gives_a_line_for_each_row(run: Run, url: str) -> None:
    query = "SELECT a, b, 1.50 AS d, DATE '2026-01-31' AS day, SQRT(-1) AS n FROM t"
    told = run("sql", url, "--json", f"{CREATE}; INSERT INTO t VALUES (1, 'ü'); {query}")

    assert [json.loads(line) for line in told.stdout.splitlines()] == [
        {"message": "table t created"},
        {"message": "1 row put"},
        {"a": 1, "b": "ü", "d": "1.50", "day": "2026-01-31", "n": "NaN"},
    ]


def test_a_plan_is_shown_as_text(run: Run, shop: str) -> None:
    told = run("sql", shop, "EXPLAIN SELECT region, COUNT(*) AS n FROM orders GROUP BY region")

    assert told.exit_code == 0, told.stderr
    assert "r0 := base orders" in told.stdout


def test_statements_come_from_a_file_or_a_pipe(run: Run, url: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(f"-- a table\n{CREATE};\n", encoding="utf-8")

    assert run("sql", url, "--file", str(file)).stdout == "table t created\n"
    assert run("sql", url, input="INSERT INTO t VALUES (1, 'x');").stdout == "1 row put\n"
    assert run("sql", url, "--file", "-", input="DROP TABLE t").stdout == "table t dropped\n"
    assert run("sql", url, input="").exit_code == 0


def test_a_byte_order_mark_before_the_first_statement_is_no_part_of_it(run: Run, url: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(f"\ufeff{CREATE};\n", encoding="utf-8")

    assert run("sql", url, "--file", str(file)).stdout == "table t created\n"
    assert run("sql", url, input="\ufeffDROP TABLE t").stdout == "table t dropped\n"


def test_a_mistake_leaves_the_statements_before_it_undone(run: Run, url: str, tmp_path: Path) -> None:
    told = run("sql", url, f"{CREATE};\nSELEC 1")

    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.startswith("error: line 2, column 1: no statement begins with SELEC\nhint: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["SELECT 1 AS one", "DROP TABLE t"])
def test_only_create_table_makes_a_store(run: Run, url: str, tmp_path: Path, text: str) -> None:
    assert run("sql", url, text).exit_code == 4
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_told(run: Run, url: str, tmp_path: Path) -> None:
    binary = tmp_path / "binary.sql"
    binary.write_bytes(b"\xff\xfe")

    missing = run("sql", url, "--file", str(tmp_path / "nowhere.sql"))
    hint = "hint: name a file of statements, or - for the input\n"
    fact = f"error: {tmp_path}/nowhere.sql cannot be read: No such file or directory\n"
    assert (missing.exit_code, missing.stderr) == (2, fact + hint)
    assert run("sql", url, "--file", str(tmp_path)).exit_code == 2
    assert run("sql", url, "--file", str(binary)).exit_code == 2
    assert run("sql", url, "SELECT 1", "--file", str(binary)).exit_code == 2


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT 1 -- ;", False),
        ("SELECT ';", False),
        ("SELECT ';'", False),
        ("SELECT ';' ;", True),
        ("SELECT `;", False),
        ("SELECT 1; SELECT", False),
        ("SELECT '\\u0041';", True),
    ],
)
def test_a_statement_ends_with_a_semicolon_outside_of_quotes(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_a_terminal_gets_a_prompt_and_a_history(url: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    command = [sys.executable, "-m", "viewkeeper", "sql", url]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        os.write(ours, f"{CREATE}\n;\nSELEC;\nINSERT INTO t VALUES (1, 'x');\n\\q\n".encode())
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        assert process.wait(60) == 0
    os.close(ours)

    text = shown.decode()
    assert PROMPT in text and MORE in text
    assert "table t created" in text
    assert "error: line 1, column 1: no statement begins with SELEC" in text
    assert "1 row put" in text
    assert CREATE in (tmp_path / "viewkeeper" / "history").read_text(encoding="utf-8")


def _read(descriptor: int) -> bytes:
    """What the terminal shows next; nothing once the other side is closed, which Linux calls an I/O error."""
    watched = select.poll()
    watched.register(descriptor, select.POLLIN)
    assert watched.poll(60_000), "the prompt shows nothing"
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
