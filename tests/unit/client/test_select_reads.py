"""What a SELECT reads: rows under the keys that WHERE allows, as far as LIMIT needs them, and the columns that are used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.client import select
from viewkeeper.model import rowbatches
from viewkeeper.stores.local.partition import LocalSnapshot

ROWS = 6_000
FIRST = 1_000  # rows of the first piece of a stream


class Counted:
    """Rows and records that were read, and the columns that were decoded."""

    rows = 0
    columns: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path_factory.mktemp('reads') / 's'}?sync=off&nodes=2")
    db.execute("CREATE TABLE t (a STRING, b INT, c BIGINT, x INT, y STRING, PRIMARY KEY (a, b, c))")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b")
    rows = [{"a": "pqr"[i % 3], "b": i // 30, "c": -i, "x": i % 7, "y": "y" * 20} for i in range(ROWS)]
    db.table("t").put_many(rows)
    keep_up(db)
    return db


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted, scan, decode = Counted(), LocalSnapshot.scan, rowbatches.decode_rows

    def count(held: LocalSnapshot, *args: object, **options: object) -> Iterator[tuple[bytes, bytes]]:
        for pair in scan(held, *args, **options):
            counted.rows += 1
            yield pair

    def watch(columns, rows, wanted):
        counted.columns |= {columns[place].name for place in wanted}
        return decode(columns, rows, wanted)

    monkeypatch.setattr(LocalSnapshot, "scan", count)
    monkeypatch.setattr(rowbatches, "decode_rows", watch)
    return counted


@pytest.mark.parametrize(
    ("where", "found", "read"),
    [
        ("a = 'p' AND b = 7 AND c = -210", 1, 1),
        ("c = -210 AND 7 = b AND a = 'p'", 1, 1),
        ("a = 'p' AND b = 7 AND c = 1", 0, 0),
        ("a = 'p' AND b = 7", 10, 10),
        ("a = 'q' AND b BETWEEN 7 AND 9", 30, 30),
        ("a = 'q' AND b > 7 AND b <= 9", 20, 30),
        ("a = 'q' AND b < 3 AND x = 1", 5, 30),
        ("a >= 'r'", 2_000, 2_000),
        ("a IN ('p', 'r', 'p', 'z') AND b = 3", 20, 20),
        ("a IN ('p', 'r') AND b IN (3, 4) AND c = -90", 1, 1),
        ("a = 'p' AND b = 3 AND a = 'q'", 0, 10),
        ("a = 'p' AND b = 3000000000", 0, 2_000),
        ("a = 'nobody'", 0, 0),
        ("b = 7", 30, ROWS),
        ("a = 'p' OR b = 7", 2_020, ROWS),
        ("a = y", 0, ROWS),
    ],
)
def test_key_conditions_reach_the_store(db: vk.Database, counted: Counted, where: str, found: int, read: int) -> None:
    assert len(db.execute(f"SELECT c FROM t WHERE {where}")) == found
    assert counted.rows == read


@pytest.mark.parametrize(("ranges", "read"), [(1_000, 2), (8, 2), (7, 22), (4, 22), (3, 140), (2, 140), (1, 6_000)])
def test_more_ranges_than_are_scanned_apart_are_read_from_the_first_to_the_last(
    db: vk.Database, counted: Counted, monkeypatch: pytest.MonkeyPatch, ranges: int, read: int
) -> None:
    monkeypatch.setattr(select, "RANGES_MAX", ranges)
    found = db.execute("SELECT c FROM t WHERE a IN ('p', 'r') AND b IN (3, 9) AND c IN (-90, -272)")

    assert sorted(found.rows) == [(-272,), (-90,)]
    assert counted.rows == read


def test_conditions_reach_through_subqueries_joins_and_views(db: vk.Database, counted: Counted) -> None:
    assert len(db.execute("SELECT q FROM (SELECT a AS p, b AS q FROM t) WHERE p = 'p' AND q = 7")) == 10
    assert counted.rows == 10
    db.execute(
        "SELECT t.c, n FROM t JOIN v ON t.a = v.a AND t.b = v.b WHERE t.a = 'p' AND t.b = 7 AND v.a = 'p' AND v.b = 7"
    )
    assert counted.rows == 10 + 10 + 1
    assert db.execute("SELECT n FROM v WHERE b = 7 AND a = 'p'").rows == ((10,),)
    assert counted.rows == 10 + 10 + 1 + 1


def test_a_limit_stops_the_scan(db: vk.Database, counted: Counted) -> None:
    assert len(db.execute("SELECT * FROM t LIMIT 3")) == 3
    assert counted.rows <= FIRST
    assert len(db.execute("SELECT c FROM t WHERE x = 3 LIMIT 2 OFFSET 1")) == 2
    assert counted.rows <= 2 * FIRST
    assert db.execute("SELECT c FROM t WHERE a = 'p' AND x > 100 LIMIT 1").rows == ()
    assert counted.rows <= 2 * FIRST + ROWS // 3


def test_only_columns_that_are_used_are_decoded(db: vk.Database, counted: Counted) -> None:
    assert db.execute("SELECT COUNT(*) FROM t").rows == ((ROWS,),)
    assert db.execute("SELECT MAX(c) FROM t WHERE b > 3").rows
    assert counted.columns == frozenset()
    assert db.execute("SELECT a, SUM(x) FROM t GROUP BY a").rows
    assert counted.columns == {"x"}


def test_all_tables_are_read_at_one_moment(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of a self-join see the same rows, whatever is written meanwhile."""
    scan = LocalSnapshot.scan

    def write_meanwhile(held: LocalSnapshot, *args: object, **options: object) -> Iterator[tuple[bytes, bytes]]:
        db.table("t").put("late", 1, 1, {"x": 1})
        return scan(held, *args, **options)

    monkeypatch.setattr(LocalSnapshot, "scan", write_meanwhile)
    alone = "SELECT COUNT(*) FROM t p LEFT ANTI JOIN t q ON p.a = q.a AND p.b = q.b AND p.c = q.c"
    assert db.execute(alone).rows == ((0,),)
    assert db.execute("SELECT COUNT(*) FROM t").rows == ((ROWS + 1,),)
    db.table("t").delete("late", 1, 1)


def test_what_the_store_says_is_what_is_raised(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> Iterator[tuple[bytes, bytes]]:
        raise vk.CorruptStore("the directory is damaged")
        yield

    monkeypatch.setattr(LocalSnapshot, "scan", broken)
    with pytest.raises(vk.CorruptStore, match="damaged"):
        db.execute("SELECT COUNT(*) FROM t")
