"""Top-n: the first rows of an order under their ranks, whatever comes, changes and goes."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewkeeper as vk
from tests.support.dump import dump, written_by
from tests.support.plans import nodes_of
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, SqlType
from viewkeeper.model.varbinary import join
from viewkeeper.operators.topn import _ordered
from viewkeeper.plan.nodes import TopNode


def make(path: Path, kind: str, order: str, limit: int = 3, *, key: str = "k") -> vk.Database:
    db = vk.connect(f"embedded:{path / 's'}?sync=off")
    db.execute(f"CREATE TABLE t (k STRING PRIMARY KEY, x {kind}, y INT)")
    db.execute(f"CREATE MATERIALIZED VIEW top AS SELECT {key}, x FROM t ORDER BY {order} LIMIT {limit}")
    return db


def put(db: vk.Database, rows: dict[str, object]) -> None:
    for key, value in rows.items():
        db.table("t").put(key, {"x": value})
    keep_up(db)


def keys(db: vk.Database) -> list[str]:
    """The keys of the rows shown, in the order of a scan."""
    return [row["k"] for row in db.view("top").scan()]


ROWS = {"a": 5, "b": None, "c": -3, "d": 0, "e": None, "f": 7, "g": 5}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("x", "be cdagf"),  # as in Spark: NULL is the smallest
        ("x ASC NULLS LAST", "cdagf be"),
        ("x DESC", "fagdc be"),
        ("x DESC NULLS FIRST", "be fagdc"),
        ("x DESC NULLS LAST", "fagdc be"),
        ("x NULLS FIRST", "be cdagf"),
    ],
)
def test_the_order_is_the_one_asked_for(tmp_path: Path, order: str, expected: str) -> None:
    db = make(tmp_path, "INT", order, limit=10)
    put(db, ROWS)
    assert "".join(keys(db)) == expected.replace(" ", "")
    db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW top AS SELECT k, x FROM t ORDER BY {order} LIMIT 4")
    keep_up(db)

    assert "".join(keys(db)) == expected.replace(" ", "")[:4]


def test_ranks_are_the_key_and_count_from_1_in_scan_order(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x DESC")
    put(db, ROWS)
    view = db.view("top")
    columns = db.execute("DESCRIBE top").rows

    assert [view.get(rank) for rank in (1, 2, 3, 4)] == [
        {"k": "f", "x": 7},
        {"k": "a", "x": 5},
        {"k": "g", "x": 5},
        None,
    ]
    assert list(view.scan()) == [view.get(rank) for rank in (1, 2, 3)]
    assert list(view.scan(reverse=True, limit=1)) == [view.get(3)]
    assert [row["k"] for row in view.scan(start=2)] == ["a", "g"]
    assert ("rank", "INT", False, "1, not shown") in columns


def test_a_hundred_ranks_stand_in_the_order_of_numbers(tmp_path: Path) -> None:
    """The rank is a number in the key, not a text: 10 stands behind 9; and records of all partitions are merged."""
    db = make(tmp_path, "INT", "x", limit=100)
    db.table("t").put_many([{"k": f"k{number}", "x": number * 37 % 200} for number in range(200)])
    keep_up(db)

    assert [row["x"] for row in db.view("top").scan()] == list(range(100))


def test_ties_stand_in_the_order_of_their_row_keys_and_stay_there(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x", limit=3)
    put(db, {"d": 1, "b": 1, "c": 1})
    assert keys(db) == ["b", "c", "d"]
    put(db, {"a": 1, "e": 1})
    assert keys(db) == ["a", "b", "c"]
    db.table("t").put("c", {"y": 9})  # a column that is not shown: nothing moves, nothing is written to the ranks
    keep_up(db)

    assert keys(db) == ["a", "b", "c"]
    assert db.catalog().view("top").id not in {table for table, _, _ in written_by(db.store, db.epoch)}


def test_ties_of_a_descending_order_stand_in_the_ascending_order_of_keys(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x DESC", limit=4)
    put(db, {"b": 1, "a": 1, "d": 2, "c": 2, "e": 0})

    assert keys(db) == ["c", "d", "a", "b"]


def test_fewer_rows_than_the_limit_are_all_there(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x", limit=5)
    keep_up(db)
    assert keys(db) == []
    put(db, {"b": 2, "a": 9})
    assert keys(db) == ["b", "a"]
    db.table("t").delete("b")
    keep_up(db)
    assert keys(db) == ["a"]
    db.table("t").delete("a")
    keep_up(db)

    assert keys(db) == []


def test_rows_that_leave_the_top_bring_up_the_next(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x")
    put(db, {name: number for number, name in enumerate("abcdefgh")})
    for gone, left in (("a", "bcd"), ("cd", "bef"), ("befg", "h")):
        for key in gone:
            db.table("t").delete(key)
        keep_up(db)
        assert keys(db) == list(left)
    put(db, {"z": -1})

    assert keys(db) == ["z", "h"]


def test_a_row_that_moves_past_the_end_lets_the_next_one_in(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x")
    put(db, {name: number for number, name in enumerate("abcdef")})
    put(db, {"b": 100, "a": 1})  # one leaves, one moves within
    assert keys(db) == ["a", "c", "d"]
    put(db, {"b": 0})

    assert keys(db) == ["b", "a", "c"]


def test_all_that_was_first_goes_and_all_that_comes_is_behind_what_stays(tmp_path: Path) -> None:
    """As many as went are read behind the limit, so what comes up is known, however late what came stands."""
    db = make(tmp_path, "INT", "x", limit=2)
    put(db, {f"k{number}": number for number in range(9)})
    for key in ("k0", "k1", "k3"):
        db.table("t").delete(key)
    put(db, {"k2": 90, "new": 91})

    assert keys(db) == ["k4", "k5"]


def test_only_ranks_that_hold_another_row_are_written(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x", limit=5)
    put(db, {name: 10 * number for number, name in enumerate("abcdef")})
    put(db, {"z": 25})  # rank 4; those before it stay
    view = db.catalog().view("top").node.table
    assert len([table for table, _, _ in written_by(db.store, db.epoch) if table == view]) == 2
    put(db, {"far": 1_000})

    assert [table for table, _, _ in written_by(db.store, db.epoch) if table == view] == []


DAYS = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)]
INSTANTS = [datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (1, 1969, 1970, 9999)]
SORTED_VALUES: dict[str, list] = {
    "INT": [-(2**31), -256, -1, 0, 1, 255, 256, 2**31 - 1],
    "BIGINT": [-(2**63), -(2**32), -1, 0, 2**32, 2**63 - 1],
    "DOUBLE": [-math.inf, -1e300, -1.5, -5e-324, 0.0, 5e-324, 1.5, 1e300, math.inf, math.nan],
    "DECIMAL(20,3)": [Decimal("-99999999999999999.999"), Decimal("-0.001"), Decimal(0), Decimal("0.001"), Decimal(10)],
    "STRING": ["", "\x00", "\x00\x00", "\x00a", "a", "a\x00", "a\x00b", "aa", "ab", "b", "é", "日", "😀"],
    "BINARY": [b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\x01", b"a", b"a\x00", b"\xff", b"\xff\x00", b"\xff\xff"],
    "DATE": DAYS,
    "TIMESTAMP": INSTANTS,
    "BOOLEAN": [False, True],
}


@pytest.mark.parametrize("direction", ["", " DESC"])
@pytest.mark.parametrize("kind", SORTED_VALUES)
def test_values_of_every_type_stand_in_their_order(tmp_path: Path, kind: str, direction: str) -> None:
    values = SORTED_VALUES[kind]
    db = make(tmp_path, kind, f"x{direction}", limit=len(values))
    names = [f"k{number:02}" for number in range(len(values))]
    shuffled = random.Random(1).sample(list(zip(names, values, strict=True)), len(values))
    put(db, dict(shuffled))

    assert keys(db) == (names[::-1] if direction else names)


def test_negative_zero_is_zero_and_nan_is_one_value_beyond_infinity(tmp_path: Path) -> None:
    db = make(tmp_path, "DOUBLE", "x DESC", limit=10)
    put(db, {"d": 0.0, "c": -0.0, "b": 0.0, "n": math.nan, "m": -math.nan, "i": math.inf, "s": -5e-324, "a": -0.0})

    assert "".join(keys(db)) == "mniabcds"


def test_an_order_of_several_parts_goes_from_the_first_on(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (a STRING, b INT, c STRING, PRIMARY KEY (b, a))")
    db.execute(
        "CREATE MATERIALIZED VIEW top AS SELECT a, b, c FROM t ORDER BY c DESC NULLS FIRST, b + 1, a DESC LIMIT 20"
    )
    rows = [(a, b, c) for a in ("x", "y") for b in (-1, 2) for c in (None, "", "p", "pq")]
    rows = [(f"{a}{number}", b, c) for number, (a, b, c) in enumerate(rows)]
    db.table("t").put_many([dict(zip("abc", row, strict=True)) for row in rows])
    keep_up(db)
    expected = sorted(rows, key=lambda row: row[0], reverse=True)
    expected = sorted(expected, key=lambda row: row[1])
    expected = sorted(expected, key=lambda row: (row[2] is None, row[2] or ""), reverse=True)

    assert [tuple(row.values()) for row in db.view("top").scan()] == expected


def test_a_row_whose_order_cannot_be_computed_is_set_aside(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x + 1")
    put(db, {"a": 2**31 - 1, "b": 5})
    assert keys(db) == ["b"]
    (status,) = db.status().views
    assert status.set_aside.keys == (("a",),)
    put(db, {"a": 4})

    assert keys(db) == ["a", "b"]
    assert db.status().views[0].set_aside.count == 0


def test_a_top_of_groups_follows_its_groups(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, x STRING, y INT)")
    db.execute(
        "CREATE MATERIALIZED VIEW top AS SELECT x, SUM(y) AS s FROM t GROUP BY x ORDER BY SUM(y) DESC, x LIMIT 2"
    )
    table = db.table("t")
    table.put_many([{"k": f"{x}{y}", "x": x, "y": y} for x, y in (("a", 1), ("a", 2), ("b", 5), ("c", 4), (None, 9))])
    keep_up(db)
    assert [tuple(row.values()) for row in db.view("top").scan()] == [(None, 9), ("b", 5)]
    table.delete("None9")
    table.put("a9", {"x": "a", "y": 9})
    keep_up(db)

    assert [tuple(row.values()) for row in db.view("top").scan()] == [("a", 12), ("b", 5)]


@pytest.mark.parametrize("order", ["x DESC, k", "x NULLS LAST, y DESC"])
def test_any_history_shows_what_sorting_all_rows_shows(tmp_path: Path, order: str) -> None:
    source, model = random.Random(order), {}
    db = make(tmp_path, "INT", order, limit=4)
    for managers in (1, 3, 1, 2, 1):
        for _ in range(source.choice([1, 6])):
            key = f"k{source.randrange(12)}"
            if source.random() < 0.4:
                model.pop(key, None)
                db.table("t").delete(key)
            else:
                model[key] = source.choice([None, -1, 0, 1, 2]), source.choice([None, 0, 1])
                db.table("t").put(key, dict(zip("xy", model[key], strict=True)))
        runner = ManagersRunner(db.store, managers)
        with pytest.raises(Interrupted):
            db.table("t").put("k0", {"y": managers})
            model["k0"] = model.get("k0", (None, None))[0], managers
            Coordinator(db.store, RunThenDie(runner)).catch_up()
        written = dump(db.store)
        Coordinator(db.store, HereRunner(db.store)).catch_up()
        assert dump(db.store) == written

        def place(key: str) -> tuple:
            x, y = model[key]
            if order == "x DESC, k":
                return (x is None, -(x or 0), key)
            return (x is None, x or 0, y is None, -(y or 0), key)

        assert keys(db) == sorted(model, key=place)[:4]


def test_only_the_first_entries_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = make(tmp_path, "INT", "x", limit=2)
    db.table("t").put_many([{"k": f"k{number:04}", "x": number} for number in range(1_000)])
    keep_up(db)
    for number in range(10):  # tombstones at the head
        db.table("t").delete(f"k{number:04}")
    keep_up(db)
    store, read = type(db.store), []
    scan = store.scan_prefixes

    def followed(*arguments: object, **named: object) -> object:
        for batch in scan(*arguments, **named):
            read.append(len(batch))
            yield batch

    monkeypatch.setattr(store, "scan_prefixes", followed)
    db.table("t").delete("k0500")
    db.table("t").put("k0600", {"x": 0})
    keep_up(db)

    assert keys(db) == ["k0600", "k0010"]
    assert sum(read) <= 2 * (2 + 2)  # the limit and the two that went, in batches of so many


def test_a_limit_of_one_record_is_kept_under_rank_1(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x DESC", limit=1)
    put(db, {"a": 1, "b": 2})
    node = nodes_of(db.catalog(), "top")[0]
    assert isinstance(node, TopNode)

    assert (node.limit, db.view("top").get(1)) == (1, {"k": "b", "x": 2})


def _key_of_double(value: float) -> tuple:
    return (1, 0.0) if math.isnan(value) else (0, value)


def _same(value: object) -> object:
    return value


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.text("\x00a\x01", max_size=6)
ORDERED: dict[str, tuple[SqlType, st.SearchStrategy, Callable]] = {
    "INT": (INT, st.integers(-(2**31), 2**31 - 1), _same),
    "BIGINT": (BIGINT, st.integers(-(2**63), 2**63 - 1), _same),
    "DOUBLE": (DOUBLE, st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.nan]), _key_of_double),
    "DECIMAL": (SqlType("DECIMAL", 12, 2), st.decimals(-(10**9), 10**9, places=2), _same),
    "STRING": (STRING, TEXTS, lambda text: text.encode()),
    "BINARY": (BINARY, st.binary(max_size=6) | TEXTS.map(str.encode), _same),
    "DATE": (DATE, st.dates(), _same),
    "TIMESTAMP": (TIMESTAMP, st.datetimes(), _same),
    "BOOLEAN": (BOOLEAN, st.booleans(), _same),
}


@pytest.mark.parametrize("kind", ORDERED)
@given(data=st.data(), descending=st.booleans(), nulls_first=st.booleans())
def test_the_bytes_of_an_order_sort_as_the_values_do(
    kind: str, data: st.DataObject, descending: bool, nulls_first: bool
) -> None:
    """Followed by a second part: a value's bytes must end where it ends, or the next part would change the order."""
    of, values, key = ORDERED[kind]
    rows = data.draw(st.lists(st.tuples(st.none() | values, st.integers(-2, 2)), max_size=12))
    first = _ordered(
        Column("o", of),
        pa.chunked_array([[x for x, _ in rows]], of.arrow),
        descending=descending,
        nulls_first=nulls_first,
    )
    second = _ordered(
        Column("p", INT), pa.chunked_array([[y for _, y in rows]], pa.int32()), descending=False, nulls_first=True
    )
    encoded = join([*first, *second]).to_arrow().to_pylist() if rows else []
    there = sorted({key(x) for x, _ in rows if x is not None}, reverse=descending)
    ranks = {value: number + 1 for number, value in enumerate(there)}

    def place(row: tuple) -> tuple:
        null = 0 if nulls_first else len(there) + 1
        return (null if row[0] is None else ranks[key(row[0])], row[1])

    by_value = sorted(range(len(rows)), key=lambda number: place(rows[number]))
    by_bytes = sorted(range(len(rows)), key=lambda number: encoded[number])
    assert by_bytes == by_value
    for one in range(len(rows)):
        for other in range(len(rows)):
            assert (encoded[one] == encoded[other]) == (place(rows[one]) == place(rows[other]))


def test_what_reads_the_top_is_told_of_its_ranks_alone(tmp_path: Path) -> None:
    db = make(tmp_path, "INT", "x", limit=3)
    db.execute(
        "CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS n, SUM(x) AS s, MAX(k) AS last "
        "FROM (SELECT k, x FROM t ORDER BY x LIMIT 3) q"
    )
    put(db, {name: number for number, name in enumerate("abcdefgh")})
    assert db.view("total").get() == {"n": 3, "s": 0 + 1 + 2, "last": "c"}
    db.table("t").delete("a")
    put(db, {"c": 50, "h": 1})
    assert db.view("total").get() == {"n": 3, "s": 1 + 1 + 3, "last": "h"}
    for key in "bdefgh":
        db.table("t").delete(key)
    keep_up(db)

    assert db.view("total").get() == {"n": 1, "s": 50, "last": "c"}
