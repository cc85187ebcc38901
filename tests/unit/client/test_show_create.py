"""SHOW CREATE: the statement that makes a table, view or index again; DESCRIBE of a view shows its SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import keep_up

TABLES = """
CREATE TABLE orders (
  id BIGINT, line INT, region STRING NOT NULL, price DECIMAL(10,2), `order` STRING, PRIMARY KEY (line, id));
CREATE TABLE users (id BIGINT PRIMARY KEY, name STRING)
"""
VIEWS = {
    "plain": "SELECT id, line, price FROM orders WHERE price > 1.5 -- a comment\n  AND region = 'it''s'",
    "starred": "SELECT * FROM orders",
    "counted": "SELECT orders.region, COUNT(*) AS n FROM orders GROUP BY orders.region",
    "joined": "SELECT o.id, o.line, u.name FROM orders o LEFT JOIN users AS u ON o.id = u.id",
    "starred_join": "SELECT orders.*, name FROM orders JOIN users USING (id)",
    "inner_star": "SELECT COUNT(*) AS n FROM (SELECT * FROM orders UNION ALL SELECT * FROM orders)",
    "shadowed": "WITH orders AS (SELECT id, line FROM orders) SELECT id, line FROM orders WHERE id IN (SELECT id FROM users)",
    "above": "SELECT region, n FROM counted WHERE n > 1",
    "tied": "SELECT id FROM users WHERE EXISTS (SELECT 1 FROM orders WHERE orders.id = users.id)",
    "apart": "SELECT id FROM users WHERE id NOT IN (SELECT id FROM (SELECT id FROM orders) AS orders)",
}
INDEX = "CREATE INDEX by_region ON orders (region, `order`) INCLUDE (price)"


def _made(path: Path, name: str) -> vk.Database:
    return vk.connect(f"embedded:{path / name}?sync=off")


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = _made(tmp_path, "first")
    db.execute(TABLES)
    for name, text in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    db.execute(INDEX)
    return db


def _statements(db: vk.Database) -> list[str]:
    catalog = db.catalog()
    names = [("TABLE", table.name) for table in catalog.tables]
    names += [("INDEX" if view.kind == "INDEX" else "VIEW", view.name) for view in catalog.views]
    return [db.execute(f"SHOW CREATE {kind} `{name}`").rows[0][0] for kind, name in names]


def _fill(db: vk.Database) -> dict[str, list[dict[str, object]]]:
    orders, users = db.catalog().tables
    rows = [{"id": i % 4, "line": i, "region": "ab"[i % 2], "price": i, "order": "x" * i} for i in range(6)]
    db.table(orders.name).put_many(rows)
    db.table(users.name).put_many([{"id": i, "name": f"u{i}"} for i in range(2, 7)])
    keep_up(db)
    return {view.name: list(db.view(view.name).scan()) for view in db.catalog().views}


def _schemas(db: vk.Database) -> list[tuple[object, ...]]:
    tables = [(t.name, [(c.name, c.type, c.nullable) for c in t.columns], t.key) for t in db.catalog().tables]
    return tables + [(v.name, v.kind, [(s.column.name, s.column.type) for s in v.shown]) for v in db.catalog().views]


def test_what_is_shown_makes_the_same(db: vk.Database, tmp_path: Path) -> None:
    again = _made(tmp_path, "again")
    for statement in _statements(db):
        again.execute(statement)

    assert _statements(again) == _statements(db)
    assert _schemas(again) == _schemas(db)
    assert _fill(again) == _fill(db)


def test_renamed_tables_and_added_columns_change_nothing(db: vk.Database, tmp_path: Path) -> None:
    before = _fill(db)
    db.execute("ALTER TABLE orders RENAME TO `select`; ALTER MATERIALIZED VIEW counted RENAME TO counts")
    db.execute("ALTER TABLE users RENAME TO people; ALTER TABLE `select` ADD COLUMN note STRING")
    again = _made(tmp_path, "again")
    for statement in _statements(db):
        again.execute(statement)

    assert _schemas(again) == _schemas(db)
    expected = {"counts" if name == "counted" else name: rows for name, rows in before.items()}
    assert _fill(again) == expected == _fill(db)


def test_a_text_that_still_holds_is_shown_as_it_was_written(db: vk.Database) -> None:
    for name, text in VIEWS.items():
        assert db.execute(f"SHOW CREATE MATERIALIZED VIEW {name}").rows == (
            (f"CREATE MATERIALIZED VIEW {name} AS\n{text}",),
        )


def test_describe_of_a_view_shows_its_sql(db: vk.Database) -> None:
    described = db.execute("DESCRIBE joined")

    assert [row[0] for row in described] == ["id", "line", "name"]
    assert described.message == f"CREATE MATERIALIZED VIEW joined AS\n{VIEWS['joined']}"
    assert db.execute("DESCRIBE users").message == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SHOW CREATE VIEW nowhere", "there is no view nowhere"),
        ("SHOW CREATE TABLE plain", "plain is a view, not a table"),
        ("SHOW CREATE VIEW orders", "orders is a table, not a view"),
        ("SHOW CREATE VIEW by_region", "by_region is an index, not a view"),
        ("SHOW CREATE INDEX plain", "plain is a view, not an index"),
        ("SHOW CREATE DATABASE x", "expected TABLE, VIEW or INDEX"),
        ("SHOW CREATE TABLE orders users", "unexpected users"),
        ("SHOW COLUMNS", "SHOW TABLES, SHOW VIEWS or SHOW CREATE"),
    ],
)
def test_what_cannot_be_shown_is_told(db: vk.Database, text: str, told: str) -> None:
    with pytest.raises(vk.InputError, match=told):
        db.execute(text)
