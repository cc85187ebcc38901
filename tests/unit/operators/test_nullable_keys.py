"""Outer joins of relations whose keys may be NULL, or are empty: two rows without a partner never share a record."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import viewkeeper as vk
from tests.support.plans import nodes_of
from tests.support.running import ManagersRunner, keep_up
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.plan.nodes import JoinNode

_GROUPS = "(SELECT g, COUNT(*) AS n FROM {} GROUP BY g)"
_TOTAL = "(SELECT COUNT(*) AS n, MAX(g) AS most FROM {})"
SHOWN = "SELECT p.g AS pg, p.n AS pn, q.g AS qg, q.n AS qn FROM "
VIEWS = {
    "by_group": SHOWN + f"{_GROUPS.format('l')} p FULL JOIN {_GROUPS.format('r')} q ON p.g = q.g",
    "by_count": SHOWN + f"{_GROUPS.format('l')} p FULL JOIN {_GROUPS.format('r')} q ON p.n = q.n",
    "by_count_if": SHOWN + f"{_GROUPS.format('l')} p FULL JOIN {_GROUPS.format('r')} q ON p.n = q.n AND p.g < q.g",
    "left_by_count": SHOWN + f"l p LEFT JOIN {_GROUPS.format('r')} q ON p.n = q.n",
    "half_null": SHOWN + f"l p FULL JOIN {_GROUPS.format('r')} q ON p.n = q.n",
    "totals": "SELECT p.n AS pn, p.most AS pm, q.n AS qn, q.most AS qm FROM "
    f"{_TOTAL.format('l')} p FULL JOIN {_TOTAL.format('r')} q ON p.n = q.n",
    "total_left": f"SELECT p.n AS pn, q.most AS qm FROM {_TOTAL.format('l')} p LEFT JOIN {_TOTAL.format('r')} q ON p.n = q.n",
    "total_and_groups": "SELECT p.n AS pn, q.g AS qg, q.n AS qn FROM "
    f"{_TOTAL.format('l')} p FULL JOIN {_GROUPS.format('r')} q ON p.n = q.n",
}


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    for table in "lr":
        db.execute(f"CREATE TABLE {table} (k STRING PRIMARY KEY, g STRING, n BIGINT)")
    return db


def create(db: vk.Database, *names: str) -> None:
    for name in names:
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")


def put(db: vk.Database, table: str, *groups: str | None) -> None:
    """A row for each of these groups; nothing else is in the table then."""
    for row in list(db.table(table).scan()):
        db.table(table).delete(row["k"])
    for number, group in enumerate(groups):
        db.table(table).put(f"k{number}", {"g": group, "n": number})


def shown(db: vk.Database, name: str) -> list[tuple]:
    return sorted((tuple(row.values()) for row in db.view(name).scan()), key=repr)


def wrong(db: vk.Database) -> list[str]:
    with duckdb.connect() as connection:
        for name in "lr":
            connection.register(name, db.table(name).to_arrow())
        return [
            view.name
            for view in db.catalog().views
            if Counter(connection.sql(view.text).fetchall()) != Counter(shown(db, view.name))
        ]


def tagged(db: vk.Database, name: str) -> bool:
    return any(isinstance(node, JoinNode) and node.tag_place is not None for node in nodes_of(db.catalog(), name))


def test_a_null_group_on_both_sides_is_two_rows(db: vk.Database) -> None:
    """Both have the key (NULL, NULL), for neither has a partner."""
    create(db, "by_group")
    put(db, "l", None, None, "a")
    put(db, "r", None, "b")
    keep_up(db)
    assert shown(db, "by_group") == [
        ("a", 1, None, None),
        (None, 2, None, None),
        (None, None, "b", 1),
        (None, None, None, 1),
    ]
    assert [column.name for column in db.catalog().view("by_group").key] == ["side", "pg", "qg"]
    put(db, "l", "a")
    keep_up(db)
    assert (None, None, None, 1) in shown(db, "by_group") and len(shown(db, "by_group")) == 3
    put(db, "r", "a", None, None)
    keep_up(db)

    assert shown(db, "by_group") == [("a", 1, "a", 1), (None, None, None, 2)]
    assert wrong(db) == []


def test_a_null_group_that_finds_a_partner_changes_its_record(db: vk.Database) -> None:
    """Joined by their counts, the NULL groups may pair with each other: one record goes and another comes."""
    create(db, "by_count", "by_count_if")
    put(db, "l", None)
    put(db, "r", None, None)
    keep_up(db)
    assert shown(db, "by_count") == [(None, 1, None, None), (None, None, None, 2)]
    put(db, "l", None, None)
    keep_up(db)
    assert shown(db, "by_count") == [(None, 2, None, 2)]
    assert shown(db, "by_count_if") == [(None, 2, None, None), (None, None, None, 2)]
    put(db, "l")
    keep_up(db)

    assert shown(db, "by_count") == shown(db, "by_count_if") == [(None, None, None, 2)]
    assert wrong(db) == []


def test_two_global_aggregates_are_one_row_or_two(db: vk.Database) -> None:
    """Their keys are empty: without the side that a row has, both would stand under ()."""
    create(db, "totals", "total_left")
    keep_up(db)
    assert shown(db, "totals") == [(0, None, 0, None)]
    put(db, "l", "a", "b")
    keep_up(db)
    assert shown(db, "totals") == [(2, "b", None, None), (None, None, 0, None)]
    assert shown(db, "total_left") == [(2, None)]
    assert db.view("totals").get(1) == {"pn": 2, "pm": "b", "qn": None, "qm": None}
    put(db, "r", "c", "d")
    keep_up(db)
    assert shown(db, "totals") == [(2, "b", 2, "d")]
    put(db, "r", None, "x")
    keep_up(db)

    assert shown(db, "totals") == [(2, "b", 2, "x")]
    assert shown(db, "total_left") == [(2, "x")]
    assert wrong(db) == []


def test_a_side_is_told_only_where_keys_could_meet(db: vk.Database) -> None:
    create(db, *VIEWS)

    assert [name for name in VIEWS if tagged(db, name)] == [
        "by_group", "by_count", "by_count_if", "totals", "total_and_groups",
    ]  # fmt: skip
    assert [column.name for column in db.catalog().view("half_null").key] == ["k", "qg"]


def test_any_history_ends_in_what_the_texts_say(db: vk.Database) -> None:
    source = random.Random(0)
    create(db, *VIEWS)
    for managers in (1, 3, 1, 2):
        for _ in range(6):
            table, key = source.choice("lr"), f"k{source.randrange(5)}"
            if source.random() < 0.4:
                db.table(table).delete(key)
            else:
                db.table(table).put(key, {"g": source.choice([None, None, "a", "b"]), "n": source.choice([None, 1, 2])})
        Coordinator(db.store, ManagersRunner(db.store, managers)).catch_up()
        assert wrong(db) == []
