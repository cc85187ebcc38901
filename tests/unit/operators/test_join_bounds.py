"""⋈ is bounded: it reads the other side of what changed and no more, and gives pairs in pieces, whose size is no matter."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.dump import dump, written_by
from tests.support.joining import VIEWS, change_at_random, delete, join_of, make_joins, put, wrong
from tests.support.running import keep_up
from viewkeeper.model.keys import decode_key
from viewkeeper.operators import join, program, reverse_join
from viewkeeper.plan.nodes import SIDE, JoinNode
from viewkeeper.settings import WorkSettings
from viewkeeper.stores.local import partition

HOT = 1_000
LEFT, RIGHT = 0, 1


@dataclass
class Reads:
    """What was read by prefix: the side of each prefix that was asked for, and how many records came back."""

    sides: list[int] = field(default_factory=list)
    records: int = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Follows every scan of join entries from here on."""
    from viewkeeper.stores.local.embedded_store import EmbeddedStore

    seen, scan = Reads(), EmbeddedStore.scan_prefixes

    def followed(
        store: EmbeddedStore, number: int, table: int, prefixes: list, *args: object, **kw: object
    ) -> Iterator:
        joins = [node for node in store_nodes(store) if isinstance(node, JoinNode) and node.table == table]
        for node in joins:
            seen.sides += [decode_key((*node.on, SIDE), prefix)[-1] for prefix in prefixes]
        for batch in scan(store, number, table, prefixes, *args, **kw):
            seen.records += len(batch)
            yield batch

    monkeypatch.setattr(EmbeddedStore, "scan_prefixes", followed)
    return seen


def store_nodes(store: object) -> list:
    from viewkeeper.catalog.catalog import Catalog
    from viewkeeper.plan.planner import physical_plan

    return list(physical_plan(Catalog.from_json(store.read_catalog())).nodes)


def hot_key(path: Path, name: str, *, right: int = 1) -> vk.Database:
    """One join key with a thousand rows on the left and few on the right, all of them matches."""
    db = make_joins(path / "s", name)
    put(db, "l", {f"l{number:04}": ("hot", 1) for number in range(HOT)})
    put(db, "r", {f"r{number}": ("hot", 9) for number in range(right)})
    keep_up(db)
    return db


def forget(reads: Reads) -> None:
    reads.sides.clear()
    reads.records = 0


@pytest.mark.parametrize("name", VIEWS)
def test_one_left_row_under_a_hot_key_reads_the_right_side_alone(tmp_path: Path, reads: Reads, name: str) -> None:
    db = hot_key(tmp_path, name)
    forget(reads)
    for change in ({"l0007": ("hot", 2)}, {"new": ("hot", 1)}, {"l0008": ("cold", 1)}, {"l0008": (None, 1)}):
        put(db, "l", change)
        keep_up(db)
    delete(db, "l", "l0009")
    keep_up(db)

    assert LEFT not in reads.sides
    assert reads.records <= 5  # the one right row, for each change at most
    if name in ("semi", "anti"):  # the counts say it all
        assert reads.sides == []
    assert wrong(db) == {}


@pytest.mark.parametrize("name", VIEWS)
def test_one_right_row_reads_the_left_side_alone(tmp_path: Path, reads: Reads, name: str) -> None:
    db = make_joins(tmp_path / "s", name)
    put(db, "l", {f"l{number}": ("j", 1) for number in range(5)})
    put(db, "r", {f"r{number:04}": ("j", 9) for number in range(HOT)})
    keep_up(db)
    forget(reads)
    put(db, "r", {"r0007": ("j", 0)})
    keep_up(db)
    put(db, "r", {"r0007": ("elsewhere", 0)})
    keep_up(db)

    assert RIGHT not in reads.sides
    assert reads.records <= 2 * 5
    assert wrong(db) == {}


@pytest.mark.parametrize("name", ["semi", "anti"])
def test_a_count_that_neither_leaves_nor_reaches_0_reads_no_left_entries(
    tmp_path: Path, reads: Reads, name: str
) -> None:
    db = hot_key(tmp_path, name, right=2)
    forget(reads)
    put(db, "r", {"r1": ("hot", 5), "r2": ("hot", 9)})  # from 2 to 3, and a value
    keep_up(db)
    delete(db, "r", "r1", "r2")  # from 3 to 1
    keep_up(db)
    delete(db, "r", "r0")  # one goes and one comes: 1 before, 1 after
    put(db, "r", {"r9": ("hot", 5)})
    keep_up(db)
    assert (reads.sides, reads.records) == ([], 0)
    assert [table for table, _, _ in written_by(db.store, db.epoch)] == [join_of(db, name).table] * 2
    delete(db, "r", "r9")  # from 1 to 0: now every left row is told of
    keep_up(db)

    assert reads.sides == [LEFT] and reads.records == HOT
    assert wrong(db) == {}


@pytest.mark.parametrize("name", ["left", "full", "anti", "semi"])
def test_a_row_that_matches_nothing_reads_nothing(tmp_path: Path, reads: Reads, name: str) -> None:
    db = hot_key(tmp_path, name)
    forget(reads)
    put(db, "l", {"lonely": ("nowhere", 1), "null": (None, 1)})
    keep_up(db)

    assert reads.records == 0
    assert wrong(db) == {}


def test_a_join_of_three_on_one_key_reads_the_sides_that_did_not_change(tmp_path: Path, reads: Reads) -> None:
    db = three_tables(tmp_path)
    put_three(db, 4)
    keep_up(db)
    for turn, table in enumerate("lrs"):
        forget(reads)
        db.table(table).put("0", {"v": 99})
        keep_up(db)
        assert turn not in reads.sides and set(reads.sides) == {0, 1, 2} - {turn}
    assert db.view("v").get("j") == {"j": "j", "n": 64, "s": 16 * (99 + 1 + 2 + 3)}


def three_tables(path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{path / 's'}?sync=off")
    for table in "lrs":
        db.execute(f"CREATE TABLE {table} (k STRING PRIMARY KEY, j STRING, v INT)")
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT l.j, COUNT(*) AS n, SUM(s.v) AS s "
        "FROM l JOIN r ON l.j = r.j JOIN s ON s.j = r.j GROUP BY l.j"
    )
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT l.v, r.v AS u, s.k FROM l JOIN r ON l.j = r.j JOIN s ON s.j = r.j")
    return db


def put_three(db: vk.Database, count: int) -> None:
    for table in "lrs":
        db.table(table).put_many([{"k": str(number), "j": "j", "v": number} for number in range(count)])


@dataclass
class Handed:
    """How many rows each piece had that a join read of a side, that it gave, and that a level handed on."""

    settings: WorkSettings
    read: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    handed_on: list[int] = field(default_factory=list)


def make_pieces_small(monkeypatch: pytest.MonkeyPatch, *, pairs: int, rows: int, handed_on: int = 10) -> Handed:
    """Pieces of so many pairs and rows of a side at most; follows how large they are."""
    monkeypatch.setattr(partition, "_SCAN_RECORDS", rows)
    settings = WorkSettings(pairs=pairs, side_rows=rows, rows_handed_on=handed_on)
    seen, delta, apply, stored = Handed(settings), join._delta, program.StagePart.apply, reverse_join._stored_rows

    def follow_side(node: JoinNode, side: int, parts: list) -> object:
        seen.read.append(sum(map(len, parts)))
        return stored(node, side, parts)

    def follow_delta(node: JoinNode, given: pa.Table) -> object:
        seen.given.append(len(given))
        return delta(node, given)

    def follow_level(level: program.StagePart, inputs: list) -> Iterator[list]:
        passed_by = sum(len(one.rows) for one in inputs)
        for number, piece in enumerate(apply(level, inputs)):
            size = sum(len(one.rows) for one in piece)
            seen.handed_on.append(size if number else max(0, size - passed_by))
            yield piece

    monkeypatch.setattr(reverse_join, "_stored_rows", follow_side)
    monkeypatch.setattr(join, "_delta", follow_delta)
    monkeypatch.setattr(program.StagePart, "apply", follow_level)
    return seen


@pytest.mark.parametrize(("pairs", "rows"), [(1, 1), (3, 2)])
def test_the_size_of_pieces_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: int, rows: int
) -> None:
    names = ("inner", "left", "full_if", "anti", "semi_if", "full_count")
    whole, small = (make_joins(tmp_path / name, *names) for name in ("whole", "small"))
    for seed in range(2):
        for db in (whole, small):
            change_at_random(db, random.Random(seed), changes=15, join_keys=2)
        keep_up(whole)
        with monkeypatch.context() as patch:
            handed = make_pieces_small(patch, pairs=pairs, rows=rows)
            keep_up(small, settings=handed.settings)
        assert len(handed.given) > 10
    assert wrong(small) == {}
    assert dump(small.store) == dump(whole.store)


@pytest.mark.parametrize("name", ["inner", "left", "full_if", "left_count"])
def test_pairs_of_a_hot_key_are_given_in_bounded_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    db = make_joins(tmp_path / "s", name)
    put(db, "l", {f"l{number}": ("hot", number % 5) for number in range(40)})
    keep_up(db)
    put(db, "r", {f"r{number}": ("hot", 9) for number in range(30)})
    handed = make_pieces_small(monkeypatch, pairs=50, rows=20, handed_on=60)
    keep_up(db, settings=handed.settings)
    assert sum(handed.given) >= 40 * 30
    assert sum(handed.read) == 40 and max(handed.read) <= 20  # each entry once
    assert max(handed.given) <= 50
    assert max(handed.handed_on) < 60 + 50
    assert wrong(db) == {}
    handed.given.clear()
    delete(db, "r", *(f"r{number}" for number in range(30)))  # what has no match any more comes in pieces of a side
    keep_up(db, settings=handed.settings)

    assert max(handed.given) <= 50
    assert wrong(db) == {}


def test_triples_are_given_in_bounded_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = three_tables(tmp_path)
    handed = make_pieces_small(monkeypatch, pairs=40, rows=5)
    put_three(db, 8)
    keep_up(db, settings=handed.settings)
    assert sum(handed.given) == 2 * 8**3
    assert max(handed.given) <= 40
    db.table("r").put("0", {"v": 50})
    db.table("s").delete("7")
    keep_up(db, settings=handed.settings)

    assert max(handed.given) <= 40
    assert db.view("v").get("j") == {"j": "j", "n": 8 * 8 * 7, "s": 64 * sum(range(7))}
    assert sum(row["u"] == 50 for row in db.view("w").scan()) == 8 * 7
