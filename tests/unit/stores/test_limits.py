"""What a transaction and a log entry may hold is bounded in bytes; what was acknowledged can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.client.database import Database
from viewkeeper.errors import InputError
from viewkeeper.model.stored_rows import RowWrites
from viewkeeper.stores.kv.lmdb_environment import Environment
from viewkeeper.stores.kv.lmdb_files import make_part, part_of
from viewkeeper.stores.local.embedded_store import EmbeddedStore
from viewkeeper.stores.local.log_format import ENDS_TRANSACTION, decode_header
from viewkeeper.stores.local.node import Limits, Node

LIMITS = Limits(row=5_000, transaction=10_000, entry=1_000)


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = Database(EmbeddedStore(f"embedded:{tmp_path / 's'}?sync=off", limits=LIMITS), read_only=False)
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, v STRING)")
    db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n, SUM(LENGTH(v)) AS size FROM t")
    return db


def headers(node: Node) -> list[tuple[int, object]]:
    """Length and header of each entry."""
    with node.kernel.read("log") as log:
        return [(len(entry), decode_header(entry)) for _, entry in log.walk(b"")]


def rows(count: int, size: int) -> list[dict[str, object]]:
    return [{"k": f"{number:04}", "v": "x" * size} for number in range(count)]


@pytest.mark.parametrize("form", [list, iter, pa.Table.from_pylist], ids=["list", "iterator", "arrow"])
def test_many_rows_are_cut_into_transactions_that_fit(db: vk.Database, form: Callable[[list], object]) -> None:
    db.table("t").put_many(form(rows(200, 500)))
    keep_up(db)
    told = headers(db.store._nodes[0])

    assert db.view("n").get() == {"n": 200, "size": 100_000}
    assert max(size for size, _ in told) < 1_100
    assert sum(header.flags & ENDS_TRANSACTION for _, header in told) > 10  # 100,000 bytes, 10,000 at a time
    db.table("t").delete_many([f"{number:04}" for number in range(150)])
    keep_up(db)
    assert db.view("n").get() == {"n": 50, "size": 25_000}


def test_a_row_that_is_too_large_is_refused_and_nothing_of_its_batch_is_written(db: vk.Database) -> None:
    with pytest.raises(vk.BadRow, match=r"5,00\d bytes is more than the 5,000"):
        db.table("t").put("a", {"v": "x" * 5_000})
    with pytest.raises(vk.BadRow, match="0 rows before it are written"):
        db.table("t").put_many([*rows(3, 10), {"k": "z", "v": "x" * 6_000}])

    assert list(db.table("t").scan()) == []
    assert sum(db.store.ends().values()) == 0


def test_a_group_of_writes_that_is_too_large_is_refused_as_a_whole(db: vk.Database) -> None:
    with pytest.raises(vk.TooMuchAtOnce, match="smaller groups"), db.write() as group:
        for row in rows(30, 400):
            group.put("t", row)

    assert list(db.table("t").scan()) == []


def test_the_largest_row_can_be_changed_and_deleted(db: vk.Database) -> None:
    table = db.table("t")
    for letter in "xyz":
        table.put("a", {"v": letter * 4_900})
    keep_up(db)
    assert db.view("n").get() == {"n": 1, "size": 4_900}
    table.delete("a")
    keep_up(db)
    assert db.view("n").get() == {"n": 0, "size": None}


@settings(max_examples=40)
@given(
    sizes=st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4), min_size=1, max_size=10),
    start=st.integers(0, 9),
    changes_max=st.integers(1, 12),
    bytes_max=st.integers(1, 2_000),
)
def test_a_range_ends_with_the_transaction_that_makes_so_many_changes_or_bytes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]], start: int, changes_max: int, bytes_max: int
) -> None:
    limits = Limits(row=1_000, transaction=4_000, entry=200)
    path, part = tmp_path_factory.mktemp("n") / "n", part_of({}, "node-0")
    make_part(path, part)
    environment = Environment(path, part, synced=False)
    node = Node(lambda: environment, 0, synced=False, before_images=True, limits=limits)
    ends, lengths = [0], [0]
    for number, transaction in enumerate(sizes):
        keys = [b"%d-%d" % (number, i) for i in range(len(transaction))]
        images = [b"v" * size for size in transaction]
        before = len(headers(node))
        ends.append(int(node.write([RowWrites(1, keys, lambda befores, images=images: images)], lambda: 0)))
        lengths.append(sum(size for size, _ in headers(node)[before:]))
    first = min(start, len(sizes) - 1)
    expected, changes, size = None, 0, 0
    for number in range(first + 1, len(ends)):
        changes, size = changes + ends[number] - ends[number - 1], size + lengths[number]
        if expected is None and (changes >= changes_max or size >= bytes_max):
            expected = number

    assert node.describe(ends[first], ends[-1])[0] == sum(lengths[first + 1 :])
    stamp = node.stamp_within(ends[first], changes_max=changes_max, bytes_max=bytes_max)
    found = None if stamp is None else ends.index(int(node.find_stamp(ends[first], stamp)))
    assert found == expected
    environment.close(InputError("the test is over"))
