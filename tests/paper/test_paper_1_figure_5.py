"""Paper 1 (VMS over KV stores), section 4.3, figure 5: one put on its way through DELTA, PRE-AGGREGATION, SUM, MIN, JOIN.

The views, and the plan that they have together, stand in `tests/golden/papers/paper_1_figure_5.plan`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.golden.test_plans import RULE
from tests.support.dump import chain_epochs, dump, written_by
from tests.support.plans import nodes_of
from tests.support.running import Interrupted, ManagersRunner, RunThenDie, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.entryblocks import decode_blocks
from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.keys import decode_key
from viewkeeper.model.rowcodec import decode_row
from viewkeeper.model.schema import TableId, TableSchema
from viewkeeper.plan.nodes import SIDE, AggregateNode, Entries, JoinNode
from viewkeeper.stores.version_chains import versions_of

PLAN = Path(__file__).parents[1] / "golden" / "papers" / "paper_1_figure_5.plan"
A = [("k1", "x1", 30), ("k2", "x2", 20), ("k3", "x2", 50), ("k4", "x1", 40)]
B = [("l1", "x1", 5), ("l2", "x2", 6), ("l3", "x2", 7), ("l4", "x9", 8)]
GONE = None


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images=off")
    db.execute(PLAN.read_text(encoding="utf-8").split(RULE)[0])
    for name, rows in (("a", A), ("b", B)):
        db.table(name).put_many([{"rk": k, "c1": x, "c2": y} for k, x, y in rows])
    keep_up(db)
    return db


def delta_of(table: TableSchema) -> TableId:
    assert table.delta is not None
    return table.delta


def reverse_join(db: vk.Database) -> JoinNode:
    node = nodes_of(db.catalog(), "joined")[0]
    assert isinstance(node, JoinNode)
    return node


def minima(db: vk.Database) -> AggregateNode:
    (node,) = nodes_of(db.catalog(), "minima")
    assert isinstance(node, AggregateNode)
    return node


def touched(db: vk.Database, epoch: int) -> dict[str, dict[tuple, tuple | None]]:
    """What an epoch wrote: for each table by its name in the figure, key → row, both decoded; None where a record went."""
    catalog, join, aggregation = db.catalog(), reverse_join(db), minima(db)
    (entries,) = aggregation.entries
    sums, joined = catalog.view("sums").node, catalog.view("joined").node
    layouts = {
        delta_of(table): (f"DELTA {table.name}", table.key_columns, table.value_columns) for table in catalog.tables
    }
    layouts |= {
        sums.table: ("SUM", sums.key, sums.row),
        aggregation.table: ("MIN", aggregation.key, aggregation.row),
        joined.table: ("JOIN", joined.key, joined.row),
    }
    found: dict[str, dict[tuple, tuple | None]] = {}
    for table, key, row in written_by(db.store, epoch):
        if table == join.table:
            side = decode_key((*join.on, SIDE), key)[1]
            name, keys, columns = "REVERSE-JOIN", (*join.on, SIDE, *join.sides[side].key), join.sides[side].row
        elif table == entries.table:
            (group,) = decode_key(aggregation.key, key)
            found.setdefault("PRE-AGGREGATION", {})[group,] = multiplicities(entries, row)
            continue
        else:
            name, keys, columns = layouts[table]
        values = GONE if row is None else tuple(decode_row(columns, row))
        found.setdefault(name, {})[tuple(decode_key(keys, key))] = values
    return found


def multiplicities(entries: Entries, row: bytes | None) -> tuple:
    """The values of a group's one block, with how many rows have each."""
    blocks = decode_blocks(pa.array([row], pa.binary()), 1)
    (values,) = decode_keys(entries.values, blocks.values.strings.to_arrow())
    return tuple(zip(values.to_pylist(), blocks.counts.tolist(), strict=True))


def versions_in(db: vk.Database, table: int, key: str) -> list[tuple[object, ...]]:
    """The rows of DELTA A under a key, newest first."""
    columns = db.catalog().table("a")
    for at, stored, chain in dump(db.store):
        if at == table and decode_key(columns.key_columns, stored) == [key]:
            return [tuple(decode_row(columns.value_columns, row)) for _, row in versions_of(chain) if row is not None]
    return []


def test_the_views_before_the_put_are_those_of_the_figure(db: vk.Database) -> None:
    assert list(db.view("sums").scan()) == [{"c1": "x1", "total": 70}, {"c1": "x2", "total": 70}]
    assert list(db.view("minima").scan()) == [{"c1": "x1", "least": 30}, {"c1": "x2", "least": 20}]
    assert [tuple(row.values()) for row in db.view("joined").scan()] == [
        ("k1", "l1", "x1", 30, 5),
        ("k2", "l2", "x2", 20, 6),
        ("k2", "l3", "x2", 20, 7),
        ("k3", "l2", "x2", 50, 6),
        ("k3", "l3", "x2", 50, 7),
        ("k4", "l1", "x1", 40, 5),
    ]


@pytest.mark.parametrize("managers", [1, 3])
@pytest.mark.parametrize("dies", [False, True], ids=["in one run", "run again"])
def test_one_put_changes_the_records_on_its_way_and_no_others(db: vk.Database, managers: int, dies: bool) -> None:
    db.table("a").put("k3", {"c2": 10})  # (1)
    if dies:
        with pytest.raises(Interrupted):
            Coordinator(db.store, RunThenDie(ManagersRunner(db.store, managers))).catch_up()
    (done,) = Coordinator(db.store, ManagersRunner(db.store, managers)).catch_up()

    assert done.changes == 1
    assert touched(db, done.epoch) == {
        "DELTA a": {("k3",): ("x2", 10)},  # (2)
        "PRE-AGGREGATION": {("x2",): ((10, 1), (20, 1))},  # (3), for MIN: 10 is new, 50 is gone
        "REVERSE-JOIN": {("x2", 0, "k3"): (10,)},  # (3), for JOIN; k3 and x2 stand in the key
        "SUM": {("x2",): (2, 2, 30, 30)},  # (4): rows, values, their exact sum, and what is shown
        "MIN": {("x2",): (2, 10)},  # (4)
        "JOIN": {("k3", "l2"): ("x2", 10, 6), ("k3", "l3"): ("x2", 10, 7)},  # (5)
    }


def test_the_delta_says_50_to_10(db: vk.Database) -> None:
    """Step (2): the record holds the row of the epoch, and the one before it."""
    delta = delta_of(db.catalog().table("a"))
    db.table("a").put("k3", {"c2": 10})
    keep_up(db)

    assert versions_in(db, delta, "k3") == [("x2", 10), ("x2", 50)]
    assert sorted(chain_epochs(db.store, delta).values()) == [[1], [1], [1], [2, 1]]


def test_the_sum_and_the_minimum_of_x2_are_evaluated_anew_and_the_join_has_the_new_value(db: vk.Database) -> None:
    db.table("a").put("k3", {"c2": 10})
    keep_up(db)

    assert list(db.view("sums").scan()) == [{"c1": "x1", "total": 70}, {"c1": "x2", "total": 30}]
    assert list(db.view("minima").scan()) == [{"c1": "x1", "least": 30}, {"c1": "x2", "least": 10}]
    assert [row["a2"] for row in db.view("joined").scan("k3")] == [10, 10]
    db.table("a").delete("k3")  # and back: the second smallest takes over without a look at the table
    keep_up(db)
    assert db.view("minima").get("x2") == {"c1": "x2", "least": 20}


def test_a_put_that_changes_the_secondary_key_touches_both_of_its_groups(db: vk.Database) -> None:
    db.table("a").put("k3", {"c1": "x1"})
    keep_up(db)
    found = touched(db, db.epoch)

    assert found["REVERSE-JOIN"] == {("x1", 0, "k3"): (50,), ("x2", 0, "k3"): GONE}
    assert found["PRE-AGGREGATION"] == {("x1",): ((30, 1), (40, 1), (50, 1)), ("x2",): ((20, 1),)}
    assert set(found["SUM"]) == {("x1",), ("x2",)}
    assert found["MIN"] == {("x1",): (3, 30), ("x2",): (1, 20)}  # no minimum moved; the row counts beside them did
    assert found["JOIN"] == {("k3", "l1"): ("x1", 50, 5), ("k3", "l2"): GONE, ("k3", "l3"): GONE}


def test_a_put_of_what_is_there_already_writes_nothing(db: vk.Database) -> None:
    db.table("a").put("k3", {"c2": 10})
    db.table("a").put("k3", {"c2": 50})
    keep_up(db)

    assert db.epoch == 2
    assert touched(db, 2) == {}
