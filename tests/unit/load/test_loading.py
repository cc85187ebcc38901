"""Loading files: every value as it is written, or nothing at all and the line to look at."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import viewkeeper as vk

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

TYPES = (
    "CREATE TABLE t (k BIGINT PRIMARY KEY, i INT, b BOOLEAN, d DOUBLE, p DECIMAL(10,2), s STRING, r BINARY, "
    "y DATE, z TIMESTAMP, n INT NOT NULL)"
)
FULL = {
    "k": 1,
    "i": -7,
    "b": True,
    "d": 1e300,
    "p": Decimal("12.50"),
    "s": 'a, "b"\nc',
    "r": b"\0\xff",
    "y": dt.date(2026, 1, 31),
    "z": dt.datetime(2026, 1, 31, 10, 30, tzinfo=dt.UTC),
    "n": 0,
}
BARE = dict.fromkeys(FULL, None) | {"k": 2, "n": 1}


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database = vk.connect(f"embedded:{tmp_path / 'store'}?sync=off&nodes=2")
    database.execute(TYPES)
    return database


def file(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


CSV = 'K,i,b,d,p,s,r,y,z,n\n1,-7.0,yes,1e300,12.5,"a, ""b""\nc",00FF,2026-01-31,2026-01-31 12:30+02:00,0\n2,,,,,,,,,1\n'
JSON = (
    '{"K": 1, "i": -7, "b": true, "d": 1e300, "p": 12.5, "s": "a, \\"b\\"\\nc", "r": "00ff", "y": "2026-01-31", '
    '"z": "2026-01-31T10:30:00Z", "n": 0}\n\n{"K": 2, "n": 1, "s": null}\n'
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", CSV),
        ("t.CSV", "\ufeff" + CSV.replace("\n1", "\r\n1").replace("\n2", "\r\n2").replace("1\n", "1\r\n")),
        ("t.csv.gz", CSV),
        ("t.csv", CSV.replace(",", ";").replace("a;", "a,")),
        ("t.tsv", CSV.replace(",", "\t").replace("a\t", "a,")),
        ("t.jsonl", JSON),
        ("t.ndjson.gz", JSON),
        ("t.json", "\ufeff" + JSON),
        ("t.json.gz", "\ufeff" + JSON),
        ("t*[1].csv", CSV),
    ],
    ids=lambda value: value[:8],
)
def test_every_format_gives_the_same_rows(db: Database, tmp_path: Path, name: str, content: str) -> None:
    done = db.load("t", file(tmp_path, name, content))

    assert list(db.table("t").scan()) == [FULL, BARE]
    assert (done.table, done.rows, done.created) == ("t", 2, None)
    assert done.token.is_covered_by(db.store.incarnation, db.store.ends())


def test_parquet_gives_the_same_rows(db: Database, tmp_path: Path) -> None:
    db.table("t").put_many([FULL, BARE])
    pq.write_table(db.table("t").to_arrow(), tmp_path / "t.parquet")
    db.table("t").delete_many([1, 2])
    db.load("t", str(tmp_path / "t.parquet"))

    assert list(db.table("t").scan()) == [FULL, BARE]


def test_files_are_loaded_in_order_and_the_last_row_of_a_key_stays(db: Database, tmp_path: Path) -> None:
    one = file(tmp_path, "1.csv", "k,n,s\n1,1,a\n2,1,b\n1,2,c\n")
    two = file(tmp_path, "2.csv", "n,k\n5,2\n")
    assert db.load("t", one, two).rows == 4

    assert [(row["k"], row["n"], row["s"]) for row in db.table("t").scan()] == [(1, 2, "c"), (2, 5, "b")]


def test_empty_and_quoted_empty_differ_only_in_text(db: Database, tmp_path: Path) -> None:
    db.load("t", file(tmp_path, "t.csv", 'k,n,s,i\n1,1,,""\n2,1,"",\n3,1,NA, \n'))
    assert [(row["s"], row["i"]) for row in db.table("t").scan()] == [(None, None), ("", None), ("NA", None)]
    db.load("t", file(tmp_path, "t.csv", 'k,n,s,i\n1,1,,\n2,1,NA,NA\n3,1,"NA",3\n'), null="NA")
    assert [(row["s"], row["i"]) for row in db.table("t").scan()] == [("", None), (None, None), ("NA", 3)]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("i", "1.5"),
        ("i", "2147483648"),
        ("i", "1_000"),
        ("i", "x"),
        ("k", "9223372036854775808"),
        ("b", "maybe"),
        ("d", "1,5"),
        ("d", "1_0"),
        ("d", "1e400"),
        ("p", "1.234"),
        ("p", "123456789.00"),
        ("p", "1e2"),
        ("r", "0f0"),
        ("y", "2026-02-30"),
        ("y", "31.01.2026"),
        ("y", "2026-01-31 12:00:00"),
        ("z", "2026-01-31 25:00"),
        ("z", "2026-01-31 12:00:00.1234567"),
        ("n", "3000000000"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_value_that_does_not_fit_is_named_with_its_line_and_nothing_is_written(
    db: Database, tmp_path: Path, column: str, value: str, kind: str
) -> None:
    good: dict[str, object] = {"k": 1, "s": "two\nlines", "n": 1}
    rows = [good | {"k": number} for number in range(30)] + [good | {"k": 77, column: value}, good | {"k": 78}]
    if kind == "csv":
        names = list(dict.fromkeys([*good, column]))
        lines = [",".join(f'"{row.get(name, "")}"' for name in names) for row in rows]
        path, line = file(tmp_path, "t.csv", "\n".join([",".join(names), *lines[:10], "", *lines[10:]])), 2 + 60 + 1
    else:
        path, line = file(tmp_path, "t.jsonl", "\n".join(["", *map(json.dumps, rows)])), 32

    with pytest.raises(vk.BadRow) as caught:
        db.load("t", path)
    shown = db.table("t").schema.column(column).type
    assert caught.value.fact == f"{path}, line {line}: column {column} is {shown}, not {value!r}"
    assert list(db.table("t").scan()) == []


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "\n", "no column names"),
        ("t.csv", "k,,n\n", "line 1: column 2 has no name"),
        ("t.csv", "k,n,K\n", "two columns K"),
        ("t.csv", "s,n\na,1\n", "lacks the key column k"),
        ("t.csv", "k,n,x,Z2\n1,1,1,1\n", "columns that the table has not: x, Z2; .*ignore_unknown=True"),
        ("t.csv", "k,n\n1,1\n,2\n", "line 3: column k is NULL"),
        ("t.csv", 'k,n\n1,1\n"",2\n', "line 3: column k is NULL"),
        ("t.csv", "k,n\n1,1\n2,\n", "line 3: column n is NULL"),
        ("t.csv", 'k,n,s\n1,1,"x\ny"\n\n2,1\n', "line 5: 2 values for 3 columns"),
        ("t.csv", 'k,n,s\n1,1,"x\ny"\n2,1,a,b\n', "line 4: 4 values for 3 columns"),
        ("t.csv", 'k,n,s\n1,1,"x\ny"\n2,1,"a\n3,1,b\n', "line 4: a quote that does not end"),
        ("t.csv", 'k,n,s\n1,1,"x\ny"\n2,1,"a"b\n', "line 4: a quote where none may be"),
        ("t.csv", 'k,n,s\n1,1,"�\ny"\n2,1,'.encode() + b"\xff\xfe\n", "line 4: not UTF-8 text"),
        ("t.csv", "k,n\n1,1\n".encode("utf-16"), "line 1: not UTF-8 text"),
        ("t.csv", "k,n\n1,1\r\n2,1\n", "cannot be read as csv: .*lines end alike"),
        ("t.csv.gz", b"", "is empty|no column names"),
        ("t.txt", "k,n\n", "no suffix that names its format"),
        ("t.jsonl", '{"k": 1, "n": 1}\n\n{"k": \n', "line 3: not JSON"),
        ("t.jsonl", '{"k": 1, "n": 1}\n5\n', "line 2: not a JSON object"),
        (
            "t.jsonl",
            '\n{"k": 1, "n": ' + "[" * 200_000 + "]" * 200_000 + "}",
            "line 2: not JSON: it is nested too deeply",
        ),
        ("t.jsonl", '{"k": 1, "n": ' + "9" * 5_000 + "}\n", "line 1: column n is INT, not"),
        ("t.jsonl", b'{"k": 1, "n": 1}\n{"k": 2, "s": "\xff"}\n', "line 2: not UTF-8 text"),
        ("t.jsonl", '{"k": 1, "n": 1}\n{"n": 2}\n', "line 2: column k is NULL"),
        ("t.jsonl", '{"k": 1, "n": 1, "q": 1}\n', "columns that the table has not: q"),
        ("t.jsonl", "\n\n", "no names in it"),
        ("t.jsonl", '{"k": 1, "n": 1, "p": 1234567.890123456789}\n', "line 1: column p .*; .*a string keeps all"),
        ("t.parquet", "k,n\n", "cannot be read as parquet"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_told_in_a_line_and_nothing_is_written(
    db: Database, tmp_path: Path, name: str, content: str | bytes, fact: str
) -> None:
    with pytest.raises(vk.InputError, match=fact):
        db.load("t", file(tmp_path, name, content))
    assert list(db.table("t").scan()) == []


def test_what_is_no_gzip_no_file_or_a_directory_is_told(db: Database, tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(b"k,n\n")
    for path, fact in [("t.csv.gz", "not compressed by gzip"), ("no.csv", "there is no file"), ("", "is a directory")]:
        with pytest.raises(vk.InputError, match=fact):
            db.load("t", tmp_path / path)
    for bad in ({"format": "xml"}, {"delimiter": ";;"}, {"key": "k"}, {"create": True, "key": "k"}):
        with pytest.raises(vk.InputError):
            db.load("t", file(tmp_path, "t.csv", "k,n\n1,1\n"), **bad)
    with pytest.raises(vk.InputError, match="no file to load"):
        db.load("t")
    with pytest.raises(vk.UnknownName, match="create=True"):
        db.load("u", tmp_path / "t.csv")


def test_a_fault_in_the_last_file_leaves_the_first_unwritten(db: Database, tmp_path: Path) -> None:
    with pytest.raises(vk.BadRow, match="2.csv, line 2"):
        db.load("t", file(tmp_path, "1.csv", "k,n\n1,1\n"), file(tmp_path, "2.csv", "k,n\nx,1\n"))
    assert list(db.table("t").scan()) == []


def test_only_a_header_loads_nothing_and_unknown_columns_may_be_ignored(db: Database, tmp_path: Path) -> None:
    assert db.load("t", file(tmp_path, "t.csv", "k,n\n")).rows == 0
    assert db.load("t", file(tmp_path, "t.csv", "k,q,n\n1,x,2\n"), ignore_unknown=True).rows == 1
    assert db.table("t").get(1, columns=["k", "n"]) == {"k": 1, "n": 2}


def test_columns_that_the_file_lacks_keep_their_value(db: Database, tmp_path: Path) -> None:
    db.table("t").put(FULL)
    db.load("t", file(tmp_path, "t.csv", "k,i\n1,5\n"))

    assert db.table("t").get(1) == FULL | {"i": 5}


def test_many_rows_go_in_bounded_batches_in_order_and_are_counted(db: Database, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    lines = "".join(f"{number % 20_000},{number}\n" for number in range(50_000))
    done = db.load("t", file(tmp_path, "t.csv", "k,n\n" + lines), progress=lambda *counts: told.append(counts))

    assert done.rows == 50_000
    assert told[-1] == (50_000, 50_000) and len(told) >= 5
    assert db.table("t").get(5, columns=["n"]) == {"n": 40_005}


def test_a_fault_late_in_a_large_file_has_the_right_line(db: Database, tmp_path: Path) -> None:
    good = "".join(f'{number},1,"{"x" * 200}\n"\n' for number in range(60_000))
    for bad, fact in [("y,1,\n", "column k is BIGINT, not 'y'"), ("1,2\n", "2 values for 3 columns")]:
        with pytest.raises(vk.InputError, match=f"line 120002: {fact}"):
            db.load("t", file(tmp_path, "t.csv", "k,n,s\n" + good + bad + good))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", ""], "BIGINT"),
        (["1", "9223372036854775808"], "DECIMAL(19,0)"),
        (["1.5", "2", "-3.25"], "DECIMAL(18,2)"),
        (["12345678901234567.25"], "DECIMAL(19,2)"),
        (["0.123456789012"], "DOUBLE"),
        (["1e5", "1"], "DOUBLE"),
        (["1e5", "-.5", "NaN", "-Infinity", "0.30000000000000004", "5e-324", "1E22"], "DOUBLE"),
        (["1e5", "9007199254740992"], "DOUBLE"),
        (["1e5", "9007199254740993"], "STRING"),
        (["1e5", "12345678901234567890"], "STRING"),
        (["12e4567"], "STRING"),
        (["1e-400"], "STRING"),
        (["1e5", "0.1000000000000000055"], "STRING"),
        (["0.1000000000000000055", "2"], "DECIMAL(20,19)"),
        (["12345678901234567890", "12345678901234567891"], "DECIMAL(20,0)"),
        (["007", "12"], "STRING"),
        (["1" * 39], "STRING"),
        (["true", "FALSE"], "BOOLEAN"),
        (["2026-01-31", ""], "DATE"),
        (["2026-01-31", "2026-01-31T12:00:00Z"], "TIMESTAMP"),
        (["31/01/2026"], "STRING"),
        (["1", "x"], "STRING"),
        (["", ""], "STRING"),
        (["yes", "no"], "STRING"),
        (["00ff"], "STRING"),
    ],
    ids=str,
)
def test_a_type_is_inferred_from_all_values_and_keeps_every_digit(
    db: Database, tmp_path: Path, values: list[str], kind: str
) -> None:
    filler = [""] * (30_000 if kind == "DATE" else 3)  # once more than any sample
    lines = "".join(f"{number},{value}\n" for number, value in enumerate([*filler, *values]))
    done = db.load("u", file(tmp_path, "u.csv", "id,v\n" + lines), create=True, key="id")

    assert done.created == f"CREATE TABLE u (id BIGINT, v {kind}, PRIMARY KEY (id))"
    assert done.rows == len(filler) + len(values)


def test_json_says_what_is_a_number_and_what_is_text(db: Database, tmp_path: Path) -> None:
    rows = [
        {"id": "1", "n": 1, "text": "1", "price": 1.25, "more": {"a": [1]}, "when": "2026-01-31"},
        {"late": True, "id": "2"},
    ]
    done = db.load("u", file(tmp_path, "u.jsonl", "\n".join(map(json.dumps, rows))), create=True, key=("ID",))

    assert done.created == (
        "CREATE TABLE u (id STRING, n BIGINT, `text` STRING, price DECIMAL(18,2), more STRING, `when` DATE, late BOOLEAN, "
        "PRIMARY KEY (id))"
    )
    assert db.table("u").get("1", columns=["more", "late"]) == {"more": '{"a":[1]}', "late": None}


def test_parquet_types_have_a_place_or_are_refused(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "u.parquet"
    columns = "1::UTINYINT a, 2::UINTEGER b, 3::UBIGINT c, 0.5::FLOAT e, uuid() f, TIME '12:00' g, 'x' h, 'x'::BLOB i"
    columns += ", TIMESTAMPTZ '2026-01-01 00:00:00+02' j, 1.5::DECIMAL(4,1) k, DATE '2026-01-01' l, true m"
    duckdb.sql(f"SELECT {columns}").write_parquet(str(path))
    done = db.load("u", path, create=True, key=["a", "b"])

    assert done.created == (
        "CREATE TABLE u (a INT, b BIGINT, c DECIMAL(20,0), e DOUBLE, f STRING, g STRING, h STRING, i BINARY, j TIMESTAMP, "
        "k DECIMAL(4,1), l DATE, m BOOLEAN, PRIMARY KEY (a, b))"
    )
    assert db.table("u").get(1, 2, columns=["g", "j"])["j"] == dt.datetime(2025, 12, 31, 22, tzinfo=dt.UTC)
    duckdb.sql("SELECT 1 AS id, [1] AS many").write_parquet(str(path))
    with pytest.raises(vk.UnsupportedSql, match=r"column many of .* is INTEGER\[\]"):
        db.load("w", path, create=True, key="id")


def test_a_parquet_value_that_does_not_fit_is_told_and_text_in_it_is_read(db: Database, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "n": ["5", "x"]}), tmp_path / "t.parquet")
    with pytest.raises(vk.BadRow, match="row 2: column n is INT, not 'x'"):
        db.load("t", tmp_path / "t.parquet")
    pq.write_table(pa.table({"k": [1, 2], "n": [5, 2**40]}), tmp_path / "t.parquet")
    with pytest.raises(vk.BadRow, match="rows 1 to 2: column n is INT"):
        db.load("t", tmp_path / "t.parquet")
    pq.write_table(pa.table({"k": [1, None], "n": [5, 6]}), tmp_path / "t.parquet")
    with pytest.raises(vk.BadRow, match="row 2: column k is NULL"):
        db.load("t", tmp_path / "t.parquet")
    assert list(db.table("t").scan()) == []


@pytest.mark.parametrize(
    ("content", "options", "fact"),
    [
        ("id,v\n1,2\n", {}, "needs a key"),
        ("id,v\n1,2\n", {"key": "nope"}, "no key column nope"),
        ("id,v\n1,2\n,3\n", {"key": "id"}, "line 3: column id is NULL"),
        ("id,\u20ac\n1,2\n", {"key": "id"}, "u.csv: '\u20ac' cannot be the name of a column; rename"),
        ("id,a b,a-b\n1,2,3\n", {"key": "id"}, "'a b' and 'a-b', which are both a_b in SQL"),
        ("id,v\n1,2\n1\n", {"key": "id"}, "line 3: 1 values"),
        ("id,v\n1,2\n", {"key": "id", "ignore_unknown": True}, "leave ignore_unknown out"),
    ],
)
def test_a_table_that_cannot_be_made_is_not_made(
    db: Database, tmp_path: Path, content: str, options: dict, fact: str
) -> None:
    with pytest.raises(vk.InputError, match=fact):
        db.load("u", file(tmp_path, "u.csv", content), create=True, **options)
    assert [table.name for table in db.catalog().tables] == ["t"]


def test_the_types_of_several_files_are_widened(db: Database, tmp_path: Path) -> None:
    one = file(tmp_path, "1.csv", "id,a,b,c,d\n1,1,1.5,2026-01-31,\n")
    two = file(tmp_path, "2.csv", "ID,a,b,c,e\n2,2.25,1e9,2026-01-31 12:00,x\n")
    done = db.load("u", one, two, create=True, key="id")

    columns = "id BIGINT, a DECIMAL(18,2), b DOUBLE, c TIMESTAMP, d STRING, e STRING"
    assert done.created == f"CREATE TABLE u ({columns}, PRIMARY KEY (id))"
    assert [row["a"] for row in db.table("u").scan()] == [Decimal("1.00"), Decimal("2.25")]


def test_a_double_is_never_chosen_as_a_key(db: Database, tmp_path: Path) -> None:
    numbers = ["1E1", "10", "10E0", "9007199254740993", "9007199254740992"]
    done = db.load(
        "u", file(tmp_path, "u.csv", "id,v\n" + "".join(f"{n},{n}\n" for n in numbers)), create=True, key="id"
    )

    assert done.created == "CREATE TABLE u (id STRING, v STRING, PRIMARY KEY (id))"
    assert sorted(row["id"] for row in db.table("u").scan()) == sorted(numbers)


def test_what_one_file_cannot_keep_as_a_double_is_not_one_in_any(db: Database, tmp_path: Path) -> None:
    one = file(tmp_path, "1.csv", "id,a,b\n1,9007199254740993,7\n")
    two = file(tmp_path, "2.csv", "id,a,b\n2,1e5,1e5\n")

    assert "a STRING, b DOUBLE" in str(db.load("u", one, two, create=True, key="id").created)
    assert [row["a"] for row in db.table("u").scan()] == ["9007199254740993", "1e5"]


REPEATED = "a,b,v\n1,x,1\n2,x,2\n01,y,3\n1.0,x,4\n2,x,5\n"


def test_a_key_that_is_not_unique_makes_no_table_unless_the_last_row_is_to_win(db: Database, tmp_path: Path) -> None:
    path = file(tmp_path, "u.csv", REPEATED.replace("01", "3"))
    fact = rf"2 of 5 rows have the key of a row before them: {path}, line 2 and {path}, line 5 are both a=1.0, b=x"
    with pytest.raises(vk.BadRow, match=fact) as caught:
        db.load("u", path, create=True, key=("a", "b"))
    assert "last_wins=True" in str(caught.value.hint)
    assert [table.name for table in db.catalog().tables] == ["t"]

    done = db.load("u", path, create=True, key=("a", "b"), last_wins=True)
    assert (done.rows, done.added, done.replaced) == (5, 3, 2)
    assert [row["v"] for row in db.table("u").scan()] == [4, 5, 3]


def test_a_repeated_key_is_found_across_files_and_far_apart(db: Database, tmp_path: Path) -> None:
    lines = [f'{number},"x\ny"\n' for number in range(60_000)]
    one = file(tmp_path, "1.csv", "id,v\n" + "".join(lines))
    two = file(tmp_path, "2.jsonl", '{"id": 60000}\n\n{"id": 59999, "v": "z"}\n')
    with pytest.raises(
        vk.BadRow, match=rf"1 of 60,002 rows .*: {one}, line 120000 and {two}, line 3 are both id=59999"
    ):
        db.load("u", one, two, create=True, key="id")
    pq.write_table(pa.table({"id": [1, 2, 1]}), tmp_path / "3.parquet")
    with pytest.raises(vk.BadRow, match=r"3.parquet, row 1 and .*3.parquet, row 3 are both id=1"):
        db.load("u", tmp_path / "3.parquet", create=True, key="id")


def test_rows_and_what_they_replaced_are_counted(db: Database, tmp_path: Path) -> None:
    done = db.load("t", file(tmp_path, "1.csv", "k,n\n1,1\n2,1\n1,2\n"))
    assert (done.rows, done.added, done.replaced) == (3, 2, 1)
    done = db.load("t", file(tmp_path, "2.csv", "k,n\n1,1\n3,1\n"))
    assert (done.rows, done.added, done.replaced) == (2, 1, 1)


def test_a_load_that_made_its_table_can_be_done_again_and_other_columns_are_refused(
    db: Database, tmp_path: Path
) -> None:
    path = file(tmp_path, "u.csv", "id,v\n1,2\n2,3\n")
    assert db.load("u", path, create=True, key="id").created is not None
    done = db.load("u", path, create=True, key="id")
    assert (done.created, done.rows, done.added, done.replaced) == (None, 2, 0, 2)
    for content, key in [("id,v\n1,x\n", "id"), ("id,v\n1,2\n", ("id", "v")), ("id\n1\n", "id")]:
        with pytest.raises(vk.DuplicateName, match="u is there already, with other columns; leave create out"):
            db.load("u", file(tmp_path, "other.csv", content), create=True, key=key)
    assert sum(1 for _ in db.table("u").scan()) == 2


def test_a_session_knows_what_a_load_wrote_before_it_was_interrupted(db: Database, tmp_path: Path) -> None:
    def stop(written: int, total: int) -> None:
        raise KeyboardInterrupt

    lines = "".join(f"{number},1\n" for number in range(25_000))
    with db.session() as session, pytest.raises(KeyboardInterrupt):
        db.load("t", file(tmp_path, "t.csv", "k,n\n" + lines), session=session, progress=stop)
    assert session.token.positions == {stream: at for stream, at in db.store.ends().items() if at}
    assert session.token.positions


def test_names_that_sql_does_not_take_are_spelled_so_that_it_does(db: Database, tmp_path: Path) -> None:
    path = file(tmp_path, "u.csv", '"Order Id",2nd price (EUR), plain\n1,2.5,x\n')
    done = db.load("u", path, create=True, key="order id")
    assert (
        done.created
        == "CREATE TABLE u (Order_Id BIGINT, _2nd_price_EUR DECIMAL(18,1), plain STRING, PRIMARY KEY (Order_Id))"
    )
    db.load("u", file(tmp_path, "u.jsonl", '{"order id": 2, "2nd price (EUR)": 3.5}\n'))
    assert [row["_2nd_price_EUR"] for row in db.table("u").scan()] == [Decimal("2.5"), Decimal("3.5")]


@pytest.mark.parametrize("null", ["NA", "NULL", "\\N"])
def test_null_is_guessed_when_asked_where_it_stands_among_numbers(db: Database, tmp_path: Path, null: str) -> None:
    path = file(tmp_path, "u.csv", f'id,n,day,s\n1,{null},2026-01-31,{null}\n2,5,{null},"{null}"\n3,,,\n')
    done = db.load("u", path, create=True, key="id", guess_null=True)
    assert "n BIGINT, day DATE, s STRING" in str(done.created)
    assert done.nulls == (null,)
    rows = [(row["n"], row["s"]) for row in db.table("u").scan()]
    assert rows == [(None, None), (5, null), (None, None)]
    with pytest.raises(vk.InputError, match="not both"):
        db.load("u", path, null="x", guess_null=True)


def test_among_texts_na_is_a_text_and_among_numbers_the_hint_names_the_option(db: Database, tmp_path: Path) -> None:
    path = file(tmp_path, "u.csv", "id,country\nDE,Germany\nNA,Namibia\n")
    assert db.load("u", path, create=True, key="id", guess_null=True).nulls == ()
    assert db.table("u").get("NA") == {"id": "NA", "country": "Namibia"}
    with pytest.raises(vk.BadRow, match="line 3: column i is INT, not 'NA'") as caught:
        db.load("t", file(tmp_path, "t.csv", "k,n,i\n1,1,1\n2,2,NA\n"))
    assert 'null="NA" reads it as NULL' in str(caught.value.hint)


def test_a_zip_with_one_file_is_read_and_another_is_told(db: Database, tmp_path: Path) -> None:
    def packed(name: str, contents: dict[str, str]) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.mkdir("folder")
            for member, content in contents.items():
                archive.writestr(member, content)
        return tmp_path / name

    assert db.load("t", packed("one.zip", {"folder/t.csv": "\ufeffk,n\n1,1\n"})).rows == 1
    assert db.load("t", packed("one.csv.zip", {"t.jsonl": "\ufeff" + '{"k": 2, "n": 1}\n'})).rows == 1
    with pytest.raises(vk.BadRow, match=r"folder/t.csv in .*bad.zip, line 3: column n is INT, not 'x'"):
        db.load("t", packed("bad.zip", {"folder/t.csv": "k,n\n1,1\n2,x\n"}))
    with pytest.raises(vk.InputError, match=r"two.zip holds 2 files: a.csv, b.csv; unzip it"):
        db.load("t", packed("two.zip", {"a.csv": "k,n\n1,1\n", "b.csv": "k,n\n"}))
    with pytest.raises(vk.InputError, match="cannot be unzipped"):
        db.load("t", file(tmp_path, "no.zip", "k,n\n1,1\n"))
    with pytest.raises(vk.InputError, match="no suffix that names its format"):
        db.load("t", packed("what.zip", {"t": "k,n\n1,1\n"}))
    assert [row["k"] for row in db.table("t").scan()] == [1, 2]
