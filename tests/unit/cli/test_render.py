"""Rows as text, JSON and CSV: streamed, by whole columns, and the same whichever way they come."""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import Result

import viewkeeper as vk
from viewkeeper.cli import render
from viewkeeper.cli.options import Form
from viewkeeper.cli.render import print_result, print_rows, print_tables
from viewkeeper.client.result import Result as Answer

Run = Callable[..., Result]
Out = pytest.CaptureFixture[str]

UTC = dt.UTC
VALUES = pa.table(
    {
        "flag": pa.array([True, None, False]),
        "whole": pa.array([-(2**63), None, 7]),
        "half": pa.array([1.0, math.inf, 1e-05]),
        "nan": pa.array([math.nan, None, 0.1]),
        "price": pa.array([Decimal("1.50"), Decimal("-0.01"), None], pa.decimal128(9, 2)),
        "tiny": pa.array([Decimal("0.0000001"), Decimal(0), None], pa.decimal128(20, 7)),
        "text": pa.array(['it\'s "x", y', "", None]),
        "odd": pa.array(["a\nb\x1b[31m\\", "日本", " ü "]),
        "raw": pa.array([b"\x00\xff", b"", None]),
        "day": pa.array([dt.date(2026, 1, 31), dt.date(1, 1, 1), None]),
        "moment": pa.array(
            [dt.datetime(2026, 1, 31, 12, tzinfo=UTC), dt.datetime(1, 1, 1, 0, 0, 0, 5, tzinfo=UTC), None],
            pa.timestamp("us", "UTC"),
        ),
    }
)


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("form", list(Form))
def test_arrow_and_python_values_are_printed_alike(capsys: Out, form: Form) -> None:
    print_tables(VALUES.column_names, [VALUES], form)
    by_columns = capsys.readouterr().out
    print_rows(VALUES.column_names, rows_of(VALUES), form)

    assert by_columns == capsys.readouterr().out
    assert by_columns


def test_json_lines_are_what_a_reader_of_json_gets(capsys: Out) -> None:
    print_tables(VALUES.column_names, [VALUES], Form.JSON)
    first, second, _ = (json.loads(line) for line in capsys.readouterr().out.splitlines())

    assert first["odd"] == "a\nb\x1b[31m\\"
    assert first["price"] == "1.50" and first["tiny"] == "0.0000001"
    assert (first["half"], second["half"], first["nan"], second["nan"]) == (1.0, "Infinity", "NaN", None)
    assert second["moment"] == "0001-01-01T00:00:00.000005+00:00"


@pytest.mark.parametrize("form", [Form.TEXT, Form.EXPANDED, Form.JSON, Form.CSV])
def test_a_page_is_written_before_the_next_is_asked_for(capsys: Out, form: Form) -> None:
    written: list[str] = []

    def pages() -> Iterator[pa.Table]:
        for text in ("first", "second"):
            written.append(capsys.readouterr().out)
            yield pa.table({"name": [text]})

    print_tables(["name"], pages(), form)

    assert "first" in written[1]
    assert "second" in capsys.readouterr().out


def test_rows_are_laid_out_by_columns_not_by_cells(run: Run, url: str) -> None:
    names = [f"c{place}" for place in range(40)]
    run("sql", url, f"CREATE TABLE wide (k INT PRIMARY KEY, {', '.join(f'{name} BIGINT' for name in names)})")
    rows = pa.table({"k": pa.array(range(2_000), pa.int32())} | {name: list(range(2_000)) for name in names})
    vk.connect(url).table("wide").put_many(rows)
    run("scan", url, "wide")  # what is loaded once is no work of the rows

    def calls(*limit: str) -> int:
        count = 0

        def tally(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(tally)
        try:
            scanned = run("scan", url, "wide", *limit)
        finally:
            sys.setprofile(None)
        assert scanned.stdout.splitlines()[-1] == ("(1 row)" if limit else "(2,000 rows)")
        return count

    assert calls() - calls("--limit", "1") < 2_000 * 40 / 4  # far fewer than there are cells


def test_a_value_longer_than_the_first_page_moves_its_own_line_alone(capsys: Out) -> None:
    pages = [pa.table({"a": ["x"], "b": [1]}), pa.table({"a": ["much longer", "y"], "b": [2, 3]})]
    print_tables(["a", "b"], pages)

    assert capsys.readouterr().out.splitlines() == ["a  b", "────", "x  1", "much longer  2", "y  3", "(3 rows)"]


def test_wide_characters_take_two_places(capsys: Out) -> None:
    print_tables(["name", "n"], [pa.table({"name": ["日本", "abcd", None], "n": [1, 22, None]})])

    assert capsys.readouterr().out.splitlines()[2:] == ["日本     1", "abcd    22", "NULL  NULL", "(3 rows)"]


def test_rows_too_wide_for_a_terminal_are_one_value_below_the_other(
    capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"id": [1, 2], "text": ["x" * 30, None]})
    monkeypatch.setattr(render, "terminal_width", lambda: 20)
    print_tables(table.column_names, [table])
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("─ 1 ─") and lines[3].startswith("─ 2 ─")
    assert lines[1:3] + lines[4:] == ["id    1", "text  " + "x" * 30, "id    2", "text  NULL", "(2 rows)"]
    print_tables(table.column_names, [table], Form.TABLE)
    assert capsys.readouterr().out.splitlines()[0] == "id  text"


def test_an_answer_without_rows_shows_its_columns(run: Run, shop: str) -> None:
    for command in (("scan", shop, "orders", "o9"), ("sql", shop, "SELECT * FROM orders WHERE id = 'o9'")):
        told = run(*command)
        assert told.stdout.splitlines()[0].split() == ["id", "region", "amount"]
        assert told.stdout.splitlines()[-1] == "(0 rows)"
        assert run(*command, "--csv").stdout == "id,region,amount\n"
        assert run(*command, "--json").stdout == ""


def test_csv_goes_back_through_load(run: Run, url: str, tmp_path: Path) -> None:
    columns = "whole BIGINT, half DOUBLE, price DECIMAL(9,2), text STRING, odd STRING, raw BINARY, day DATE"
    for name in ("here", "there"):
        run("sql", url, f"CREATE TABLE {name} (k INT PRIMARY KEY, flag BOOLEAN, {columns}, moment TIMESTAMP)")
    table = VALUES.drop_columns(["nan", "tiny"]).append_column("k", pa.array([1, 2, 3], pa.int32()))
    vk.connect(url).table("here").put_many(table)
    file = tmp_path / "here.csv"
    file.write_text(run("scan", url, "here", "--csv").stdout, encoding="utf-8", newline="")
    loaded = run("load", url, "there", str(file))

    assert loaded.exit_code == 0, loaded.stderr
    assert run("scan", url, "there", "--json").stdout == run("scan", url, "here", "--json").stdout


def test_csv_is_for_rows_and_words_go_to_stderr(run: Run, url: str) -> None:
    told = run("sql", url, "--csv", "CREATE TABLE t (a INT PRIMARY KEY, b STRING); SELECT a, b FROM t")

    assert (told.stdout, told.stderr) == ("a,b\n", "table t created\n")


def test_json_and_csv_together_are_refused(run: Run, shop: str) -> None:
    refused = run("scan", shop, "orders", "--json", "--csv")

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: rows are printed as JSON or as CSV, not both\n")


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("rows", [0, 2, 3, 4, 7])
def test_pages_of_an_answer_are_printed_as_one(
    capsys: Out, monkeypatch: pytest.MonkeyPatch, form: Form, rows: int
) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int64()), "text": [f"row {number}" for number in range(rows)]})
    printed = []
    for size, answer in [(1_000, table), (3, table), (3, tuple(rows_of(table)))]:
        monkeypatch.setattr(render, "_PAGE_ROWS", size)
        print_result(Answer(tuple(table.column_names), answer), form)
        printed.append(capsys.readouterr().out)

    assert printed[1:] == printed[:1] * 2
    assert all(f"row {number}" in printed[0] for number in range(rows))
