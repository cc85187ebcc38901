"""What a check asks and what it makes of the answer, for views of every shape; DuckDB stands in for Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import sqlglot

import viewkeeper as vk
from tests.support.running import keep_up
from viewkeeper.check.report import CheckReport
from viewkeeper.client import checking
from viewkeeper.errors import EpochFailed
from viewkeeper.model.keybatches import encode_keys
from viewkeeper.ports.recompute import Base, Moment
from viewkeeper.sql.dialect import ViewSpark

MOST = 2**31 - 1


class DuckRecompute:
    """The port `Recompute` over the rows as they are now: behind the committed epoch a difference is to be found."""

    database: vk.Database

    def __init__(self, url: str, session: object) -> None:
        pass

    def run(self, sql: str, bases: Sequence[Base], moment: Moment) -> pa.Table:
        with duckdb.connect() as connection:
            for base in bases:
                connection.register(base.name, self._rows(base))
            try:
                (plain,) = sqlglot.transpile(sql, read=ViewSpark, write="duckdb")
                return connection.sql(plain).to_arrow_table()
            except duckdb.Error as error:
                raise EpochFailed(str(error)) from error

    def _rows(self, base: Base) -> pa.Table:
        name = self.database.catalog().table_by_id(base.table.id).name
        rows = self.database.table(name).to_arrow().select([column.name for column in base.table.columns])
        keys, _ = encode_keys(base.table.key_columns, [rows[part] for part in base.table.key], len(rows))
        return rows.filter(pc.invert(pc.is_in(keys, value_set=pa.array(list(base.without), pa.binary()))))


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    for name in "tu":
        db.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT, f DOUBLE)")
    rows = [("a", "p", 1, 0.1), ("b", "p", 5, 0.2), ("c", "q", 9, -0.0), ("d", None, 2, None), ("e", "q", 9, 1e300)]
    db.table("t").put_many([dict(zip("kgxf", row, strict=True)) for row in rows])
    db.table("u").put_many([{"k": k, "g": g, "x": x} for k, g, x in (("a", "q", 3), ("z", "p", 4), ("y", None, 1))])
    monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
    monkeypatch.setattr(checking, "SparkRecompute", DuckRecompute)
    monkeypatch.setattr(checking, "epoch_session", lambda session: session)
    return db


def check(db: vk.Database, *names: str) -> CheckReport:
    return checking.check_views(db, names or None, spark="no Spark at all")


BELOW = {
    "everything": "SELECT * FROM t",
    "some": "SELECT k, g, x + 1 AS x FROM t WHERE x < 9",
    "sums": "SELECT g, SUM(x) AS s, AVG(f) AS a, COUNT(*) AS n FROM t GROUP BY g",
}
TEXTS = {
    "plain": "SELECT k, x FROM t WHERE x > 1",
    "no_key": "SELECT g FROM t",
    "grouped": "SELECT g, SUM(f) AS s, MAX(x) AS hi FROM t GROUP BY g HAVING COUNT(*) > 1",
    "total": "SELECT COUNT(*) AS n, SUM(x) AS s FROM t WHERE x > 100",
    "distinct_rows": "SELECT DISTINCT g, x FROM t",
    "over_star": "SELECT * FROM everything WHERE x > 1",
    "over_some": "SELECT g, x FROM some WHERE x > 1",  # one node over t, though not a text over t
    "over_some_too": "SELECT k, x FROM some",
    "grouped_some": "SELECT g, COUNT(*) AS n FROM some GROUP BY g",
    "over_sums": "SELECT n, COUNT(*) AS c FROM sums GROUP BY n",
    "nested": "SELECT g, y FROM (SELECT g, x + 1 AS y FROM t) q WHERE y > 2",
    "nested_groups": "SELECT y, COUNT(*) AS n FROM (SELECT k, x + 1 AS y FROM t WHERE x < 9) q GROUP BY y",
    "common": "WITH t AS (SELECT k, x FROM t WHERE x < 9) SELECT k FROM t",
    "common_total": "WITH q AS (SELECT x FROM t WHERE x < 9) SELECT SUM(x) AS s FROM q",
    "named": "SELECT a.p, a.r FROM t AS a (p, q, r, s) WHERE a.r > 1",
    "joined": "SELECT t.k, u.x FROM t LEFT JOIN u ON t.g = u.g",
    "exists_in": "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g)",
    "is_in": "SELECT k, x FROM t WHERE g IN (SELECT g FROM u WHERE x > 3)",
    "all_of": "SELECT k, x FROM t UNION ALL SELECT k, x FROM u",
    "top": "SELECT k, x FROM t ORDER BY x DESC, k LIMIT 2",
}


def create(db: vk.Database, *names: str) -> None:
    for name in names:
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {(BELOW | TEXTS)[name]}")
    keep_up(db)


def test_views_of_every_shape_are_judged_and_well(db: vk.Database) -> None:
    create(db, *BELOW, *TEXTS)
    db.execute("CREATE INDEX by_g ON t (g) INCLUDE (x)")
    keep_up(db)
    report = check(db)

    assert report.notes == () and report.findings == ()
    assert report.ok and set(report.views) == {*BELOW, *TEXTS, "by_g"}


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_view_of_any_shape_lacks_is_found(db: vk.Database, name: str) -> None:
    """The judge's rows are those behind the committed epoch here, so what is not applied yet is what the view lacks."""
    create(db, *BELOW, name)
    for number in range(9):
        db.table("t").put(f"a{number}", {"g": "p", "x": 8 if number else 108, "f": 2.0})
    report = check(db, name)

    assert not report.ok and report.notes == ()
    assert report.findings and {finding.view for finding in report.findings} == {name}


def test_views_over_tables_and_views_that_changed_since_are_well(db: vk.Database) -> None:
    create(db, *BELOW, *TEXTS)
    db.execute("CREATE INDEX by_g ON t (g)")
    db.execute("ALTER TABLE t RENAME TO v; ALTER TABLE u RENAME TO t; ALTER MATERIALIZED VIEW some RENAME TO u")
    db.execute("ALTER TABLE v ADD COLUMN note STRING")
    db.table("v").put("a", {"note": "n", "x": 2})
    keep_up(db)
    report = check(db)

    assert report.notes == () and report.findings == ()
    assert len(report.views) == len(BELOW) + len(TEXTS) + 1


def test_rows_set_aside_are_left_out_where_the_text_reads_the_table_itself(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW one AS SELECT k, x + 1 AS y FROM t")
    db.execute("CREATE MATERIALIZED VIEW two AS SELECT y FROM one WHERE y > 1")
    db.table("t").put("big", {"x": MOST})
    keep_up(db)
    report = check(db)

    assert report.findings == () and report.views == ("one",)
    assert not report.ok and len(report.notes) == 1
    assert (
        "view two could not be judged, which says nothing against it: some of its rows are set aside" in report.notes[0]
    )
