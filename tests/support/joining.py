"""Joining: two small tables, a view of every kind of join over them, and what DuckDB says that these must hold.

In: a folder, then changes. Out: an open database. Always: the views' own text is asked of DuckDB over the rows as they are,
and answers are compared as bags.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.plans import nodes_of
from viewkeeper.model.keys import decode_key
from viewkeeper.model.rowcodec import decode_row
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT
from viewkeeper.plan.nodes import SIDE, JoinNode
from viewkeeper.stores.version_chains import version_at

if TYPE_CHECKING:
    from viewkeeper.client.database import Database

_SHOWN = "l.k AS lk, l.j AS lj, l.x, r.k AS rk, r.j AS rj, r.y"
_MATCH = "EXISTS (SELECT 1 FROM r WHERE r.j = l.j"
VIEWS = {
    "inner": f"SELECT {_SHOWN} FROM l JOIN r ON l.j = r.j",
    "inner_if": f"SELECT {_SHOWN} FROM l JOIN r ON l.j = r.j AND l.x < r.y",
    "left": f"SELECT {_SHOWN} FROM l LEFT JOIN r ON l.j = r.j",
    "left_if": f"SELECT {_SHOWN} FROM l LEFT JOIN r ON l.j = r.j AND l.x < r.y",
    "full": f"SELECT {_SHOWN} FROM l FULL JOIN r ON l.j = r.j",
    "full_if": f"SELECT {_SHOWN} FROM l FULL JOIN r ON l.j = r.j AND l.x < r.y",
    "semi": f"SELECT k, j, x FROM l WHERE {_MATCH})",
    "semi_if": f"SELECT k, j, x FROM l WHERE {_MATCH} AND l.x < r.y)",
    "anti": f"SELECT k, j, x FROM l WHERE NOT {_MATCH})",
    "anti_if": f"SELECT k, j, x FROM l WHERE NOT {_MATCH} AND l.x < r.y)",
}
COUNTED = {
    f"{kind}_count": f"SELECT l.j AS lj, r.j AS rj, COUNT(*) AS n, SUM(r.y) AS s FROM l {kind} JOIN r ON l.j = r.j{more} "
    "GROUP BY l.j, r.j"
    for kind, more in (("inner", ""), ("left", ""), ("full", " AND l.x < r.y"))
}
_COUNTS = (Column("first", BIGINT, nullable=False), Column("second", BIGINT, nullable=False))
_MATCHES = (Column("n", BIGINT, nullable=False),)

Rows = dict[str, tuple[str | None, int | None]]  # key → join key, x or y


def make_joins(folder: Path, *names: str, options: str = "") -> Database:
    """A store with the tables l and r, and the views of these names, or all."""
    db = vk.connect(f"embedded:{folder}?sync=off{options}")
    db.execute("CREATE TABLE l (k STRING PRIMARY KEY, j STRING, x INT)")
    db.execute("CREATE TABLE r (k STRING PRIMARY KEY, j STRING, y INT)")
    for name in names or VIEWS:
        db.execute(f"CREATE MATERIALIZED VIEW {name}_v AS {(VIEWS | COUNTED)[name]}")
    return db


def put(db: Database, table: str, rows: Rows) -> None:
    value = "x" if table == "l" else "y"
    db.table(table).put_many([{"k": key, "j": j, value: number} for key, (j, number) in rows.items()])


def delete(db: Database, table: str, *keys: str) -> None:
    for key in keys:
        db.table(table).delete(key)


def change_at_random(db: Database, source: random.Random, *, changes: int, keys: int = 8, join_keys: int = 3) -> None:
    """Puts and deletes of few rows under few join keys, NULL among them."""
    joins = [None, *(f"j{number}" for number in range(join_keys))]
    for _ in range(changes):
        table, key = source.choice("lr"), f"k{source.randrange(keys)}"
        if source.random() < 0.35:
            delete(db, table, key)
        else:
            put(db, table, {key: (source.choice(joins), source.choice([None, *range(5)]))})


def wrong(db: Database) -> dict[str, tuple[Counter, Counter]]:
    """The views that do not hold what their text says: what is too much, and what is missing."""
    found = {}
    with duckdb.connect() as connection, db.snapshot() as snapshot:
        for table in db.catalog().tables:
            connection.register(table.name, db.table(table.name).to_arrow())
        for view in db.catalog().views:
            expected = Counter(connection.sql(view.text).fetchall())
            held = Counter(tuple(row.values()) for row in snapshot.view(view.name).scan())
            if held != expected:
                found[view.name] = held - expected, expected - held
    return found


def join_of(db: Database, name: str) -> JoinNode:
    """The join of a view of `VIEWS`."""
    node = nodes_of(db.catalog(), f"{name}_v")[0]
    assert isinstance(node, JoinNode)
    return node


def side_counts(db: Database, name: str) -> dict[str, tuple[int, int]]:
    """Join key → how many rows each side has, as the join remembers it."""
    node = join_of(db, name)
    return {decode_key(node.on, key)[0]: tuple(decode_row(_COUNTS, row)) for key, row in _now(db, node.counts)}


def match_counts(db: Database, name: str) -> dict[tuple[int, str], int]:
    """(side, row key) → how many matches the row has, as the join remembers it."""
    node, found = join_of(db, name), {}
    for key, row in _now(db, node.matches):
        _, side, row_key = decode_key((*node.on, SIDE, *node.sides[0].key), key)  # both sides have a STRING for key
        found[side, row_key] = decode_row(_MATCHES, row)[0]
    return found


def _now(db: Database, table: int | None) -> list[tuple[bytes, bytes]]:
    assert table is not None
    aborted = db.store.read_epoch_record().aborted
    rows = [(key, version_at(chain, db.epoch, aborted)) for at, key, chain in dump(db.store) if at == table]
    return [(key, row) for key, row in rows if row is not None]
