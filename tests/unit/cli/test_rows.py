"""put, get and scan from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

TYPES = """CREATE TABLE everything (a INT, b STRING, flag BOOLEAN, whole BIGINT, half DOUBLE, price DECIMAL(38,2),
    raw BINARY, day DATE, moment TIMESTAMP, PRIMARY KEY (a, b))"""
ROW = {
    "a": -7,
    "b": "it's [red]; =x",
    "flag": True,
    "whole": 9223372036854775807,
    "half": 0.1,
    "price": "123456789012345678901234567890123456.78",
    "raw": "00ff",
    "day": "2026-01-31",
    "moment": "2026-01-31T12:30:00.000001+00:00",
}


def rows_of(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    "arguments",
    [
        ("o4", "region=eu", "amount=30"),
        ("id=o4", "region=eu", "amount=30"),
        ("o4", "REGION=eu", "amount:=30"),
        ("o4", '{"region": "eu", "amount": 30}'),
        ('{"id": "o4", "region": "eu", "amount": 30}',),
        ('{"id": "o4", "region": "eu", "amount": "30"}',),
    ],
)
def test_a_put_may_be_written_in_several_ways(run: Run, shop: str, arguments: tuple[str, ...]) -> None:
    written = run("put", shop, "orders", *arguments)

    assert written.exit_code == 0
    assert written.stdout.startswith("vk1:")
    assert rows_of(run("get", shop, "orders", "o4", "--json")) == [{"id": "o4", "region": "eu", "amount": 30}]


def test_a_put_leaves_other_columns_alone_and_null_is_written_as_json(run: Run, shop: str) -> None:
    run("put", shop, "orders", "o1", "amount=31")
    run("put", shop, "orders", "o2", "region:=null")
    run("put", shop, "orders", "o3", "region=")

    assert rows_of(run("scan", shop, "orders", "--json")) == [
        {"id": "o1", "region": "eu", "amount": 31},
        {"id": "o2", "region": None, "amount": -5},
        {"id": "o3", "region": "", "amount": 7},
    ]


def test_what_json_prints_put_takes_back(run: Run, url: str) -> None:
    run("sql", url, TYPES)
    written = run("put", url, "everything", json.dumps(ROW))
    assert written.exit_code == 0, written.stderr

    got = run("get", url, "everything", "-7", ROW["b"], "--json")
    assert rows_of(got) == [ROW]
    again = run("put", url, "everything", got.stdout.strip())
    assert again.exit_code == 0
    assert rows_of(run("scan", url, "everything", "-7", "--json")) == [ROW]


def test_values_as_typed_are_read_by_the_type_of_the_column(run: Run, url: str) -> None:
    run("sql", url, TYPES)
    typed = [f"{name}={'true' if value is True else value}" for name, value in ROW.items() if name not in ("a", "b")]
    written = run("put", url, "everything", "-7", str(ROW["b"]), *typed)

    assert written.exit_code == 0, written.stderr
    assert rows_of(run("scan", url, "everything", "--json")) == [ROW]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_doubles_without_a_json_number_are_strings(run: Run, url: str, value: str) -> None:
    run("sql", url, TYPES)
    run("put", url, "everything", "1", "x", f"half={value}")

    assert rows_of(run("get", url, "everything", "1", "x", "--json"))[0]["half"] == value


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("o4", "amount=x"), "column amount is BIGINT, not 'x'"),
        (("o4", "amount=1_000"), "column amount is BIGINT, not '1_000'"),
        (("o4", "amount=1.5"), "column amount is BIGINT, not '1.5'"),
        (("o4", "amount=99999999999999999999"), "column amount is BIGINT, not int 99999999999999999999"),
        (("o4", "amount:=1.5"), "column amount is BIGINT, not Decimal Decimal('1.5')"),
        (("o4", "amount:=x"), "the value of column amount is not JSON"),
        (("o4", "eu"), "'eu' is neither col=value nor a JSON object"),
        (("o4", "nothing=1"), "table orders has no column nothing"),
        (("o4", "amount=1", "amount=2"), "column amount is given twice"),
        (("o4", "id=o5"), "column id is given twice"),
        (("id:=null", "amount=1"), "key column id of table orders is NULL"),
        (('{"id"',), "the row is not JSON"),
        (('{"id": "o4", "id": "o5"}',), "a name comes twice"),
        (('{"id": "o4", "amount": ' + "9" * 5_000 + "}",), "the row is not JSON: a number has 5,000 digits"),
        (("o4", "amount:=1e99999999999999999999"), "is not JSON: a number has an exponent beyond all bounds"),
        (("o4", "region:=" + "[" * 60_000 + "]" * 60_000), "is not JSON: it is nested too deeply"),
        (('{"amount": 1}',), "the key of orders lacks id"),
    ],
)
def test_a_bad_put_is_refused_in_one_line_and_writes_nothing(
    run: Run, shop: str, arguments: tuple[str, ...], fact: str
) -> None:
    before = run("scan", shop, "orders", "--json").stdout
    refused = run("put", shop, "orders", *arguments)

    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith("error: ")
    assert fact in refused.stderr.splitlines()[0]
    assert run("scan", shop, "orders", "--json").stdout == before


def test_get_shows_a_row_for_people(run: Run, shop: str) -> None:
    got = run("get", shop, "orders", "o3")

    assert [line.split() for line in got.stdout.splitlines()] == [["id", "o3"], ["region", "NULL"], ["amount", "7"]]


def test_a_row_that_is_not_there_has_its_own_exit_code(run: Run, shop: str) -> None:
    for extra in ((), ("--json",)):
        got = run("get", shop, "orders", "o9", *extra)
        assert (got.exit_code, got.stdout, got.stderr) == (3, "", "error: orders has no row (o9)\n")


def test_views_are_read_like_tables(run: Run, fresh_shop: str) -> None:
    eu, nowhere = {"region": "eu", "n": 1, "total": 30}, {"region": None, "n": 1, "total": 7}

    assert rows_of(run("get", fresh_shop, "revenue", "eu", "--json")) == [eu]
    assert rows_of(run("get", fresh_shop, "revenue", ":=null", "--json", "--read", "latest")) == [nowhere]
    assert rows_of(run("scan", fresh_shop, "revenue", "--json", "--limit", "2")) == [nowhere, eu]
    assert run("get", fresh_shop, "revenue", "asia").exit_code == 3


def test_a_view_that_is_not_filled_says_so(run: Run, shop: str) -> None:
    got = run("get", shop, "revenue", "eu")

    assert got.exit_code == 5
    assert got.stderr == "error: view revenue is not filled yet\nhint: run the pipeline: viewkeeper run URL\n"


def test_a_read_waits_for_the_token_of_a_put(run: Run, fresh_shop: str) -> None:
    from tests.support.running import keep_up
    from viewkeeper.client.database import connect

    token = run("put", fresh_shop, "orders", "o9", "region=eu", "amount=1").stdout.strip()
    read = ("get", fresh_shop, "revenue", "eu", "--json", "--after", token, "--timeout", "0")
    late = run(*read)
    keep_up(connect(fresh_shop))

    assert (late.exit_code, late.stdout) == (5, "")
    assert "Use a longer --timeout" in late.stderr
    assert rows_of(run(*read)) == [{"region": "eu", "n": 2, "total": 31}]
    assert run("get", fresh_shop, "revenue", "eu", "--after", "nonsense").exit_code == 2


def test_a_read_may_ask_for_a_view_that_misses_nothing_older(run: Run, fresh_shop: str) -> None:
    from tests.support.running import keep_up
    from viewkeeper.client.database import connect

    read = ("scan", fresh_shop, "revenue", "eu", "--json", "--timeout", "0")
    assert len(rows_of(run(*read, "--within", "0"))) == 1
    run("put", fresh_shop, "orders", "o9", "region=eu", "amount=1")
    late = run(*read, "--within", "0")
    lenient = rows_of(run(*read, "--within", "86400"))
    keep_up(connect(fresh_shop))

    assert (late.exit_code, late.stdout) == (5, "")
    assert lenient == [{"region": "eu", "n": 1, "total": 30}]
    assert rows_of(run(*read, "--within", "0")) == [{"region": "eu", "n": 2, "total": 31}]


def test_a_row_is_deleted_by_its_key_whether_it_is_there_or_not(run: Run, shop: str) -> None:
    for _ in range(2):
        deleted = run("delete", shop, "orders", "o1")
        assert (deleted.exit_code, deleted.stdout[:4]) == (0, "vk1:")
    assert run("get", shop, "orders", "o1").exit_code == 3
    assert run("delete", shop, "orders", "o2", "--column", "region").exit_code == 0
    assert rows_of(run("get", shop, "orders", "o2", "--json")) == [{"id": "o2", "region": None, "amount": -5}]


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("orders", "o1", "o2"), "table orders has the key (id), not 2 values"),
        (("orders", "o1", "--column", "id"), "id is a key column of orders"),
        (("orders", "o1", "--column", "nothing"), "table orders has no column nothing"),
        (("revenue", "eu"), "revenue"),
        (("orders",), "Missing argument 'KEY"),
    ],
)
def test_a_delete_that_makes_no_sense_is_refused(run: Run, shop: str, arguments: tuple[str, ...], fact: str) -> None:
    refused = run("delete", shop, *arguments)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert fact in refused.stderr.splitlines()[0]


@pytest.mark.parametrize("option", [("--read", "latest"), ("--after", "vk1:x:"), ("--within", "1")])
def test_read_modes_are_for_views(run: Run, shop: str, option: tuple[str, ...]) -> None:
    got = run("get", shop, "orders", "o1", *option)

    assert got.exit_code == 2
    assert "orders is a table" in got.stderr


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ((), ["o1", "o2", "o3"]),
        (("--reverse",), ["o3", "o2", "o1"]),
        (("--start", "o2"), ["o2", "o3"]),
        (("--stop", "o2"), ["o1"]),
        (("--start", "o1", "--stop", "o3", "--reverse", "--limit", "1"), ["o2"]),
        (("--limit", "0"), []),
        (("o2",), ["o2"]),
    ],
)
def test_a_scan_takes_a_range(run: Run, shop: str, options: tuple[str, ...], ids: list[str]) -> None:
    assert [row["id"] for row in rows_of(run("scan", shop, "orders", *options, "--json"))] == ids


def test_a_scan_takes_several_key_columns(run: Run, url: str) -> None:
    run("sql", url, "CREATE TABLE pairs (a INT, b INT, c INT, PRIMARY KEY (a, b, c))")
    for key in ((-1, 1, 1), (1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1)):
        run("put", url, "pairs", *map(str, key))

    def scan(*options: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in rows_of(run("scan", url, "pairs", *options, "--json"))]

    assert scan("-1") == [(-1, 1, 1)]
    assert scan("1", "--start", "1", "--start", "2") == [(1, 1, 2), (1, 2, 1)]
    assert scan("1", "1", "--stop", "2") == [(1, 1, 1)]
    assert run("scan", url, "pairs", "1", "1", "1", "1").exit_code == 2


def test_a_scan_for_people_is_a_table_that_nothing_in_a_value_can_break(run: Run, shop: str) -> None:
    run("put", shop, "orders", "o4", "region=[red]a\x1b[31m\nb[/red] :smile:" + "x" * 200)
    scanned = run("scan", shop, "orders")

    assert scanned.exit_code == 0
    lines = [line.rstrip() for line in scanned.stdout.splitlines()]
    assert lines[0].split() == ["id", "region", "amount"]
    assert lines[-1] == "(4 rows)"
    assert r"[red]a\x1b[31m\nb[/red] :smile:" + "x" * 200 in lines[-2]


def test_a_name_that_is_not_there_is_met_with_a_suggestion(run: Run, shop: str) -> None:
    got = run("get", shop, "Order", "o1")

    assert got.exit_code == 2
    assert got.stderr == "error: there is no table or view Order\nhint: did you mean orders?\n"


def test_reading_and_writing_make_no_store(run: Run, url: str, tmp_path: Path) -> None:
    for command in (("get", url, "t", "k"), ("put", url, "t", "k"), ("scan", url, "t"), ("status", url), ("run", url)):
        failed = run(*command)
        assert failed.exit_code == 4
        assert failed.stderr.splitlines()[1] == 'hint: viewkeeper sql URL "CREATE TABLE …" makes one'
    assert list(tmp_path.iterdir()) == []


def test_a_put_without_its_key_writes_nothing(run: Run, shop: str) -> None:
    told = run("put", shop, "orders", "amount=5")
    assert (told.exit_code, told.stdout) == (2, "")
    assert "'amount=5' stands where table orders has its key (id)" in told.stderr
    assert run("put", shop, "orders", "id=amount=5", "amount=5").exit_code == 0
    assert run("get", shop, "orders", "amount=5").exit_code == 0
