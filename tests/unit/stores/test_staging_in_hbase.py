"""Rows that a table of HBase had before it was mapped, and those that others write while they are staged: none is lost.

Over a small HBase in this process, so that others write exactly when the test says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support import wal_files as wal
from tests.support.running import keep_up
from tests.support.small_hbase import SmallHBase
from viewkeeper.coordinator.anew import start_views_anew


@pytest.fixture
def hbase(tmp_path: Path) -> Iterator[SmallHBase]:
    made = SmallHBase(tmp_path)
    made.create(b"orders", [b"f"], [b"m"])
    with made.replying():
        yield made


def put(hbase: SmallHBase, row: str, x: int, *, table: bytes = b"orders", settles: bool = True) -> None:
    cell = wal.Cell(row.encode(), b"f", b"x", hbase.tick(), wal.PUT, str(x).encode())
    hbase.begin_write(table, [cell])
    if settles:
        hbase.settle()


def at(hbase: SmallHBase, request: str, asked: bytes, act: Callable[[], None]) -> list[bool]:
    """Act ahead of the first such request to a table; returns a list that is filled then."""
    done: list[bool] = []

    def reached(*found: object) -> None:
        if found == (request, asked) and not done:
            done.append(True)
            act()

    hbase.reached = reached
    return done


def map_table(db: vk.Database, name: str = "orders") -> None:
    db.execute(
        f"CREATE TABLE {name} (id STRING PRIMARY KEY, x BIGINT) USING hbase OPTIONS (table '{name}', family 'f')"
    )
    db.execute(f"CREATE MATERIALIZED VIEW sum_{name} AS SELECT COUNT(*) AS n, SUM(x) AS s FROM {name}")


def total(db: vk.Database, name: str = "orders") -> tuple[object, ...]:
    (row,) = db.view(f"sum_{name}").scan()
    return row["n"], row["s"]


def test_what_is_written_while_the_first_rows_are_staged_is_in_the_view(hbase: SmallHBase) -> None:
    put(hbase, "a", 1)
    put(hbase, "n", 1)
    with vk.connect(hbase.url) as db:
        map_table(db)
        write = lambda: [put(hbase, row, 10) for row in ("a", "b", "z")]
        done = at(hbase, "checkAndMutate", b"views:staged", write)  # the rows have been read
        keep_up(db)
        assert done and total(db) == (4, 31)
