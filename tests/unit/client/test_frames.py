"""DataFrames: what a pandas user reads and writes, with no digit lost on the way."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.running import keep_up

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

BIG = 2**60 + 1  # a float would lose its last digit
DTYPES = {
    "k": "Int64",
    "i": "Int32",
    "b": "boolean",
    "d": "Float64",
    "p": "object",
    "s": "string",
    "r": "object",
    "y": "object",
    "z": "datetime64[us, UTC]",
}


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database = vk.connect(f"embedded:{tmp_path / 'store'}?sync=off")
    database.execute(
        "CREATE TABLE t (k BIGINT PRIMARY KEY, i INT, b BOOLEAN, d DOUBLE, p DECIMAL(10,2), s STRING, r BINARY, "
        "y DATE, z TIMESTAMP); CREATE MATERIALIZED VIEW v AS SELECT k, i, p, z FROM t"
    )
    return database


def fill(db: Database) -> None:
    db.table("t").put(1, {})
    moment = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
    full = {"i": 3, "b": True, "d": 0.5, "p": Decimal("1.50"), "s": "", "r": b"\0", "y": dt.date(9999, 1, 1)}
    db.table("t").put(BIG, full | {"z": moment})


def test_a_dtype_follows_from_the_type_and_not_from_the_values(db: Database) -> None:
    assert {name: str(dtype) for name, dtype in db.table("t").to_pandas().dtypes.items()} == DTYPES
    fill(db)
    frame = db.table("t").to_pandas()

    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == DTYPES
    assert frame["k"].tolist() == [1, BIG]
    assert frame["p"].tolist() == [None, Decimal("1.50")]
    assert frame["y"].tolist() == [None, dt.date(9999, 1, 1)]
    assert frame["z"][1].to_pydatetime() == dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
    assert frame.iloc[0].isna().sum() == 8


def test_views_snapshots_and_sessions_give_frames_too(db: Database) -> None:
    fill(db)
    keep_up(db)

    with db.snapshot() as snapshot, db.session() as session:
        for view in (db.view("v"), snapshot.view("v"), session.view("v")):
            frame = view.to_pandas()
            assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {n: DTYPES[n] for n in "kipz"}
            assert frame["i"].tolist() == [pd.NA, 3]
    assert db.view("v").to_pandas(BIG)["k"].tolist() == [BIG]
    assert db.table("t").to_pandas(start=2)["k"].tolist() == [BIG]
    assert db.execute("SELECT k FROM t ORDER BY k").to_pandas()["k"].tolist() == [1, BIG]


@pytest.mark.parametrize("indexed", [False, True])
def test_what_to_pandas_gives_put_many_takes_back(db: Database, indexed: bool) -> None:
    fill(db)
    rows, frame = list(db.table("t").scan()), db.table("t").to_pandas()
    db.table("t").delete_many([1, BIG])
    db.table("t").put_many(frame.set_index("k") if indexed else frame)

    assert list(db.table("t").scan()) == rows


def test_an_index_without_a_name_is_not_a_column(db: Database) -> None:
    frame = pd.DataFrame({"k": [1, 2, 3], "s": ["a", "b", None]})
    db.table("t").put_many(frame[frame["k"] > 1])

    assert [(row["k"], row["s"]) for row in db.table("t").scan()] == [(2, "b"), (3, None)]


@pytest.mark.parametrize(
    ("columns", "fact"),
    [
        ({"k": [1, 2], "i": [1, None]}, r'column i is INT: it is double; .*astype\("Int32"\)'),
        ({"k": [1, 2], "i": [1, "x"]}, "cannot be read as columns"),
        ({"k": [1], "nope": [1]}, "no column nope"),
        ({"k": [1.0, None]}, "column k is BIGINT: it is double"),
    ],
)
def test_a_frame_that_does_not_fit_writes_nothing(db: Database, columns: dict[str, list], fact: str) -> None:
    with pytest.raises(vk.InputError, match=fact):
        db.table("t").put_many(pd.DataFrame(columns))
    assert list(db.table("t").scan()) == []


def test_other_things_that_speak_arrow_are_taken(db: Database) -> None:
    class Speaks:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"k": [7]}).__arrow_c_stream__(requested_schema)

    db.table("t").put_many(Speaks())

    assert db.table("t").get(7, columns=["k"]) == {"k": 7}


def test_without_pandas_the_error_names_what_to_install(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(vk.StoreError, match=r"not installed; pip install 'viewkeeper\[pandas\]'"):
        db.table("t").to_pandas()
    db.table("t").put_many([{"k": 1}])
