"""A view that fails, in whichever of its nodes, is stopped as a whole; every other view goes on, in the same epoch's work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import viewkeeper as vk
from tests.support.dump import dump, written_by
from tests.support.plans import nodes_of
from tests.support.running import HereRunner, ManagersRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import EpochFailed, InvariantBroken
from viewkeeper.operators import join, program, topn
from viewkeeper.plan.nodes import AggregateNode, JoinNode, TopNode
from viewkeeper.stores.kv.kernel import range_after, table_prefix
from viewkeeper.stores.version_chains import versions_of

VIEWS = {
    "kept": "SELECT t.k, u.y FROM t LEFT JOIN u ON t.g = u.g",
    "histogram": "SELECT n, COUNT(*) AS c FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) q GROUP BY n",
    "highest": "SELECT g, n FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) q ORDER BY n DESC, g LIMIT 2",
    "over": "SELECT k FROM kept WHERE y > 1",  # over one that fails
    "same": "SELECT t.k, u.y FROM t LEFT JOIN u ON t.g = u.g WHERE t.g IS NOT NULL",
    "plain": "SELECT g, COUNT(*) AS n FROM t GROUP BY g",
}


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute(
        "CREATE TABLE t (k STRING PRIMARY KEY, g STRING); CREATE TABLE u (k STRING PRIMARY KEY, g STRING, y INT)"
    )
    for name, text in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    db.table("t").put_many([{"k": k, "g": g} for k, g in (("a", "p"), ("b", "p"), ("c", "q"))])
    db.table("u").put("x", {"g": "p", "y": 5})
    keep_up(db)
    return db


def stopped(db: vk.Database) -> dict[str, str]:
    return {view.name: view.stopped for view in db.status().views if view.stopped is not None}


def needing(db: vk.Database, table: int) -> list[str]:
    """The views that a node is needed by."""
    return [view.name for view in db.catalog().views if table in view.needs]


def wrong(db: vk.Database, *left_out: str) -> list[str]:
    with duckdb.connect() as connection:
        for name in "tu":
            connection.register(name, db.table(name).to_arrow())
        for name, text in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {text}")
        return [
            name
            for name in VIEWS
            if name not in left_out
            and sorted(map(repr, connection.sql(f"SELECT * FROM {name}").fetchall()))
            != sorted(repr(tuple(row.values())) for row in db.view(name).scan())
        ]


def spoil(db: vk.Database, table: int | None, change: Callable[[bytes], bytes]) -> None:
    """Put other rows into the records of a table, as a fault of ours or of the disk would."""
    assert table is not None
    for number in range(db.store.partitions):
        with db.store.partition(number).kernel.write("records") as records:
            pairs = [pair for part in records.lists(*range_after(table_prefix(table), b"", None)) for pair in part]
            for key, chain in pairs:
                ((_, row),) = versions_of(chain)
                records.put(key, chain[: len(chain) - len(row or b"")] + change(row or b""))


def zeros(row: bytes) -> bytes:
    return row[:3] + bytes(len(row) - 3)


def change_all(db: vk.Database) -> None:
    db.table("u").delete("x")
    db.table("t").put("d", {"g": "q"})
    db.table("t").delete("a")


@pytest.mark.parametrize("managers", [1, 3])
def test_a_join_that_finds_less_than_nothing_stops_the_views_that_need_it_alone(db: vk.Database, managers: int) -> None:
    node = nodes_of(db.catalog(), "kept")[0]
    assert isinstance(node, JoinNode)
    spoil(db, node.counts, zeros)
    change_all(db)
    Coordinator(db.store, ManagersRunner(db.store, managers)).catch_up()

    assert list(stopped(db)) == ["kept", "over"] and "would have -1 rows" in stopped(db)["kept"]
    assert wrong(db, "kept", "over") == []
    with pytest.raises(
        vk.NotReady,
        match="view kept is stopped: internal error, please report it \\(InvariantBroken\\): a join key",
    ):
        list(db.view("kept").scan())
    assert f"view kept is stopped: {stopped(db)['kept']}; viewkeeper rebuild URL kept" in db.status().warnings


def test_groups_inside_a_view_that_would_hold_less_than_nothing_stop_those_that_have_them_alone(
    db: vk.Database,
) -> None:
    node = nodes_of(db.catalog(), "histogram")[0]
    assert isinstance(node, AggregateNode) and node.table != db.catalog().view("histogram").node.table
    spoil(db, node.table, zeros)
    change_all(db)
    keep_up(db)

    affected = ["histogram", "highest", "plain"]  # which have the grouping in common
    assert list(stopped(db)) == needing(db, node.table) == affected
    assert "would hold" in stopped(db)["histogram"]
    assert wrong(db, *affected) == []


NODES = {"kept": JoinNode, "histogram": AggregateNode, "highest": TopNode}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("kept", InvariantBroken("no")),
        ("histogram", duckdb.ConversionException("no")),
        ("highest", OverflowError("no")),
    ],
)
def test_a_node_of_any_kind_and_level_that_fails_stops_the_views_that_need_it_alone(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    nodes, apply, failed = nodes_of(db.catalog(), name), program.StagePart._apply_node, []
    (table,) = [node.table for node in nodes[:-1] if isinstance(node, NODES[name])][-1:]
    fed = {number for node in nodes if node.table >= table for number in node.tables}

    def fail(part: object, applier: object, node: object, *rest: object) -> object:
        if node.table == table:
            failed.append(node)
            raise error
        return apply(part, applier, node, *rest)

    monkeypatch.setattr(program.StagePart, "_apply_node", fail)
    change_all(db)
    before = {table for table, _, _ in dump(db.store)} & fed
    keep_up(db)
    assert len(failed) == 2  # the second attempt is the last
    assert list(stopped(db)) == needing(db, table) and name in stopped(db)
    assert wrong(db, *stopped(db)) == []
    change_more(db)
    keep_up(db)

    assert len(failed) == 2 and before  # neither it nor what reads it is run any more
    assert not {table for table, _, _ in written_by(db.store, db.epoch)} & fed
    assert wrong(db, *stopped(db)) == []


def change_more(db: vk.Database) -> None:
    db.table("t").put("e", {"g": "r"})
    db.table("u").put("y", {"g": "r", "y": 9})


def test_what_fails_between_two_nodes_is_the_readers(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The delta rows of one node are made into the input of the next: its view is told of."""
    view, ranked = db.catalog().view("highest"), topn.ranked_events

    def fail(node: TopNode, rows: object) -> object:
        raise InvariantBroken("no order") if node.table in view.needs else AssertionError

    monkeypatch.setattr(topn, "ranked_events", fail)
    change_all(db)
    keep_up(db)
    monkeypatch.setattr(topn, "ranked_events", ranked)

    assert stopped(db) == {"highest": "internal error, please report it (InvariantBroken): no order"}
    assert wrong(db, "highest") == []


def test_what_fails_over_the_rows_of_a_table_is_the_readers(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    view, entries = db.catalog().view("kept"), join.entry_events

    def fail(node: JoinNode, side: int, rows: object) -> object:
        if node.table in view.needs:
            raise InvariantBroken("no entries")
        return entries(node, side, rows)

    monkeypatch.setattr(join, "entry_events", fail)
    change_all(db)
    keep_up(db)

    assert stopped(db) == dict.fromkeys(
        ["kept", "over"], "internal error, please report it (InvariantBroken): no entries"
    )
    assert wrong(db, "kept", "over") == []


def test_what_fails_in_the_midst_of_pieces_is_the_joins(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join gives its pairs piece by piece; what went before the failing piece is aborted with the epoch."""
    node, given = nodes_of(db.catalog(), "kept")[0], join._delta
    pieces = []

    def fail_at_the_second(about: JoinNode, rows: object) -> object:
        if about.table == node.table:
            pieces.append(rows)
            if len(pieces) % 2 == 0:
                raise InvariantBroken("no second piece")
        return given(about, rows)

    monkeypatch.setattr(join, "_delta", fail_at_the_second)
    change_all(db)
    keep_up(db)

    assert list(stopped(db)) == ["kept", "over"] and len(pieces) == 4
    assert wrong(db, "kept", "over") == []


def test_a_view_that_was_stopped_may_be_made_anew_or_replaced(db: vk.Database) -> None:
    node = nodes_of(db.catalog(), "same")[0]
    assert isinstance(node, JoinNode)
    spoil(db, node.counts, zeros)
    change_all(db)
    keep_up(db)
    assert list(stopped(db)) == ["same"]
    db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW same AS {VIEWS['same']}")
    keep_up(db)

    assert stopped(db) == {} and wrong(db) == []
    change_more(db)
    keep_up(db)
    assert wrong(db) == []


def test_two_views_that_fail_are_stopped_one_after_the_other(db: vk.Database) -> None:
    for name in ("kept", "same"):
        node = nodes_of(db.catalog(), name)[0]
        assert isinstance(node, JoinNode)
        spoil(db, node.counts, zeros)
    change_all(db)
    keep_up(db)

    assert set(stopped(db)) == {"kept", "over", "same"}
    assert wrong(db, "kept", "over", "same") == []


def test_what_is_nobodys_fault_stops_no_view(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*arguments: object) -> object:
        raise duckdb.OutOfMemoryException("no memory")

    monkeypatch.setattr(join, "_delta", no_memory)
    change_all(db)
    with pytest.raises((duckdb.OutOfMemoryException, EpochFailed)):
        Coordinator(db.store, HereRunner(db.store)).catch_up()
    assert stopped(db) == {}
    monkeypatch.undo()
    keep_up(db)

    assert wrong(db) == []
