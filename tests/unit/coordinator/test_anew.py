"""Views that start anew are filled from the base, and a DELTA from all rows of its table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.coordinator import backfill
from viewkeeper.coordinator.backfill import reset_views
from viewkeeper.model.stored_rows import RowWrites


@pytest.mark.parametrize(
    ("rows_max", "bytes_max", "sizes"),
    [
        (1_000, 8 << 20, [10]),
        (10, 8 << 20, [10]),
        (3, 8 << 20, [3, 3, 3, 1]),
        (1_000, 500, [5, 5]),
        (1_000, 1, [1] * 10),
    ],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_every_row_is_logged_again_in_transactions_of_few_rows_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, rows_max: int, bytes_max: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(backfill, "_ROWS", rows_max)
    monkeypatch.setattr(backfill, "_BYTES", bytes_max)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images=off&nodes={nodes}") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v STRING)")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n, MAX(k) AS hi FROM t")
        db.table("t").put_many([{"k": number, "v": "x" * 100} for number in range(10)])
        keep_up(db)
        logged: list[int] = []
        write = db.store.write

        def note(writes: list[RowWrites], **options: bool) -> object:
            logged.append(sum(len(one.keys) for one in writes))
            return write(writes, **options)

        monkeypatch.setattr(db.store, "write", note)
        reset_views(db.store)
        assert sum(logged) == 10 and (nodes > 1 or logged == sizes)
        db.table("t").delete(9)
        keep_up(db)

        assert list(db.view("n").scan()) == [{"n": 9, "hi": 8}]


@pytest.mark.parametrize("store", ["memory", "embedded"])
def test_a_read_that_began_before_views_start_anew_misses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    """It has its moment, and meets the records of the next epochs, which have none of an earlier one."""
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off" if store == "embedded" else f"memory:{tmp_path}") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
        db.table("t").put_many([{"k": number, "v": 1} for number in range(10)])
        keep_up(db)
        view, late = db.view("n"), list[Callable[[], object]]()

        for name in ("get_record", "hold"):
            read = getattr(db.store, name)

            def after_it(*asked: object, read: Callable[..., object] = read) -> object:
                if late:
                    late.pop()()
                return read(*asked)

            monkeypatch.setattr(db.store, name, after_it)
        for read in (
            lambda: [view.get(1)],
            lambda: list(view.scan()),
            lambda: [dict(zip("vn", row, strict=True)) for row in db.execute("SELECT v, n FROM n")],
        ):
            late.append(lambda: (reset_views(db.store), keep_up(db)))
            assert list(read()) == [{"v": 1, "n": 10}]
            assert late == []
