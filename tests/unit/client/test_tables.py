"""Tables: put, get, delete and scan, by every way in and with every mistake."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from viewkeeper.client import bulk_writes
from viewkeeper.stores.local.node import Node


@pytest.fixture(params=[1, 3], ids=["one node", "three nodes"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&nodes={request.param}")
    db.execute("CREATE TABLE t (A STRING, b INT, x STRING, y BIGINT, d DECIMAL(6,2), PRIMARY KEY (A, b))")
    return db


def row(a: str, b: int, x: str | None = None, y: int | None = None, d: object = None) -> dict[str, object]:
    return {"A": a, "b": b, "x": x, "y": y, "d": d}


def test_a_row_is_there_from_its_first_put_to_its_delete(db: vk.Database) -> None:
    table = db.table("T")
    assert table.get("a", 1) is None
    table.put("a", 1, {})
    assert table.get("a", 1) == row("a", 1)
    table.put("a", 1, {"X": "x", "y": 5})
    table.put("a", 1, {"y": None, "d": 2})
    assert table.get("a", 1) == row("a", 1, "x", None, Decimal("2.00"))
    table.delete("a", 1, columns=["X"])
    assert table.get("a", 1, columns=["d", "X"]) == {"d": Decimal("2.00"), "x": None}
    table.delete("a", 1)
    assert table.get("a", 1) is None
    table.delete("a", 1, columns=["x"])
    table.put("a", 1, {"y": 1})
    assert table.get("a", 1) == row("a", 1, None, 1)  # nothing of the old row came back


def test_the_key_may_stand_before_or_inside_the_columns(db: vk.Database) -> None:
    table = db.table("t")
    table.put({"a": "k", "B": 1, "x": "in"})
    table.put("k", 1, {"A": "k", "y": 7})

    assert table.get("k", 1) == row("k", 1, "in", 7)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("a", 1), vk.InputError),
        ((), vk.InputError),
        (("a", {"x": "1"}), vk.InputError),
        (("a", 1, 2, {"x": "1"}), vk.InputError),
        (({"a": "k", "x": "1"},), vk.BadRow),
        (("a", None, {}), vk.BadRow),
        ((1, 1, {}), vk.BadRow),
        (("a", 1, {"nope": 1}), vk.UnknownName),
        (("a", 1, {"y": "1"}), vk.BadRow),
        (("a", 1, {"d": Decimal("1.234")}), vk.BadRow),
        (("a", 1, {"A": "other"}), vk.BadRow),
        (("a", 1, {1: 1}), vk.InputError),
    ],
)
def test_a_put_that_does_not_fit_is_refused_and_writes_nothing(db: vk.Database, arguments: tuple, error: type) -> None:
    with pytest.raises(error):
        db.table("t").put(*arguments)
    assert list(db.table("t").scan()) == []
    assert set(db.store.ends().values()) == {0}


def test_a_column_of_the_key_is_not_deleted(db: vk.Database) -> None:
    with pytest.raises(vk.BadRow, match="key column"):
        db.table("t").delete("a", 1, columns=["a"])
    with pytest.raises(vk.UnknownName):
        db.table("t").delete("a", 1, columns=["nope"])


def test_put_if_writes_only_over_what_was_expected(db: vk.Database) -> None:
    table = db.table("t")
    assert table.put_if("a", 1, {"y": 1}, expect=None)
    assert not table.put_if("a", 1, {"y": 2}, expect=None)
    assert not table.put_if("a", 1, {"y": 2}, expect={"y": 7})
    assert table.put_if("a", 1, {"y": 2}, expect={"Y": 1, "x": None})
    assert not table.put_if("b", 1, {"y": 2}, expect={"y": 1})

    assert list(table.scan()) == [row("a", 1, None, 2)]


def test_delete_if_deletes_only_what_was_expected(db: vk.Database) -> None:
    table = db.table("t")
    table.put("a", 1, {"y": 1})

    assert not table.delete_if("a", 2, expect={})
    assert not table.delete_if("a", 1, expect={"y": 2})
    assert not table.delete_if("a", 1, expect={"y": 1, "x": "x"})
    assert table.get("a", 1) == row("a", 1, None, 1)
    assert table.delete_if("a", 1, expect={"Y": 1, "x": None})
    assert table.get("a", 1) is None
    assert not table.delete_if("a", 1, expect={})


def test_rows_come_in_key_order_across_nodes_from_any_range(db: vk.Database) -> None:
    table = db.table("t")
    for a in ("b", "a", "ab", "", "é"):
        for b in (2, -1, 10):
            table.put(a, b, {"y": b})
    keys = [(a, b) for a in ("", "a", "ab", "b", "é") for b in (-1, 2, 10)]

    def found(*prefix: object, **options: object) -> list[tuple]:
        return [(item["A"], item["b"]) for item in table.scan(*prefix, **options)]

    assert found() == keys
    assert found(reverse=True) == keys[::-1]
    assert found("a") == [("a", -1), ("a", 2), ("a", 10)]
    assert found("a", start=0) == [("a", 2), ("a", 10)]
    assert found("a", start=-1, stop=10) == [("a", -1), ("a", 2)]
    assert found("a", stop=10, reverse=True) == [("a", 2), ("a", -1)]
    assert found(start="ab", stop="é") == keys[6:12]
    assert found(start=("a", 3), stop=("b", 2)) == keys[5:10]
    assert found(limit=2) == keys[:2]
    assert found(limit=0) == []
    assert found("zz") == []
    assert [
        (a, b) for a, b in zip(*(table.to_arrow("a")[name].to_pylist() for name in ("A", "b")), strict=True)
    ] == found("a")
    for wrong in ({"limit": -1}, {"limit": True}, {"start": 1}):
        with pytest.raises(vk.InputError):
            table.scan(**wrong)
    with pytest.raises(vk.InputError, match="already a whole key"):
        table.scan("a", 1, start=3)


def test_many_rows_at_once_are_the_same_rows_from_dicts_and_from_arrow(db: vk.Database) -> None:
    rows = [row(f"k{n % 7}", n % 3, f"x{n}", n, Decimal(n)) for n in range(60)]  # keys repeat: the later row wins
    schema = pa.schema(
        [("A", pa.string()), ("b", pa.int32()), ("x", pa.string()), ("y", pa.int64()), ("d", pa.decimal128(6, 2))]
    )
    arrow = pa.Table.from_pylist(rows, schema)
    results = []
    for put in (rows, iter(rows), arrow, pa.RecordBatchReader.from_batches(schema, arrow.to_batches(max_chunksize=7))):
        token = db.table("t").put_many(put)
        results.append(list(db.table("t").scan()))
        assert token.is_covered_by(db.store.incarnation, db.store.ends())
        for item in results[-1]:
            db.table("t").delete(item["A"], item["b"])

    assert results[0] == results[1] == results[2] == results[3]
    assert {(item["A"], item["b"]): item for item in rows} == {(item["A"], item["b"]): item for item in results[0]}


def test_a_partial_bulk_put_keeps_the_other_columns(db: vk.Database) -> None:
    table = db.table("t")
    table.put("a", 1, {"x": "x", "y": 1})
    table.put_many([{"A": "a", "b": 1, "y": 2}, {"A": "n", "b": 1, "x": "new"}])
    table.put_many(pa.table({"A": ["a"], "b": pa.array([1], pa.int32()), "d": pa.array([3])}))

    assert list(table.scan()) == [row("a", 1, "x", 2, Decimal("3.00")), row("n", 1, "new")]


@pytest.mark.parametrize(
    "rows",
    [
        {"A": "a", "b": 1},
        7,
        [{"A": "a", "b": 1}, {"A": "b"}],
        [{"A": "a", "b": 1}, {"A": "b", "b": 1, "y": "x"}],
        pa.table({"A": ["a"]}),
        pa.table({"A": ["a", None], "b": [1, 2]}),
        pa.table({"A": ["a"], "b": [2**40]}),
        pa.table({"A": ["a"], "b": [1], "y": [1.5]}),
        pa.table({"A": ["a"], "b": [1], "nope": [1]}),
        pa.table({"A": ["a"], "b": [1], "d": [Decimal("1.234")]}),
        pa.table({"A": ["a"], "b": [1], "d": [10_000]}),
    ],
    ids=str,
)
def test_a_bulk_put_that_does_not_fit_writes_nothing(db: vk.Database, rows: object) -> None:
    with pytest.raises(vk.InputError):
        db.table("t").put_many(rows)
    assert list(db.table("t").scan()) == []


def test_get_many_answers_in_the_order_asked(db: vk.Database) -> None:
    table = db.table("t")
    table.put("a", 1, {"y": 1})
    table.put("b", 2, {"y": 2})

    assert table.get_many([("b", 2), ("no", 0), ("a", 1), ("b", 2)]) == [
        row("b", 2, y=2),
        None,
        row("a", 1, y=1),
        row("b", 2, y=2),
    ]
    assert table.get_many([]) == []


def test_a_group_of_writes_takes_effect_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 'one'}?sync=off")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE TABLE u (k INT PRIMARY KEY, v INT)")
    with db.write() as group:
        group.put("t", 1, {"v": 1})
        group.put("u", 1, {"v": 2})
        group.put("t", 1, {"v": 3})
        group.delete("u", 1, columns=["v"])
        assert db.table("t").get(1) is None
    assert db.table("t").get(1) == {"k": 1, "v": 3}
    assert db.table("u").get(1) == {"k": 1, "v": None}
    assert group.token.is_covered_by(db.store.incarnation, db.store.ends())
    with pytest.raises(RuntimeError), db.write() as group:
        group.delete("t", 1)
        raise RuntimeError
    assert db.table("t").get(1) == {"k": 1, "v": 3}
    with db.write() as group:
        pass
    assert group.token.positions == {}


def test_a_group_over_several_nodes_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    db = vk.connect(f"embedded:{tmp_path / 'two'}?sync=off&nodes=2")
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")

    with pytest.raises(vk.InputError, match="several nodes"), db.write() as group:
        for number in range(20):
            group.put("t", number, {"v": 1})
    assert list(db.table("t").scan()) == []


def test_a_dropped_table_is_not_written_and_a_reader_does_not_write(db: vk.Database) -> None:
    table = db.table("t")
    reader = vk.connect(db.url, read_only=True)
    with pytest.raises(vk.InputError, match="reading only"):
        reader.table("t").put("a", 1, {})
    with pytest.raises(vk.InputError, match="reading only"):
        reader.execute("DROP TABLE t")
    db.execute("DROP TABLE t")

    for write in (lambda: table.put("a", 1, {}), lambda: table.put_many([row("a", 1)]), lambda: table.delete("a", 1)):
        with pytest.raises(vk.UnknownName, match="was dropped"):
            write()


@pytest.mark.parametrize("lazily", [False, True])
def test_delete_many_deletes_the_rows_it_names(db: vk.Database, monkeypatch: pytest.MonkeyPatch, lazily: bool) -> None:
    monkeypatch.setattr("viewkeeper.client.bulk_writes.ROWS_PER_TRANSACTION", 3)
    table = db.table("t")
    table.put_many([row("a", number) for number in range(10)])
    keys = [("a", number) for number in (0, 1, 2, 3, 1, 77, 8)]
    token = table.delete_many(iter(keys) if lazily else keys)

    assert [item["b"] for item in table.scan()] == [4, 5, 6, 7, 9]
    assert token.is_covered_by(db.store.incarnation, db.store.ends())
    assert table.delete_many([]).positions == {}


@pytest.mark.parametrize("keys", ["a", {"A": "a"}, 7, [("a", 1), ("a",)], [("a", 1), ("a", "x")], [("a", None)]])
def test_a_bulk_delete_that_does_not_fit_deletes_nothing(db: vk.Database, keys: object) -> None:
    db.table("t").put("a", 1, {})
    with pytest.raises(vk.InputError):
        db.table("t").delete_many(keys)
    assert list(db.table("t").scan()) == [row("a", 1)]


@pytest.mark.parametrize("write", ["put", "put_many", "delete_many", "group"])
def test_a_table_dropped_just_before_the_transaction_gets_no_row(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    table, group, original = db.table("t"), db.write(), Node.write
    table.put("a", 1, {"y": 1})
    ends = db.store.ends()

    def drop_first(*arguments: object) -> object:
        with monkeypatch.context() as unpatched:
            unpatched.setattr(Node, "write", original)
            vk.connect(db.url).execute("DROP TABLE t")
        return original(*arguments)

    monkeypatch.setattr(Node, "write", drop_first)
    with pytest.raises(vk.UnknownName, match="table t was dropped"), group:
        match write:
            case "put":
                table.put("a", 1, {"y": 2})
            case "put_many":
                table.put_many([row("a", 1), row("b", 2)])
            case "delete_many":
                table.delete_many([("a", 1)])
            case _:
                group.put("t", "a", 1, {"y": 3})
    assert db.store.ends() == ends


@pytest.mark.parametrize("form", ["dicts", "arrow", "keys"])
def test_a_session_knows_what_was_written_before_a_bulk_write_failed(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("viewkeeper.client.bulk_writes.ROWS_PER_TRANSACTION", 10)
    db.table("t").put_many([row("a", number) for number in range(25)])
    with db.session() as session:
        table = session.table("t")
        with pytest.raises(vk.InputError):
            if form == "keys":
                table.delete_many(("a", number if number < 15 else "x") for number in range(25))
            elif form == "dicts":
                table.put_many(row("b", number if number < 15 else "x") for number in range(25))
            else:
                parts = [{"A": ["b"] * 5, "b": [n * 5 + i if n < 3 else None for i in range(5)]} for n in range(4)]
                batches = [pa.RecordBatch.from_pydict(part, pa.schema({"A": "string", "b": "int32"})) for part in parts]
                table.put_many(pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches)))
        assert session.token.positions == {stream: at for stream, at in db.store.ends().items() if at}


@pytest.mark.parametrize(
    ("rows_max", "bytes_max", "sizes"),
    [(10_000, 64 << 20, [25]), (10, 64 << 20, [10, 10, 5]), (10, 1_000, [1] * 25), (25, 13 * 1_000, [12, 12, 1])],
)
def test_arrow_rows_are_written_in_transactions_of_few_rows_and_bytes(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, rows_max: int, bytes_max: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(bulk_writes, "ROWS_PER_TRANSACTION", rows_max)
    monkeypatch.setattr(bulk_writes, "_BYTES_PER_TRANSACTION", bytes_max)
    rows = [row("a", number, "x" * 1_000) for number in range(25)]
    batch = pa.RecordBatch.from_pylist(
        [{name: one[name] for name in ("A", "b", "x")} for one in rows],
        pa.schema({"A": "string", "b": "int32", "x": "string"}),
    )
    assert [len(part) for part in bulk_writes._slices(batch)] == sizes
    db.table("t").put_many(batch)
    assert list(db.table("t").scan()) == rows
