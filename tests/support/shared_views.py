"""Drawn sets of views that share nodes: twenty of them, a history, and the rows that DuckDB computes for each.

The views are over one table or over a join, with few groupings and conditions, so that many of them can share. OPTIMIZE VIEWS
runs in mid-history, twice, the first time with rules off; views are dropped and created between.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import duckdb
import pyarrow as pa

import viewkeeper as vk
from viewkeeper.errors import NameInUse
from viewkeeper.plan.optimize import SWITCHES

VIEWS, STEPS = 20, 6
GROUPINGS = {"r": ("", "x", "x % 2", "z, x", "z"), "r JOIN s ON r.x = s.k": ("", "r.x", "r.z, s.w", "s.w")}
CONDITIONS = ("x > 1", "y > 2", "z = 'a'", "y IS NULL", "y < x", "y IN (1, 4)")
AGGREGATES = (
    ("COUNT(*) AS n",),
    ("SUM(y) AS s", "AVG(y) AS a"),
    ("MIN(y) AS lo", "MAX(y) AS hi"),
    ("COUNT(DISTINCT y) AS d", "COUNT(y) FILTER (WHERE x > 2) AS f"),
    ("COUNT(*) * 2 AS m", "SUM(y) / COUNT(*) AS q", "SUM(y) AS s"),
    (),
)
HAVING = ("COUNT(*) > 2", "SUM(y) > 4", "MAX(y) > 3 AND COUNT(*) < 9")


SHOWN = ("r.k, y, z", "r.k, x % 2 AS x", "y, x", "r.k, y % 3 AS s, z")


def drawn_view(choose: random.Random) -> str:
    source = choose.choice(["r", "r", "r JOIN s ON r.x = s.k"])
    if choose.random() < 0.3:
        where = choose.sample(CONDITIONS[:4], choose.randint(0, 1))
        return f"SELECT {choose.choice(SHOWN)} FROM {source}" + (f" WHERE {where[0]}" if where else "")
    groups = choose.choice(GROUPINGS[source])
    parts = [f"{part} AS g{place}" for place, part in enumerate(groups.split(", "))] if groups else []
    aggregates = list(choose.choice(AGGREGATES[: None if groups else -1]))
    where = choose.sample(CONDITIONS, choose.randint(0, 2))
    if choose.random() < 0.2:
        where = [f"({' OR '.join(choose.sample(CONDITIONS, 2))})"]
    text = f"SELECT {', '.join(parts + aggregates)} FROM {source}"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    text += f" GROUP BY {groups}" if groups else ""
    return f"{text} HAVING {choose.choice(HAVING)}" if groups and choose.random() < 0.2 else text


class History:
    """Writes to both tables, and the rows that are there."""

    def __init__(self, db: vk.Database, choose: random.Random) -> None:
        self._db, self._choose = db, choose
        self._rows: dict[str, dict[int, tuple]] = {"r": {}, "s": {}}
        db.execute("CREATE TABLE r (k INT PRIMARY KEY, x INT, y INT, z STRING)")
        db.execute("CREATE TABLE s (k INT PRIMARY KEY, w STRING)")

    def step(self) -> None:
        choose = self._choose
        for _ in range(choose.randint(5, 40)):
            key = choose.randrange(60)
            if choose.random() < 0.3 and self._rows["r"].pop(key, None):
                self._db.table("r").delete(key)
                continue
            row = (choose.randrange(5), choose.choice([None, *range(6)]), choose.choice("abc"))
            self._db.table("r").put({"k": key, "x": row[0], "y": row[1], "z": row[2]})
            self._rows["r"][key] = row
        key, word = choose.randrange(5), choose.choice("uv")
        if self._rows["s"].pop(key, None):
            self._db.table("s").delete(key)
        else:
            self._db.table("s").put({"k": key, "w": word})
            self._rows["s"][key] = (word,)

    def compute(self, texts: Mapping[str, str]) -> dict[str, Counter[tuple]]:
        """The rows of each text, by DuckDB."""
        names = {"r": ("k", "x", "y", "z"), "s": ("k", "w")}
        types = {"z": pa.string(), "w": pa.string()}
        with duckdb.connect() as connection:
            for table, rows in self._rows.items():
                columns = zip(*((key, *row) for key, row in rows.items()), strict=True)
                found = dict(zip(names[table], columns, strict=False))
                arrays = {name: pa.array(found.get(name, ()), types.get(name, pa.int32())) for name in names[table]}
                connection.register(table, pa.table(arrays))
            return {name: Counter(connection.sql(text).fetchall()) for name, text in texts.items()}


def held(db: vk.Database, name: str) -> Counter[tuple]:
    view = db.view(name)
    rows, names = list(view.scan()), [column.name for column in view.definition.key]
    for row in rows[:3]:
        if row.keys() >= set(names) and len(set(names)) == len(names):
            assert view.get(*(row[part] for part in names)) == row
    assert view.to_arrow().to_pylist() == rows
    return Counter(tuple(row.values()) for row in rows)


def run_set(db: vk.Database, seed: int, keep_up: Callable[[vk.Database], object], *, shares_min: int = 3) -> None:
    """Run one set; after every step, and `keep_up`, each view must hold what DuckDB computes.

    `shares_min`: how many views share in the end, at least.
    """
    choose = random.Random(seed)
    history = History(db, choose)
    texts: dict[str, str] = {}

    def create(number: int) -> None:
        name = f"v{number}"
        texts[name] = drawn_view(choose)
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {texts[name]}")

    for number in range(VIEWS - 4):
        create(number)
    first, last = sorted(choose.sample(range(STEPS), 2))
    off = choose.sample(SWITCHES, choose.choice([0, 1, 1, len(SWITCHES)]))
    optimized = {first: f"OPTIMIZE VIEWS WITHOUT ({', '.join(off)})" if off else "OPTIMIZE VIEWS"}
    optimized[last] = "OPTIMIZE VIEWS"
    for step in range(STEPS):
        history.step()
        if step == STEPS // 2:
            for number in range(VIEWS - 4, VIEWS):
                create(number)
            db.execute("CREATE MATERIALIZED VIEW above AS SELECT COUNT(*) AS n FROM v1")
            for name in choose.sample(sorted(texts), 4):
                try:
                    db.execute(f"DROP VIEW {name}")
                except NameInUse:
                    continue
                del texts[name]
        if step in optimized:
            db.execute(optimized[step])
        keep_up(db)
        asked = texts if step < STEPS // 2 else texts | {"above": f"SELECT COUNT(*) FROM ({texts['v1']})"}
        for name, rows in history.compute(asked).items():
            assert held(db, name) == rows, (step, name, asked[name])
    views = db.catalog().views
    assert sum(view.sharing is not None for view in views) >= shares_min
