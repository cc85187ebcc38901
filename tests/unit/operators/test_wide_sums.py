"""SUM and AVG of DECIMALs beyond 128 bits are kept exactly, whatever is added and taken away."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.algebra.relations import Scan
from viewkeeper.model.schema import Column, TableId, TableSchema
from viewkeeper.model.types import INT, decimal
from viewkeeper.plan.lower import lower_view
from viewkeeper.sql.bind_query import bind_query


@pytest.fixture
def db(tmp_path: Path) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT, w DECIMAL(38,2), x DECIMAL(33,28))")
        db.execute(
            "CREATE MATERIALIZED VIEW v AS "
            "SELECT g, SUM(w) AS s, AVG(w) AS a, SUM(x) AS sx, AVG(x) AS ax, COUNT(*) AS n FROM t GROUP BY g"
        )
        yield db


def test_a_sum_that_does_not_fit_is_null_until_it_fits_again(db: vk.Database) -> None:
    largest = Decimal("9" * 36 + ".99")
    for place in range(3):
        db.table("t").put(place, {"g": 1, "w": largest, "x": Decimal("99999." + "9" * 28)})
    db.table("t").put(3, {"g": 2, "w": largest})
    keep_up(db)
    assert db.view("v").get(1) == {
        "g": 1,
        "s": None,
        "a": None,  # DECIMAL(38,6) has 32 whole digits
        "sx": Decimal("299999." + "9" * 27 + "7"),
        "ax": Decimal("99999." + "9" * 28 + "0000"),
        "n": 3,
    }
    assert db.view("v").get(2)["s"] == largest
    assert db.status().views[0].degraded.count == 2

    for place in range(4):
        db.table("t").put(place, {"w": Decimal(f"{place}.05")})
    db.table("t").delete(0)
    keep_up(db)
    assert db.view("v").get(1)["s"] == Decimal("3.10")
    assert db.view("v").get(1)["a"] == Decimal("1.550000")
    assert db.status().views[0].degraded.count == 0


def test_a_sum_of_both_signs_beyond_128_bits_is_exact(db: vk.Database) -> None:
    largest = Decimal("9" * 36 + ".99")
    for place, value in enumerate([largest] * 5 + [largest.copy_negate()] * 5 + [Decimal("0.07")]):
        db.table("t").put(place, {"g": 1, "w": value})
    keep_up(db)
    assert db.view("v").get(1)["s"] == Decimal("0.07")
    assert db.view("v").get(1)["a"] == Decimal("0.006364")


def test_a_narrow_sum_keeps_one_accumulator_and_a_wide_one_two() -> None:
    kept = {}
    for digits in (12, 28, 29, 38):
        table = TableSchema(
            TableId(1), "t", (Column("k", INT, nullable=False), Column("x", decimal(digits, 2))), ("k",)
        )
        query = bind_query("SELECT SUM(x) AS s, AVG(x) AS a FROM t", lambda _, table=table: Scan(table))
        kept[digits] = [column.name for column in lower_view(query).root.state]
    narrow, wide = ["count(*)", "count(x)", "sum(x)"], ["count(*)", "count(x)", "sum(x)", "sum(x) part 1"]

    assert kept == {12: narrow, 28: narrow, 29: wide, 38: wide}
