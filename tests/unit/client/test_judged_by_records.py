"""`check` and `repair`, judged by a reader of the raw records that knows nothing of either: whatever it sees, `check` names,
and after a repair that says ok it sees nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.damages import DAMAGES
from tests.support.duck_judge import DuckRecompute
from tests.support.record_reader import problems, put_raw, raw_records
from tests.support.running import keep_up
from viewkeeper.check import check_views, repairing
from viewkeeper.check.report import CheckReport, RepairReport
from viewkeeper.client.views import View

VIEWS = {
    "plain": "SELECT k, x, d FROM t WHERE x > 1",
    "no_key": "SELECT g, x > 5 AS much FROM t",
    "sums": "SELECT g, SUM(x) AS s, COUNT(*) AS n, AVG(f) AS a FROM t GROUP BY g",
    "ends": "SELECT g, MIN(x) AS lo, MAX(k) AS hi, COUNT(DISTINCT x) AS n FROM t GROUP BY g",
    "total": "SELECT COUNT(*) AS n, SUM(x) AS s FROM t",
    "many": "SELECT g, SUM(d) AS s FROM t GROUP BY g HAVING COUNT(*) > 1",
    "distinct_rows": "SELECT DISTINCT g, x FROM t",
    "pairs": "SELECT t.k, u.k AS o, u.x FROM t LEFT JOIN u ON t.g = u.g",
    "met": "SELECT u.x, COUNT(*) AS n FROM t JOIN u ON t.x = u.x GROUP BY u.x",
    "lone": "SELECT k FROM t WHERE x NOT IN (SELECT x FROM u WHERE x > 3)",
    "all_of": "SELECT k, x FROM t UNION ALL SELECT k, x FROM u",
    "top": "SELECT k, x FROM t ORDER BY x DESC, k LIMIT 3",
}
STORES = {
    "memory": "memory:?before_images=on",
    "embedded": "embedded:{}?sync=off",
    "embedded, plain log": "embedded:{}?sync=off&before_images=off",
}
FEW = ("plain", "no_key", "sums", "ends", "pairs", "lone", "top")  # and the index: every kind in two rounds
KINDS = tuple(DAMAGES)


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    with vk.connect(STORES[request.param].format(tmp_path / "s")) as db:
        for name in "tu":
            db.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT, f DOUBLE, d DECIMAL(12,2))")
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
        for name in VIEWS if request.node.get_closest_marker("deep") else FEW:
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
        db.execute("CREATE INDEX by_g ON t (g) INCLUDE (x)")
        write(db, random.Random(1), 40)
        write(db, random.Random(2), 20)
        yield db


def write(db: vk.Database, source: random.Random, rows: int) -> None:
    """Rows that come, change and go, in one epoch."""
    for name in "tu":
        table = db.table(name)
        for number in range(rows if name == "t" else rows // 3):
            key = f"k{source.randrange(30)}"
            if number % 5 == 4:
                table.delete(key)
            else:
                row = {"g": source.choice([None, "a", "b", "c"]), "x": source.choice([None, *range(9)])}
                table.put(key, row | {"f": source.choice([None, 0.25, -2.0]), "d": source.randrange(99)})
    keep_up(db)


def check(db: vk.Database) -> CheckReport:
    return check_views.check_views(db, None, "no Spark at all")


def repair(db: vk.Database) -> RepairReport:
    return repairing.repair_views(db, None, "no Spark at all")


def named(report: CheckReport) -> set[str]:
    return {found.view for found in report.findings} | {one.view for one in report.outcomes if one.state != "ok"}


def judge(db: vk.Database, planted: dict[str, str], source: random.Random) -> None:
    """What the reader sees, `check` names; after the repair, and after more changes, the reader sees nothing."""
    everyone = {view.name for view in db.catalog().views}
    seen = problems(db)
    done = repair(db)
    told = f"{planted}: the reader sees {seen}"
    assert named(done.before) >= seen.keys(), told
    assert {one.view for one in done.before.outcomes} == {one.view for one in done.outcomes} == everyone
    assert problems(db) == {}, f"{told}, and still after {done.outcomes}"
    assert done.ok and done.before.ok == (not done.before.findings), f"{told}: {done.outcomes}"
    write(db, source, 15)
    assert problems(db) == {}, f"{told}, and again after changes"
    assert {view.state for view in db.status().views} == {"fresh"}, told


def plant_in_views(db: vk.Database, first: int, source: random.Random) -> dict[str, str]:
    """Every view is damaged in another way, from the kind at `first` on."""
    planted = {}
    for place, view in enumerate(db.catalog().views):
        kind = KINDS[(first + place) % len(KINDS)]
        if DAMAGES[kind](db, view.node.table, source):
            planted[view.name] = kind
    return planted


def plant_beside(db: vk.Database, first: int, source: random.Random) -> dict[str, str]:
    """In the auxiliary tables: PRE-AGGREGATION, groups, REVERSE-JOIN, counts, rows in order, and DELTA."""
    catalog, planted = db.catalog(), {}
    own = {view.node.table for view in catalog.views}
    tables = sorted({table for node in catalog.nodes for table in node.tables} - own)
    tables += [table.delta for table in catalog.tables if table.delta is not None]
    for place, table in enumerate(tables):
        kind = KINDS[(first + place) % len(KINDS)]
        if DAMAGES[kind](db, table, source):
            planted[f"table {table}"] = kind
    return planted


@pytest.mark.parametrize("db", ["memory"], indirect=True)
def test_what_an_independent_reader_sees_is_named_by_check_and_put_right_by_repair(db: vk.Database) -> None:
    assert problems(db) == {}
    views = len(db.catalog().views)
    for first in range(0, len(KINDS), views):
        source = random.Random(first)
        judge(db, plant_in_views(db, first, source), source)


@pytest.mark.parametrize("db", ["memory"], indirect=True)
def test_who_reads_a_damaged_record_is_told_so_and_the_view_is_named(db: vk.Database) -> None:
    """Or sees it as if nothing were: a read does not look for damage. No other error comes."""
    seen, source = set[str](), random.Random(4)
    for kind in KINDS:
        for name in ("no_key", "sums", "ends"):
            table = db.catalog().view(name).node.table
            before = {(place, key): chain for place, key, chain in raw_records(db, table)}
            DAMAGES[kind](db, table, source)
            for read in (lambda v: list(v.scan()), lambda v: v.to_arrow(), lambda v: list(v.changes(db.epoch - 1))):
                seen |= told_of(db, name, read)
            for place, key in {*before, *((place, key) for place, key, _ in raw_records(db, table))}:
                put_raw(db, table, place, key, before.get((place, key)))
    assert {f"a record of view {name} is damaged" for name in ("no_key", "sums", "ends")} < seen
    assert {told for told in seen if "is damaged" not in told} <= {"a text in the store is no UTF-8"}


def told_of(db: vk.Database, name: str, read: Callable[[View], object]) -> set[str]:
    try:
        read(db.view(name))
    except vk.CorruptStore as error:
        assert error.hint
        return {error.fact}
    return set()


@pytest.mark.parametrize("db", ["embedded, plain log"], indirect=True)
def test_damaged_auxiliary_tables_are_put_right_by_repair(db: vk.Database) -> None:
    source = random.Random(7)
    judge(db, plant_beside(db, 0, source), source)


@pytest.mark.deep
@pytest.mark.parametrize("db", STORES, indirect=True)
@pytest.mark.parametrize("first", range(len(KINDS)))
def test_damage_of_every_kind_in_views_and_auxiliary_tables_of_every_shape(db: vk.Database, first: int) -> None:
    source = random.Random(f"{first}")
    judge(db, plant_in_views(db, first, source), source)
    judge(db, plant_beside(db, first, source), source)
