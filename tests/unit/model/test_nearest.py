"""A name that does not exist: the three nearest ones, wherever a name may be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from viewkeeper.model.wording import nearest, suggestion

WIDE = [f"reading_{number:02}" for number in range(44)] + ["customer_id", "customer_name", "customer_city", "placed"]


def test_the_nearest_three_are_named_and_never_all_of_many() -> None:
    assert (
        suggestion("custmer_name", WIDE, "its columns are")
        == "did you mean customer_name, customer_id or customer_city?"
    )
    assert len(nearest("reading", WIDE)) == 3
    assert (
        suggestion("zzz", WIDE, "its columns are")
        == "its columns are reading_00, reading_01, reading_02, … (48 in all)"
    )
    assert suggestion("zzz", WIDE[:2], "its columns are") == "its columns are reading_00, reading_01"
    assert suggestion("zzz", [], "its columns are") is None


def test_letter_case_and_the_name_of_the_table_do_not_count() -> None:
    assert nearest("PLACD", ["o.Placed", "u.placed", "o.id"]) == ["o.Placed", "u.placed"]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> vk.Database:
    database = vk.connect("memory:")
    database.execute(f"CREATE TABLE wide (id INT PRIMARY KEY, {', '.join(f'{name} INT' for name in WIDE)})")
    database.execute("CREATE MATERIALIZED VIEW totals AS SELECT placed, COUNT(*) AS n FROM wide GROUP BY placed")
    return database


@pytest.mark.parametrize(
    ("use", "meant"),
    [
        (lambda db: db.execute("SELECT plcaed FROM wide"), "placed"),
        (lambda db: db.execute("SELECT w.plcaed FROM wide w JOIN wide v ON w.id = v.id"), "placed"),
        (lambda db: db.execute("SELECT plcaed FROM wide w JOIN wide v ON w.id = v.id"), "w.placed or v.placed"),
        (lambda db: db.table("wide").put(1, {"plcaed": 1}), "placed"),
        (lambda db: db.table("wide").get(1, columns=["plcaed"]), "placed"),
        (lambda db: db.execute("UPDATE wide SET plcaed = 1 WHERE id = 1"), "placed"),
        (lambda db: db.execute("INSERT INTO wide (id, plcaed) VALUES (1, 1)"), "placed"),
        (lambda db: db.execute("CREATE INDEX i ON wide (plcaed)"), "placed"),
        (lambda db: db.execute("CREATE TABLE u (a INT, placed INT, PRIMARY KEY (plcaed))"), "placed"),
        (lambda db: db.execute("SELECT * FROM wied"), "wide"),
        (lambda db: db.table("wied"), "wide"),
        (lambda db: db.view("total"), "totals"),
        (lambda db: db.execute("DROP VIEW total"), "totals"),
        (lambda db: db.execute("SELECT UPPR('a')"), "upper"),
        (lambda db: db.execute("SELECT SUMM(id) FROM wide"), "sum"),
        (lambda db: db.execute("OPTIMIZE VIEWS WITHOUT (push_conditons)"), "push_conditions or imply_conditions"),
        (lambda db: vk.connect("memory:?node=2"), "nodes"),
    ],
)
def test_a_wrong_name_is_answered_with_those_near_it(db: vk.Database, use: object, meant: str) -> None:
    with pytest.raises(vk.InputError) as refused:
        use(db)

    assert refused.value.hint == f"did you mean {meant}?"


def test_a_column_of_a_file_that_the_table_has_not_is_answered_too(db: vk.Database, tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("id,plcaed\n1,1\n")
    with pytest.raises(vk.UnknownName, match=r"not: plcaed; did you mean placed\?; ignore_unknown=True"):
        db.load("wide", tmp_path / "w.csv")


@pytest.mark.parametrize("tables", [2, 3, 4])
def test_three_are_named_where_more_tables_have_the_same_column(tables: int) -> None:
    known = [f"{table}.placed" for table in "opqr"[:tables]]

    assert nearest("placd", known) == known[:3]
