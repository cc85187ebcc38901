"""σ and π over one source: a row that fails is marked, evaluated no further and set aside once; keys of unions."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.plans import with_view
from tests.support.running import ManagersRunner, keep_up
from viewkeeper.catalog.catalog import Catalog
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import BIGINT, DATE, INT, STRING, SqlType
from viewkeeper.operators.delta_rows import run_edge
from viewkeeper.plan.define import lower
from viewkeeper.plan.lower import Lowered

MOST = 2**31 - 1
T = TableSchema(
    TableId(1), "t", (Column("k", STRING, False), Column("g", STRING), Column("x", INT), Column("y", INT)), ("k",)
)


def lowered(text: str, *others: TableSchema) -> Lowered:
    catalog = Catalog().with_table(T)
    for table in others:
        catalog = catalog.with_table(table)
    catalog = with_view(catalog, "v", text)
    return lower(catalog, catalog.view("v"))


def rows_of(view: Lowered, delta: list[tuple[str, str | None, int | None, int | None]]) -> list[dict]:
    """What the first edge of a view's first node makes of rows of t that came."""
    (edge, *_) = view.nodes[0].edges
    relation = pa.table(
        {
            "ord": pa.array(range(len(delta)), pa.int64()),
            "sign": pa.array([1] * len(delta), pa.int32()),
            "c0": pa.array([image[0] for image in delta], pa.string()),
            "c1": pa.array([image[1] for image in delta], pa.string()),
            "c2": pa.array([image[2] for image in delta], pa.int32()),
            "c3": pa.array([image[3] for image in delta], pa.int32()),
        }
    )
    return run_edge(edge, relation).to_pylist()


IMAGES = [("a", "g", MOST, 1), ("b", "g", 5, 1), ("c", None, None, 1), ("d", "g", 1, MOST)]


@pytest.mark.parametrize(
    ("text", "failing", "passing"),
    [
        ("SELECT k, x + 1 AS z FROM t", [0], [1, 2, 3]),
        ("SELECT z FROM (SELECT x + 1 AS z FROM t) q WHERE z > 3", [0], [1]),
        ("SELECT g FROM (SELECT g, x + 1 AS z FROM t) q WHERE g IS NULL", [0], [2]),  # z is needed by nobody
        ("SELECT k FROM (SELECT k, x + 1 AS z, y FROM t) q WHERE z + y > 0", [0, 3], [1]),  # d fails in the outer one
        ("SELECT w FROM (SELECT z * 2 AS w FROM (SELECT x + 1 AS z FROM t) p) q WHERE w > 0", [0], [1, 3]),
        ("SELECT k FROM (SELECT k, y FROM t WHERE x + 1 > 3) q WHERE y + 1 > 0", [0], [1]),  # d does not pass the first
        ("SELECT k FROM (SELECT k, x FROM t WHERE x < 100) q WHERE x + 1 > 0", [], [1, 3]),  # a cannot fail any more
        ("SELECT k FROM (SELECT k, x, y + 1 AS z FROM t) q WHERE x + 1 > z", [0, 3], [1]),
        ("SELECT k, CASE WHEN x < 100 THEN x + 1 END AS z FROM t", [], [0, 1, 2, 3]),
    ],
)
def test_an_image_fails_once_and_passes_nothing_behind_that(text: str, failing: list[int], passing: list[int]) -> None:
    found = rows_of(lowered(text), IMAGES)

    assert sorted(row["ord"] for row in found) == sorted(failing + passing)
    assert [row["ord"] for row in found if row.get("fails")] == failing


def test_an_edge_in_which_nothing_can_fail_has_no_mark_and_no_list() -> None:
    view = lowered("SELECT k FROM (SELECT k, x FROM t WHERE x > 3) q WHERE x > 1")

    assert view.nodes[0].edges[0].aside is None
    assert all("fails" not in row for row in rows_of(view, IMAGES))


def test_a_view_reads_the_columns_that_its_text_needs_and_no_others() -> None:
    def columns(text: str) -> tuple[int, ...]:
        return lowered(text).nodes[0].edges[0].columns

    assert columns("SELECT g FROM (SELECT g, x, y FROM t) q WHERE x > 1") == (0, 1, 2)
    assert columns("SELECT g FROM (SELECT g, x + 1 AS z FROM t) q") == (0, 1, 2)  # x decides who is set aside
    assert columns("SELECT COUNT(*) AS n FROM (SELECT g, y FROM t) q WHERE y > 1") == (0, 3)


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT, y INT)")
    return db


def aside(db: vk.Database, name: str = "v") -> tuple[int, tuple]:
    (view,) = [view for view in db.status().views if view.name == name]
    return view.set_aside.count, view.set_aside.keys


@pytest.mark.parametrize("managers", [1, 3])
def test_a_row_that_fails_inside_is_listed_once_until_it_is_well(db: vk.Database, managers: int) -> None:
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT g, COUNT(*) AS n, SUM(z) AS s "
        "FROM (SELECT g, x + 1 AS z, y FROM t) q WHERE z + y > 0 GROUP BY g"
    )

    def keep() -> None:
        Coordinator(db.store, ManagersRunner(db.store, managers)).catch_up()

    db.table("t").put_many([dict(zip("kgxy", row, strict=True)) for row in IMAGES])
    keep()
    assert aside(db) == (2, (("a",), ("d",)))
    assert list(db.view("v").scan()) == [{"g": "g", "n": 1, "s": 6}]
    db.table("t").put("a", {"x": 1, "y": MOST})  # now it fails in the outer select: still listed, still once
    db.table("t").put("d", {"y": 0})
    keep()
    assert aside(db) == (1, (("a",),))
    assert list(db.view("v").scan()) == [{"g": "g", "n": 2, "s": 6 + 2}]
    db.table("t").put("a", {"y": -MOST})  # well, and does not pass
    db.table("t").put("b", {"x": MOST})
    keep()
    assert aside(db) == (1, (("b",),))
    db.table("t").delete("b")
    keep()

    assert aside(db) == (0, ())
    assert list(db.view("v").scan()) == [{"g": "g", "n": 1, "s": 2}]


def test_a_row_that_fails_for_one_side_of_a_join_is_absent_from_that_side_alone(db: vk.Database) -> None:
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT p.k, q.k AS other FROM t p LEFT JOIN (SELECT k, x + 1 AS z FROM t) q "
        "ON p.y = q.z"
    )
    db.table("t").put_many([{"k": "a", "x": MOST, "y": 1}, {"k": "b", "x": 0, "y": 7}])
    keep_up(db)

    assert [tuple(row.values()) for row in db.view("v").scan()] == [("a", "b"), ("b", None)]
    assert aside(db) == (1, (("a",),))


def other_table(*columns: Column) -> TableSchema:
    return TableSchema(TableId(2), "u", (*columns, Column("g", STRING)), tuple(column.name for column in columns))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (other_table(Column("i", STRING, False)), ["branch INT", "k STRING"]),  # keys of one type share a column
        (other_table(Column("i", INT, False)), ["branch INT", "k STRING", "i INT"]),
        (
            other_table(Column("i", BIGINT, False), Column("s", STRING, False), Column("r", STRING, False)),
            ["branch INT", "k STRING", "i BIGINT", "r STRING"],
        ),
        (
            other_table(Column("i", SqlType("DECIMAL", 5, 2), False), Column("d", DATE, False)),
            ["branch INT", "k STRING", "i DECIMAL(5,2)", "d DATE"],
        ),
    ],
    ids=["one type", "two types", "several parts", "decimal and date"],
)
def test_branches_of_a_union_share_key_columns_of_like_types(other: TableSchema, expected: list[str]) -> None:
    view = lowered("SELECT g FROM t UNION ALL SELECT g FROM u", other)

    assert [f"{column.name} {column.type}" for column in view.root.key] == expected
    assert [column.nullable for column in view.root.key] == [False] + [True] * (len(expected) - 1)


def test_rows_of_branches_that_look_alike_are_kept_apart(db: vk.Database) -> None:
    db.execute("CREATE TABLE u (k STRING PRIMARY KEY, g STRING)")
    db.execute("CREATE TABLE w (i INT, k STRING, g STRING, PRIMARY KEY (i, k))")
    db.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT g FROM t UNION ALL SELECT g FROM u UNION ALL "
        "(SELECT g FROM w UNION ALL SELECT g FROM (SELECT g FROM t UNION ALL SELECT k FROM u) q WHERE g = 'x')"
    )
    db.table("t").put("a", {"g": "x"})
    db.table("u").put("a", {"g": "x"})
    for number in (0, 1, 2):
        db.table("w").put(number, "a", {"g": "x"})
    keep_up(db)
    assert [row["g"] for row in db.view("v").scan()] == ["x"] * 6
    db.table("u").put("x", {"g": "z"})
    keep_up(db)
    assert sorted(row["g"] for row in db.view("v").scan()) == ["x"] * 7 + ["z"]
    db.table("t").delete("a")
    db.table("w").delete(1, "a")
    keep_up(db)

    assert sorted(row["g"] for row in db.view("v").scan()) == ["x"] * 4 + ["z"]


def test_a_row_that_fails_in_one_branch_of_a_union_is_in_the_others(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT x + 1 AS z FROM t UNION ALL SELECT y FROM t")
    db.table("t").put("a", {"x": MOST, "y": 3})
    keep_up(db)

    assert [row["z"] for row in db.view("v").scan()] == [3]
    assert aside(db) == (1, (("a",),))


def test_decimals_of_different_scale_do_not_share_a_key_column(db: vk.Database) -> None:
    db.execute(
        "CREATE TABLE u (d DECIMAL(5,2) PRIMARY KEY, g STRING); CREATE TABLE w (d DECIMAL(9,1) PRIMARY KEY, g STRING)"
    )
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT g FROM u UNION ALL SELECT g FROM w")
    db.table("u").put(Decimal("123.45"), {"g": "a"})
    db.table("w").put(Decimal("12345678.9"), {"g": "b"})
    keep_up(db)

    assert [row["g"] for row in db.view("v").scan()] == ["a", "b"]
    assert [str(column.type) for column in db.catalog().view("v").key] == ["INT", "DECIMAL(5,2)", "DECIMAL(9,1)"]
    assert db.view("v").get(1, None, Decimal("12345678.9")) == {"g": "b"}
