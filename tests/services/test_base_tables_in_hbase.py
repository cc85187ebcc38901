"""Tables of HBase's users: what their clients see of our writes, what we read of theirs, and what the statements refuse."""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import viewkeeper as vk
from tests.support.faulty_proxy import faulty_proxy
from tests.support.hbase_stores import drop_namespace, new_url
from tests.support.services.configuration import ADDRESS
from tests.support.services.hbase import Cluster
from viewkeeper.errors import (
    BadRow,
    InputError,
    RowsApart,
    StoreUnavailable,
    UnknownName,
    UnsupportedSql,
    ViewKeeperError,
)
from viewkeeper.stores.hbase.client import Connections, Refused

ROW: dict[str, object] = {
    **{"b": True, "i": -7, "n": 2**40, "x": 1.5, "s": "naïve", "r": b"\x00\xff"},
    **{"d": Decimal("-3.50"), "day": date(2024, 2, 29), "at": datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC)},
}
TYPES = {
    **{"b": "BOOLEAN", "i": "INT", "n": "BIGINT", "x": "DOUBLE", "s": "STRING", "r": "BINARY"},
    **{"d": "DECIMAL(9,2)", "day": "DATE", "at": "TIMESTAMP"},
}
TEXTS = {
    **{"b": b"true", "i": b"-7", "n": b"1099511627776", "x": b"1.5", "s": "naïve".encode(), "r": b"\x00\xff"},
    **{"d": b"-3.50", "day": b"2024-02-29", "at": b"2024-02-29 12:30:01.000005"},
}
BYTES = {  # as Java's Bytes.toBytes writes them
    **{"b": b"\xff", "i": struct.pack(">i", -7), "n": struct.pack(">q", 2**40), "x": struct.pack(">d", 1.5)},
    **{"s": "naïve".encode(), "r": b"\x00\xff"},
}


class Client:
    """Someone who uses HBase, and knows nothing of ViewKeeper."""

    def __init__(self, hbase: Cluster, table: str) -> None:
        self._hbase, self._table = hbase, table.encode()

    def put(self, row: bytes, cells: dict[str, bytes], stamp: int | None = None) -> None:
        types = self._hbase.types
        values = [types.TColumnValue(*_place(column), value) for column, value in cells.items()]
        with self._hbase.client() as client:
            client.put(self._table, types.TPut(row=row, columnValues=values, timestamp=stamp))

    def cells(self, row: bytes, versions: int = 1) -> dict[str, Any]:
        with self._hbase.client() as client:
            found = client.get(self._table, self._hbase.types.TGet(row=row, maxVersions=versions))
        return {f"{cell.family.decode()}:{cell.qualifier.decode()}": cell for cell in found.columnValues}

    def get(self, row: bytes, versions: int = 1) -> dict[str, bytes]:
        return {column: cell.value for column, cell in self.cells(row, versions).items()}


def _place(column: str) -> list[bytes]:
    return [part.encode() for part in column.split(":", 1)]


@contextmanager
def opened(hbase: Cluster) -> Iterator[vk.Database]:
    url = new_url(hbase)
    try:
        with vk.connect(url) as db:
            yield db
    finally:
        drop_namespace(url)


@pytest.fixture
def db(hbase: Cluster) -> Iterator[vk.Database]:
    with opened(hbase) as found:
        yield found


@pytest.fixture
def client(hbase: Cluster, table: str) -> Client:
    return Client(hbase, table)


def mapped(db: vk.Database, table: str, columns: str, options: str = "") -> vk.Table:
    """A table `t` over the HBase table, in its family f."""
    db.execute(f"CREATE TABLE t ({columns}) USING hbase OPTIONS (table '{table}', family 'f'{options})")
    return db.table("t")


def both(*steps: Callable[[], None]) -> None:
    """Run steps at the same time, each in a thread; raises what one of them raised."""
    failures: list[BaseException] = []

    def run(step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# what others see and write


@pytest.mark.parametrize(("encoding", "cells"), [("text", TEXTS), ("bytes", BYTES)])
def test_values_of_every_type_are_the_same_to_clients_and_to_us(
    db: vk.Database, table: str, client: Client, encoding: str, cells: dict[str, bytes]
) -> None:
    columns = ", ".join(f"{name} {TYPES[name]}" for name in cells)
    t = mapped(db, table, f"id STRING PRIMARY KEY, {columns}", f", encoding '{encoding}'")
    values = {name: ROW[name] for name in cells}
    t.put("ours", values)
    client.put(b"theirs", {f"f:{name}": cell for name, cell in cells.items()})

    assert client.get(b"ours") == {f"f:{name}": cell for name, cell in cells.items()}
    assert t.get("theirs") == {"id": "theirs", **values}
    assert [row["id"] for row in t.scan()] == ["ours", "theirs"]


@pytest.mark.parametrize(("encoding", "cells"), [("text", TEXTS), ("bytes", BYTES)])
def test_keys_of_every_type_are_the_same_to_clients_and_to_us(
    db: vk.Database, table: str, client: Client, encoding: str, cells: dict[str, bytes]
) -> None:
    for name, row_key in cells.items():
        t = mapped(
            db, table, f"id {TYPES[name]} PRIMARY KEY, v STRING", f", v.cell 'g:{name}', id.encoding '{encoding}'"
        )
        t.put(ROW[name], {"v": "ours"})
        assert client.get(row_key)[f"g:{name}"] == b"ours"
        client.put(row_key, {f"g:{name}": b"theirs"})
        assert t.get(ROW[name]) == {"id": ROW[name], "v": "theirs"}
        assert [row["v"] for row in t.scan()] == ["theirs"]
        db.execute("DROP TABLE t")


def test_a_put_writes_the_cells_that_change_and_no_other(db: vk.Database, table: str, client: Client) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT, b STRING")
    client.put(b"k", {"f:a": b"007", "f:b": b"x", "g:other": b"y"}, stamp=5)
    t.put("k", {"a": 7, "b": "z"})
    found = client.cells(b"k")

    assert {column: cell.value for column, cell in found.items()} == {"f:a": b"007", "f:b": b"z", "g:other": b"y"}
    assert found["f:a"].timestamp == found["g:other"].timestamp == 5 < found["f:b"].timestamp
    t.put("k", {"b": "z"})
    assert client.cells(b"k")["f:b"].timestamp == found["f:b"].timestamp


def test_null_and_delete_leave_nothing_of_older_versions_and_all_that_is_not_mapped(
    db: vk.Database, table: str, client: Client
) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT, b STRING")
    for stamp in (5, 6):
        client.put(b"k", {"f:a": b"1", "f:b": b"x", "f:other": b"y", "g:a": b"z"}, stamp)
    t.put("k", {"a": None, "b": "new"})

    assert client.get(b"k", versions=9) == {"f:b": b"new", "f:other": b"y", "g:a": b"z"}
    assert t.get("k") == {"id": "k", "a": None, "b": "new"}
    t.delete("k")
    assert client.get(b"k") == {"f:other": b"y", "g:a": b"z"}
    assert t.get("k") is None and list(t.scan()) == []


def test_what_is_put_right_after_a_delete_is_seen(db: vk.Database, table: str) -> None:
    """A stamp is a millisecond: a delete must not hide what is put in the same one."""
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT")
    for number in range(300):
        t.put("k", {"a": number})
        t.delete("k")
        t.put("k", {"a": -number})
        assert t.get("k") == {"id": "k", "a": -number}


def test_a_value_with_a_stamp_to_come_is_replaced(db: vk.Database, table: str, client: Client) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT")
    client.put(b"k", {"f:a": b"1"}, stamp=int((time.time() + 3_600) * 1_000))
    t.put("k", {"a": 2})
    assert t.get("k") == {"id": "k", "a": 2}
    assert t.put_if("k", {"a": 3}, expect={"a": 2}) and client.get(b"k") == {"f:a": b"3"}


def test_rows_with_other_keys_or_cells_are_left_out_and_not_written_over(
    db: vk.Database, table: str, client: Client
) -> None:
    t = mapped(db, table, "id BIGINT PRIMARY KEY, a BIGINT, b STRING")
    for row in (b"7", b"07", b"x", b"+7", b"\xff"):
        client.put(row, {"f:a": b"1"})
    client.put(b"8", {"f:a": b"one", "f:b": b"kept"})

    assert [row["id"] for row in t.scan()] == [7] and t.get(8) is None
    with pytest.raises(BadRow, match="the cell f:a of that row is no BIGINT in text; give a a value too"):
        t.put(8, {"b": "new"})
    assert client.get(b"8") == {"f:a": b"one", "f:b": b"kept"}
    t.put(8, {"a": 1})
    assert t.get(8) == {"id": 8, "a": 1, "b": "kept"}
    client.put(b"8", {"f:a": b"one"})
    t.delete(8)
    assert client.get(b"8") == {}


# order


@pytest.mark.parametrize("encoding", ["text", "bytes"])
@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE", "STRING"])
def test_scans_are_in_the_order_of_the_keys_whatever_hbases_is(
    db: vk.Database, table: str, kind: str, encoding: str
) -> None:
    t = mapped(db, table, f"id {kind} PRIMARY KEY, v BIGINT", f", id.encoding '{encoding}'")
    make = {"BIGINT": int, "DOUBLE": float, "STRING": lambda number: f"k{number}"}[kind]
    keys = sorted(make(number) for number in [*range(-40, 500, 3), 10**12, -(10**12)])
    t.put_many([{"id": key, "v": place} for place, key in enumerate(keys)])

    assert [row["id"] for row in t.scan()] == keys
    assert [row["id"] for row in t.scan(reverse=True)] == keys[::-1]
    low, high = keys[3], keys[170]
    assert [row["id"] for row in t.scan(start=low, stop=high)] == keys[3:170]
    assert [row["id"] for row in t.scan(start=low, stop=high, reverse=True, limit=9)] == keys[169:160:-1]
    assert t.get_many([keys[5], make(1_000_000), keys[5]]) == [{"id": keys[5], "v": 5}, None, {"id": keys[5], "v": 5}]
    text = f"'{low}'" if kind == "STRING" else repr(low)
    assert db.execute(f"SELECT v FROM t WHERE id = {text}").rows == ((3,),)


def test_many_rows_are_put_read_and_deleted(db: vk.Database, table: str) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT, b STRING")
    rows = [{"id": f"k{number:05}", "a": number, "b": None if number % 3 else "x" * 50} for number in range(12_000)]
    t.put_many([*rows, rows[0] | {"a": -1}])  # of two rows of one key the later one counts

    assert t.to_arrow().to_pylist() == [rows[0] | {"a": -1}, *rows[1:]]
    assert db.execute("SELECT COUNT(*), COUNT(b) FROM t").rows == ((12_000, 4_000),)
    assert sum(db.store.parts(t.schema.id).values()) == 12_000
    found = db.store.row_borders(t.schema.id, 0, b"", rows_max=1_000, bytes_max=1 << 40, pieces=4)
    assert (found.rows, len(found.keys)) == (1_000, 5)
    t.delete_many([row["id"] for row in rows[10:]])
    assert [row["a"] for row in t.scan()] == [-1, *range(1, 10)]


# several writers


def test_writers_of_different_columns_of_one_row_lose_nothing(db: vk.Database, hbase: Cluster, table: str) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT, b BIGINT")
    rows = [f"k{number}" for number in range(3)]

    def write(column: str) -> Callable[[], None]:
        def step() -> None:
            with vk.connect(db.store.url) as other:
                for number in range(100):
                    other.table("t").put(rows[number % 3], {column: number})

        return step

    both(write("a"), write("b"))
    assert [(row["a"], row["b"]) for row in t.scan()] == [(99, 99), (97, 97), (98, 98)]


def test_of_two_who_write_on_a_condition_exactly_one_does(db: vk.Database, table: str) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, n BIGINT NOT NULL, who STRING")
    keys, won = [f"k{number}" for number in range(60)], {"x": 0, "y": 0}

    def write(who: str) -> Callable[[], None]:
        def step() -> None:
            with vk.connect(db.store.url) as other:
                mine = other.table("t")
                for key in keys:
                    won[who] += mine.put_if(key, {"n": 0, "who": who}, expect=None)
                for _ in range(60):
                    n = mine.get("k0")["n"]
                    won[who] += mine.put_if("k0", {"n": n + 1}, expect={"n": n})

        return step

    both(write("x"), write("y"))
    assert won["x"] + won["y"] == len(keys) + t.get("k0")["n"] and min(won.values()) > 0
    assert not t.put_if("k0", {"who": "z"}, expect=None)
    assert not t.delete_if("k0", expect={"n": -1}) and t.delete_if("k1", expect={"n": 0}) and t.get("k1") is None


def test_update_and_delete_by_key_hold_beside_other_writers(db: vk.Database, table: str, client: Client) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT, b STRING")
    client.put(b"k", {"f:a": b"0", "f:b": b"long enough to be the guarded cell"})
    enough = threading.Event()

    def disturb() -> None:
        number = 0
        while not enough.is_set():
            number += 1
            client.put(b"k", {"f:b": b"long enough to be the guarded cell: %d" % number})

    def update() -> None:
        try:
            for number in range(40):
                assert db.execute(f"UPDATE t SET a = {number} WHERE id = 'k'").message == "1 row updated"
        finally:
            enough.set()

    both(disturb, update)
    assert t.get("k")["a"] == 39
    assert db.execute("UPDATE t SET a = 1 WHERE id = 'none'").message == "0 rows updated"
    assert db.execute("DELETE FROM t WHERE id = 'k'").message == "1 row deleted"
    assert db.execute("DELETE FROM t WHERE id = 'k'").message == "0 rows deleted" and client.get(b"k") == {}


def test_lost_replies_lose_no_put_and_a_test_and_set_says_that_it_is_not_known(
    db: vk.Database, hbase: Cluster, table: str
) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT")
    faults = {"seed": 11, "lost": 0.15, "late": 0.0, "late_seconds": 0.0}
    won = unknown = 0
    with faulty_proxy(hbase.layout.thrift_ports()[0], **faults) as proxy:
        url = f"hbase://{ADDRESS}:{proxy.port}/{db.store._site.address.namespace}?timeout=20"
        url += f"&rootdir=file://{hbase.layout.root}"
        with vk.connect(url) as shaky:
            mine = shaky.table("t")
            for number in range(40):
                mine.put(f"k{number:02}", {"a": number})
            mine.put("n", {"a": 0})
            for _ in range(40):
                n = t.get("n")["a"]
                try:
                    won += mine.put_if("n", {"a": n + 1}, expect={"a": n})
                except StoreUnavailable as error:
                    assert "whether the row was written is not known" in error.fact
                    unknown += 1
        assert proxy.counts["lost"] > 10 and unknown > 0

    assert [row["a"] for row in t.scan(stop="n")] == list(range(40))
    assert won <= t.get("n")["a"] <= won + unknown  # whoever is told that it is done is right


# what is refused


def test_what_hbase_cannot_do_at_once_is_refused_and_nothing_is_written(db: vk.Database, table: str) -> None:
    t = mapped(db, table, "id STRING PRIMARY KEY, a BIGINT, b STRING")
    t.put("k", {"a": 1, "b": "x"})

    def write_two() -> None:
        with db.write() as group:
            group.put("t", "k", {"a": 2})
            group.put("t", "l", {"a": 2})

    refused: list[tuple[Callable[[], object], type[ViewKeeperError], str]] = [
        (write_two, RowsApart, "this one has several rows"),
        (lambda: t.put_if("k", {"a": 2}, expect={"a": 1, "b": "x"}), InputError, "compares one column of a row, not 2"),
        (lambda: t.put_if("l", {"a": 2}, expect=None), UnsupportedSql, "declare a column NOT NULL"),
        (lambda: db.execute("INSERT INTO t (id) VALUES ('l')"), BadRow, "all columns of a row would be NULL"),
        (lambda: t.put("k", {"a": None, "b": None}), BadRow, "or delete the row"),
        (lambda: t.put("", {"a": 2}), BadRow, "the row key has 0 bytes"),
        (lambda: t.put("k" * 40_000, {"a": 2}), BadRow, "the row key has 40,000 bytes"),
        (lambda: t.put("k", {"b": "x" * (11 << 20)}), BadRow, "a value has 11,534,336 bytes"),
    ]
    for step, error, text in refused:
        with pytest.raises(error, match=text):
            step()
    assert list(t.scan()) == [{"id": "k", "a": 1, "b": "x"}]
    assert t.get("") is None and t.get("k" * 40_000) is None
    with db.write() as group:  # several steps of one row are one group
        group.put("t", "k", {"a": 2})
        group.delete("t", "k", columns=["b"])
    assert t.get("k") == {"id": "k", "a": 2, "b": None}


def test_a_mapping_is_shown_kept_and_forgotten_and_rows_stay(db: vk.Database, table: str, client: Client) -> None:
    columns = "id BIGINT PRIMARY KEY, a BIGINT NOT NULL, `order` DATE, c BINARY"
    options = ", encoding 'bytes', `order`.encoding 'text', a.cell 'g:it''s', id.encoding 'text'"
    t = mapped(db, table, columns, options)
    t.put(7, {"a": 1, "c": b"x"})
    shown = db.execute("SHOW CREATE TABLE t").rows[0][0]
    described = db.execute("DESCRIBE t").rows
    with pytest.raises(UnsupportedSql, match="make another table over it with all columns"):
        db.execute("ALTER TABLE t ADD COLUMN more INT")
    before = t.schema
    db.execute("ALTER TABLE t RENAME TO u")
    db.execute("DROP TABLE u")
    db.store.drop(before.id)  # as garbage collection does
    assert client.get(b"7") == {"g:it's": struct.pack(">q", 1), "f:c": b"x"}
    assert "does not tell of bulk loads and of writes with SKIP_WAL" in db.execute(shown).message
    again = db.catalog().table("t")
    assert (again.foreign, again.columns) == (replace(before.foreign, aside=again.id + 2), before.columns)
    assert again.delta == again.id + 1
    assert db.execute("DESCRIBE t").rows == described
    assert db.table("t").get(7) == {"id": 7, "a": 1, "order": None, "c": b"x"}
    assert db.execute(shown.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")).message == "table t is there already"


def test_what_hbase_does_not_have_is_refused_before_anything_is_written(
    db: vk.Database, hbase: Cluster, table: str
) -> None:
    own = db.store._site.address.namespace
    for clause, error, text in [
        ("", UnsupportedSql, "write USING hbase OPTIONS"),
        ("USING hbase OPTIONS (table 'nowhere')", UnknownName, "HBase has no table nowhere"),
        ("USING hbase OPTIONS (table 'no_space:nowhere')", UnknownName, "HBase has no table no_space:nowhere"),
        ("USING hbase OPTIONS (table 'no name')", UnknownName, "HBase has no table no name"),
        (f"USING hbase OPTIONS (table '{own}:viewkeeper')", InputError, "is ViewKeeper's own"),
        ("USING hbase OPTIONS (table 'hbase:meta')", InputError, "hbase:meta is HBase's own"),
        (f"USING hbase OPTIONS (table '{table}')", InputError, "has the families f, g, and nothing says which"),
        (f"USING hbase OPTIONS (table '{table}', family 'x')", UnknownName, "no family x; .* has the families f, g"),
    ]:
        with pytest.raises(error, match=text):
            db.execute(f"CREATE TABLE t (id STRING PRIMARY KEY, v INT) {clause}")
    assert db.execute("SHOW TABLES").rows == ()


def test_the_folder_of_another_hbase_is_refused_before_anything_is_written(
    db: vk.Database, hbase: Cluster, table: str, tmp_path: Path
) -> None:
    mapped(db, table, "id STRING PRIMARY KEY, v INT")
    for name in ("WALs", "oldWALs"):
        (tmp_path / name).mkdir()
    (tmp_path / "hbase.id").write_text("another")
    with vk.connect(re.sub("rootdir=.*", f"rootdir=file://{tmp_path}", db.url)) as other:
        for attempt in (
            lambda: other.table("t").put("a", {"v": 1}),
            lambda: other.execute(f"CREATE TABLE u (id STRING PRIMARY KEY) USING hbase OPTIONS (table '{table}')"),
            other.status,
        ):
            with pytest.raises(InputError, match="the folder of another HBase"):
                attempt()
    assert (list(db.table("t").scan()), db.execute("SHOW TABLES").rows) == ([], (("t", "id", "v"),))


def test_where_thrift_does_not_tell_the_id_the_stores_own_table_must_be_in_the_folder(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask = Connections.ask

    def older(connections: Connections, request: str, *arguments: object, **more: Any) -> Any:
        if request == "getClusterId":
            raise Refused("HBase refused a request: Invalid method name: 'getClusterId'")
        return ask(connections, request, *arguments, **more)

    monkeypatch.setattr(Connections, "ask", older)
    assert db.status().epoch == 0
    with (
        vk.connect(re.sub("rootdir=.*", f"rootdir=file://{tmp_path}", db.url)) as other,
        pytest.raises(InputError, match="is not of the HBase that has the store"),
    ):
        other.status()


def test_what_the_log_does_not_tell_is_said(db: vk.Database, hbase: Cluster) -> None:
    types, name = hbase.types, f"{db.store._site.address.namespace}_ttl"
    families = [types.TColumnFamilyDescriptor(name=b"d", timeToLive=3_600), types.TColumnFamilyDescriptor(name=b"e")]
    place = types.TTableName(ns=b"default", qualifier=name.encode())
    made = "CREATE TABLE t (id STRING PRIMARY KEY, v INT) USING hbase OPTIONS (table '{}', family '{}')"
    with hbase.client() as client:
        client.createTable(types.TTableDescriptor(tableName=place, columns=families), None)
        try:
            assert db.execute(made.format(name, "d")).message.endswith("lets cells expire: of d after 3,600 s")
            db.execute("DROP TABLE t")
            assert db.execute(made.format(name, "e")).message.endswith("SKIP_WAL")
        finally:
            client.disableTable(place)
            client.deleteTable(place)


def test_a_table_without_a_log_is_refused(db: vk.Database, hbase: Cluster) -> None:
    types, name = hbase.types, f"{db.store._site.address.namespace}_unlogged"
    place = types.TTableName(ns=b"default", qualifier=name.encode())
    families = [types.TColumnFamilyDescriptor(name=b"d")]
    unlogged = types.TTableDescriptor(tableName=place, columns=families, durability=types.TDurability.SKIP_WAL)
    with hbase.client() as client:
        client.createTable(unlogged, None)
        try:
            with pytest.raises(InputError, match=r"has no log \(SKIP_WAL\)"):
                db.execute(f"CREATE TABLE t (id STRING PRIMARY KEY, v INT) USING hbase OPTIONS (table '{name}')")
        finally:
            client.disableTable(place)
            client.deleteTable(place)
