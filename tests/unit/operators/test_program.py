"""The program of an epoch: splits cover the input once, managers share it without overlap, groups stay sane."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viewkeeper as vk
from tests.support.running import (
    HereRunner,
    ManagersRunner,
    apply_inputs,
    begin_epoch,
    commit_epoch,
    inputs_of,
    keep_up,
    plan_of,
)
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.view_managers import owners_of_shards
from viewkeeper.errors import ViewFailed
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Chunk, Cut
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import STRING
from viewkeeper.operators import operator
from viewkeeper.operators.apply import differs
from viewkeeper.operators.inputs import plan_splits
from viewkeeper.operators.program import split_by_manager
from viewkeeper.plan.nodes import Edge, ProjectNode
from viewkeeper.plan.physical import PhysicalPlan

RANGES = st.dictionaries(
    st.sampled_from(["0", "1", "rs1,7"]), st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=3
)


class Halves:
    """A log that is cut where it likes."""

    def pieces(self, stream: str, start: int, stop: int, *, count: int) -> list[int]:
        return sorted({start, (start + stop) // 2, stop} if count > 1 else {start, stop})


def node(table: int, source: int) -> ProjectNode:
    key = (Column("k", STRING),)
    return ProjectNode(table, (Edge(source, (), key, "", None, None),), key, (), backfill=table)


@given(RANGES, st.integers(1, 9), st.booleans(), st.booleans())
def test_splits_cover_every_range_once_and_every_table_to_be_filled(
    ranges: dict, pieces: int, some_filled: bool, some_new: bool
) -> None:
    tables = tuple(TableSchema(TableId(number), f"t{number}", (Column("k", STRING),), ("k",)) for number in (1, 2))
    plan = PhysicalPlan(
        tables, (*([node(10, 1)] if some_filled else []), *([node(11, 2), node(12, 2)] if some_new else []))
    )
    start = {stream: low for stream, (low, _) in ranges.items()}
    stop = {stream: low + size for stream, (low, size) in ranges.items()}
    chunk = Chunk(2, (11, 12), {part: (b"", b"g", None) for part in range(3)}, 4, 40, 4, opens=True)
    epoch = Inflight(1, start, Cut(stop, 0, 0, tuple("abcde")), {}, 0, (), (chunk,) if some_new else ())
    splits = plan_splits(Halves(), plan, epoch, pieces=pieces)
    covered = [
        (split.stream, position)
        for split in splits
        if split.chunk is None
        for position in range(split.start, split.stop)
    ]
    expected = [(stream, position) for stream in stop for position in range(start[stream], stop[stream])]

    assert [split.number for split in splits] == list(range(len(splits)))
    assert sorted(covered) == (sorted(expected) if some_filled else [])
    staged = [split.staged for split in splits if split.staged]
    assert sorted(sum(staged, ())) == (list("abcde") if some_filled else [])
    assert len(staged) == (min(pieces, 5) if some_filled else 0)
    filled = [(split.part, split.low, split.high) for split in splits if split.chunk is not None]
    assert filled == ([(part, *keys) for part in range(3) for keys in ((b"", b"g"), (b"g", None))] if some_new else [])
    assert sum(split.opens for split in splits) == bool(filled)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=30), st.integers(1, 30))
def test_managers_share_a_table_without_overlap(hashes: list[int], managers: int) -> None:
    owners = owners_of_shards(8, managers)
    table = pa.table({"hash": pa.array(hashes, pa.uint32()), "number": pa.array(range(len(hashes)), pa.int64())})
    parts = dict(split_by_manager(table, owners))

    assert sorted(n for part in parts.values() for n in part["number"].to_pylist()) == list(range(len(hashes)))
    for manager, part in parts.items():
        assert {owners[value % len(owners)] for value in part["hash"].to_pylist()} == {manager}


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=2)), min_size=1, max_size=12
    ),
    st.data(),
)
def test_the_last_event_of_a_record_is_its_state_in_whatever_order_they_come(events: list, data: st.DataObject) -> None:
    expected = dict(events)
    numbered = data.draw(st.permutations(list(enumerate(events))))
    split = data.draw(st.integers(0, len(numbered)))
    parts = [
        pa.table(
            {
                "key": pa.array([key for _, (key, _) in part], pa.binary()),
                "hash": pa.array([key[0] for _, (key, _) in part], pa.uint32()),
                "ord": pa.array([order for order, _ in part], pa.int64()),
                "row": pa.array([row for _, (_, row) in part], pa.binary()),
            }
        )
        for part in (numbered[:split], numbered[split:])
    ]
    usual = operator._FEW_EVENTS
    try:
        operator._FEW_EVENTS = data.draw(st.sampled_from((0, usual)))
        fewer = [operator.fewer_events([part]) for part in parts]
    finally:
        operator._FEW_EVENTS = usual
    for given_parts in (parts, fewer, [pa.concat_tables(fewer)]):
        found = operator.last_events(given_parts, partitions=2)
        assert dict(zip(found["key"].to_pylist(), found["row"].to_pylist(), strict=True)) == expected
        assert found["key"].to_pylist() == sorted(expected, key=lambda key: (key[0] % 2, key))


@given(st.lists(st.tuples(st.none() | st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=9))
def test_rows_differ_where_python_says_so(pairs: list) -> None:
    left, right = (pa.array([pair[side] for pair in pairs], pa.binary()) for side in (0, 1))

    assert differs(left, right).tolist() == [a != b for a, b in pairs]


def make(path: Path, view: str) -> vk.Database:
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute(f"CREATE TABLE t (k STRING PRIMARY KEY, x STRING, y BIGINT); {view}")
    return db


def test_a_group_that_would_lose_rows_it_does_not_have_stops_the_epoch(tmp_path: Path) -> None:
    db = make(tmp_path / "s", "CREATE MATERIALIZED VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    db.table("t").put("k", {"x": "a"})
    keep_up(db)
    db.table("t").delete("k")
    epoch = begin_epoch(db.store)
    plan, everywhere = plan_of(db.store, epoch), frozenset(range(db.store.partitions))
    (inputs,) = inputs_of(db.store, plan, epoch)

    with pytest.raises(ViewFailed, match="would hold -1 rows"):
        apply_inputs(db.store, plan, epoch, inputs + inputs, everywhere)
    HereRunner(db.store).run(plan, epoch)
    commit_epoch(db.store, epoch)
    assert list(db.view("v").scan()) == []


@pytest.mark.parametrize("managers", [1, 3])
def test_a_row_that_leaves_and_comes_back_in_one_epoch_is_written_as_it_ended(tmp_path: Path, managers: int) -> None:
    db = make(
        tmp_path / "s", "CREATE INDEX v ON t (x) INCLUDE (y); CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t"
    )
    table = db.table("t")
    table.put("k", {"x": "a", "y": 1})
    keep_up(db)
    table.put("k", {"x": "b"})
    table.delete("k")
    table.put("k", {"x": "a", "y": 2})
    (done,) = Coordinator(db.store, ManagersRunner(db.store, managers)).catch_up()

    assert done.changes == 3
    assert list(db.view("v").scan()) == [{"x": "a", "k": "k", "y": 2}]
    assert db.view("n").get() == {"n": 1}


def test_changes_that_cancel_write_nothing(tmp_path: Path) -> None:
    """No write when nothing changes (`docs/epochs.md`, section 3)."""
    db = make(
        tmp_path / "s", "CREATE MATERIALIZED VIEW v AS SELECT x, SUM(y) AS s FROM t GROUP BY x; CREATE INDEX i ON t (x)"
    )
    table = db.table("t")
    table.put("k", {"x": "a", "y": 1})
    table.put("l", {"x": "a", "y": 2})
    keep_up(db)
    table.put("k", {"x": "b"})
    table.put("k", {"x": "a", "y": 2})
    table.put("l", {"y": 1})
    epoch = begin_epoch(db.store)
    plan = plan_of(db.store, epoch)
    (inputs,) = inputs_of(db.store, plan, epoch)

    assert apply_inputs(db.store, plan, epoch, inputs, frozenset(range(db.store.partitions))) == 0


def test_a_split_that_holds_nothing_of_a_views_table_gives_it_nothing(tmp_path: Path) -> None:
    db = make(tmp_path / "s", "CREATE MATERIALIZED VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    db.execute("CREATE TABLE other (k BIGINT PRIMARY KEY)")
    keep_up(db)
    db.table("other").put(1, {})
    epoch = begin_epoch(db.store)
    plan = plan_of(db.store, epoch)

    assert inputs_of(db.store, plan, epoch, pieces=2) == [[]]
    HereRunner(db.store).run(plan, epoch)
    commit_epoch(db.store, epoch)
    assert db.store.read_epoch_record().positions == db.store.ends()


def test_the_row_count_of_an_epoch_is_exact_at_the_largest_sums(tmp_path: Path) -> None:
    db = make(tmp_path / "s", "CREATE MATERIALIZED VIEW v AS SELECT COUNT(y) AS n, SUM(y) AS s, AVG(y) AS a FROM t")
    table, most = db.table("t"), 2**63 - 1
    for number in range(5):
        table.put(f"k{number}", {"y": most})
    keep_up(db)
    assert db.view("v").get() == {"n": 5, "s": None, "a": 5 * most / 5}  # the sum does not fit, the average does
    for number in range(1, 5):
        table.put(f"k{number}", {"y": None})
    keep_up(db)

    assert db.view("v").get() == {"n": 1, "s": most, "a": float(most)}
