"""Views are right after epochs of every shape: few rows come and many go, or the other way round, at both sides of 64.

What DuckDB does with rows depends on how many of them come in one piece, so the numbers are chosen, not drawn. Conditions
name many literals, of which DuckDB makes joins. Texts are long, and equal in all groups.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.edge_values import DELTA_ROWS, FEW_LENGTHS, texts
from tests.support.running import HereRunner, ManagersRunner
from viewkeeper.coordinator.coordinator import Coordinator

IN, OUT = 3, 99  # values of x that the conditions meet and do not meet
LIST, WORDS = "(1, 2, 3, 4, 5, 6, 7)", "('', 'm', 'n', 'w1', 'w2', 'w3', 'w4', 'w5')"
GROUPS, LONG = 5, 200  # so many rows have long texts
TEXTS = (*texts(FEW_LENGTHS), *(f"w{number}" for number in range(9)))
VIEWS = {
    "selection": f"SELECT id, y FROM t WHERE x IN {LIST}",
    "words": f"SELECT id, g, s FROM t WHERE s IN {WORDS} AND x IN {LIST}",
    "index_of": f"SELECT g, id FROM t WHERE x + 0 IN {LIST} ORDER BY g, id LIMIT 50",
    "sums": f"SELECT g, COUNT(*) AS n, SUM(y) AS total FROM t WHERE x IN {LIST} GROUP BY g",
    "cases": f"SELECT g, SUM(CASE WHEN x IN {LIST} THEN y ELSE 0 END) AS total, COUNT(*) AS n FROM t GROUP BY g",
    "filters": f"SELECT g, COUNT(*) FILTER (WHERE x IN {LIST}) AS n, SUM(f) FILTER (WHERE x IN {LIST}) AS f "
    "FROM t GROUP BY g",
    "ends": f"SELECT g, MIN(s) AS lo, MAX(s) AS hi, COUNT(DISTINCT s) AS n FROM t WHERE x IN {LIST} GROUP BY g",
    "inside": f"SELECT x IN {LIST} AS inside, s IN {WORDS} AS word, COUNT(*) AS n, SUM(y) AS total FROM t GROUP BY 1, 2",
    "having": f"SELECT y % 997 AS r, COUNT(*) AS n FROM t WHERE x IN {LIST} GROUP BY 1 "
    "HAVING COUNT(*) IN (2, 4, 6, 8, 10, 12)",
    "failing": f"SELECT g, SUM(12 div (y % 50)) AS total, MIN(y) AS lo FROM t WHERE x IN {LIST} GROUP BY g",
    "kinds": f"SELECT DISTINCT g, s FROM t WHERE x IN {LIST}",
    "joined": f"SELECT t.id, n.name FROM t JOIN n ON t.g = n.g WHERE t.x IN {LIST} AND n.name IN {WORDS}",
    "rest": f"SELECT id FROM t WHERE y % 2 = 0 EXCEPT SELECT id FROM t WHERE x IN {LIST}",
}
DUCK = VIEWS | {  # DuckDB's division by zero and its ORDER BY with LIMIT in a subquery are written otherwise
    "failing": f"""SELECT g, CAST(SUM(12 // (y % 50)) AS BIGINT) AS total, MIN(y) AS lo FROM t
        WHERE x IN {LIST} AND y % 50 <> 0 GROUP BY g""",
}


class Herd:
    """A store with many rows, of which any number can come into the views, and leave them, in one epoch."""

    def __init__(self, url: str, managers: int, largest: int) -> None:
        self.db = vk.connect(url)
        self.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x INT, y BIGINT, s STRING, f DOUBLE)")
        self.db.execute("CREATE TABLE n (g INT PRIMARY KEY, name STRING)")
        self.db.table("n").put_many([{"g": group, "name": f"w{group}"} for group in range(GROUPS)])
        self.rows = [
            {"id": i, "g": i % GROUPS, "x": IN if i % 2 else OUT, "y": i, "s": _text(i), "f": i / 8}
            for i in range(2 * largest + 100)
        ]
        self.db.table("t").put_many(self.rows)
        for name, text in VIEWS.items():
            self.db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        store = self.db.store
        self._coordinator = Coordinator(store, HereRunner(store) if managers == 1 else ManagersRunner(store, managers))
        self.judge = duckdb.connect()
        self.judge.execute("SET threads = 1")
        self.judge.execute(
            "CREATE TABLE n AS SELECT * FROM (VALUES (0,'w0'), (1,'w1'), (2,'w2'), (3,'w3'), (4,'w4')) v(g, name)"
        )

    def move(self, coming: int, going: int) -> None:
        """So many rows come into the views and so many leave them; some also take another group or text."""
        outside, inside = ([row for row in self.rows if row["x"] == x] for x in (OUT, IN))
        chosen = [*outside[:coming], *inside[:going]]
        for place, row in enumerate(chosen):
            row["x"] = IN if row["x"] == OUT else OUT
            if place % 7 == 0:
                row["g"], row["s"] = (row["g"] + 1) % GROUPS, _text(row["y"] + 1)
        self.db.table("t").put_many(chosen)

    def run(self) -> None:
        while self._coordinator.step() is not None:
            pass

    def wrong(self) -> list[str]:
        """The views that are not what DuckDB computes."""
        columns = ((name, [row[name] for row in self.rows]) for name in self.rows[0])
        kinds = {"g": pa.int32(), "x": pa.int32()}
        table = pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns})
        self.judge.register("t", table)
        return [name for name, text in DUCK.items() if self._differs(name, text)]

    def _differs(self, view: str, text: str) -> bool:
        self.judge.register("found", self.db.view(view).to_arrow())
        one, other = f"SELECT * FROM found EXCEPT ALL ({text})", f"({text}) EXCEPT ALL SELECT * FROM found"
        return bool(self.judge.execute(f"({one}) UNION ALL ({other}) LIMIT 1").fetchall())


def _text(number: int) -> str:
    """Long texts for some rows, the same ones in all groups; short ones for the others."""
    return TEXTS[number // GROUPS % len(TEXTS)] if number < LONG else f"w{number % 9}"


LARGE = max(DELTA_ROWS)


@pytest.mark.parametrize(
    "url, managers, pairs",
    [
        ("memory:", 1, ((63, LARGE), (64, 65))),
        ("embedded:{}?sync=off&before_images=off", 3, ((1, 63), (1, 65), (63, 64), (63, 65))),
    ],
)
def test_views_are_right_after_epochs_of_every_shape(
    url: str, managers: int, pairs: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    herd = Herd(url.format(tmp_path / "store"), managers, max(LONG, *map(max, pairs)))
    herd.run()
    for few, many in pairs:
        for coming, going in ((few, many), (many, few)):  # so that the views keep their size
            herd.move(coming, going)
            herd.run()

        assert herd.wrong() == [], f"{few} rows came and {many} went, and the other way round"
