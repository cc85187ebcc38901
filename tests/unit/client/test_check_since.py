"""A check since the last one: what changes can have touched is compared, and what is wrong there is found; DuckDB stands in
for Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.duck_judge import BELOW, TEXTS, DuckRecompute
from tests.support.planting import change_stored, stored_records
from tests.support.running import keep_up
from viewkeeper.check import check_views
from viewkeeper.check.report import CheckReport
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.settings import GcSettings
from viewkeeper.stores.version_chains import newest_epoch, versions_of

TOLD = {
    "ends": "SELECT g, MIN(x) AS lo, MAX(f) AS hi, COUNT(DISTINCT x) AS n FROM t GROUP BY g, x % 3",
    "pairs": "SELECT t.x, u.x AS y FROM t JOIN u ON t.g = u.g WHERE t.x < 30",
    "looked_up": "SELECT t.x, u.x AS y FROM u JOIN t ON t.g = u.k",
    "of_three": "SELECT t.f, u.f AS h, w.x FROM t, u, w WHERE t.x = u.x AND w.k = u.g",
    "paired_sums": "SELECT u.g, t.x % 2 AS odd, SUM(t.x) AS s, MIN(u.x) AS lo FROM t JOIN u ON t.x = u.x GROUP BY u.g, odd",
    "fallible": "SELECT k, 10 div (x - 3) AS y FROM t",
    "fallible_groups": "SELECT 10 div (x - 3) AS y, COUNT(*) AS n FROM t WHERE 5 div (x - 4) > 0 GROUP BY y",
    "composite": "SELECT z FROM wide WHERE z > 3",
}  # fmt: skip
SHAPES = BELOW | TEXTS | TOLD
WHOLE = {
    "over_star", "over_some", "over_some_too", "grouped_some", "over_sums", "nested", "nested_groups", "common",
    "common_total", "named", "joined", "exists_in", "is_in", "all_of", "top",
}  # fmt: skip


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&nodes=2") as db:
        for name in "tuw":
            db.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT, f DOUBLE, w BIGINT)")
        db.execute("CREATE TABLE wide (a STRING, b INT, z INT, PRIMARY KEY (a, b))")
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
        yield db


def check(db: vk.Database, *names: str, since: str | None = "last") -> CheckReport:
    return check_views.check_views(db, names or None, spark="no Spark at all", since=since)


def create(db: vk.Database, *names: str) -> None:
    for name in names:
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {SHAPES[name]}")
    db.execute("CREATE INDEX by_g ON t (g) INCLUDE (x)")


def live(db: vk.Database, source: random.Random, changes: int, *, keys: int) -> None:
    """Rows that come, change and go, in many epochs."""
    coordinator = keep_up(db)
    for number in range(changes):
        table, key = db.table(source.choice("ttuw")), f"k{source.randrange(keys)}"
        if source.random() < 0.3:
            table.delete(key)
        else:
            group = source.choice([None, "a", "b", "c", "k1", "k2", "k3"])
            table.put(key, {"g": group, "x": source.choice([None, *range(40)]), "f": source.choice([None, -0.0, 0.25])})
        db.table("wide").put(f"a{source.randrange(9)}", source.randrange(9), {"z": source.randrange(9)})
        if number % 50 == 49:
            coordinator.catch_up()
    coordinator.catch_up()


def written_after(db: vk.Database, view: str, epoch: int) -> list[tuple[int, bytes, bytes]]:
    """The view's records that epochs after `epoch` have written: that a change has touched, whatever the check thinks."""
    records = stored_records(db, db.catalog().view(view).node.table)
    return [record for record in records if newest_epoch(record[2]) > epoch]


def is_there(chain: bytes) -> bool:
    return next(iter(versions_of(chain)))[1] is not None


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2, 3))])
def test_every_error_in_what_was_touched_is_found_and_nothing_else(db: vk.Database, seed: int) -> None:
    create(db, *SHAPES)
    source = random.Random(seed)
    live(db, source, 150, keys=30)
    last = check(db, since=None)
    assert last.ok and last.since == {}
    live(db, source, 25, keys=200)
    report = check(db)

    assert report.findings == () and report.ok
    assert set(report.since) == {*SHAPES, "by_g"} - WHOLE and set(report.since.values()) == {last.epoch}
    assert len(report.notes) == len(WHOLE) and all("was checked as a whole" in note for note in report.notes)

    live(db, source, 25, keys=200)
    planted = {view: plant(db, view, report.epoch, source) for view in report.since}
    again = check(db)
    found = {view: {one.kind for one in again.findings if one.view == view} for view in planted}
    counts = {view: len([one for one in again.findings if one.view == view]) for view in planted}
    assert counts == {view: len(kinds) for view, kinds in planted.items()}
    assert found == {view: set(kinds) for view, kinds in planted.items()}
    assert sum(counts.values()) > 60 and list(counts.values()).count(0) < 4
    assert {"missing", "extra", "wrong"} == set().union(*found.values())


def plant(db: vk.Database, view: str, epoch: int, source: random.Random) -> list[str]:
    """Errors among the records that were touched; returns their kinds."""
    table = db.catalog().view(view).node.table
    touched, there = written_after(db, view, epoch), [one for one in stored_records(db, table) if is_there(one[2])]
    kinds = []
    for partition, key, chain in source.sample(touched, min(6, len(touched))):
        before, other = shown(db, view), source.choice(there)[2] if there else None
        if is_there(chain) and (source.random() < 0.5 or other is None):
            change_stored(db, table, partition, key, None)
        elif other is not None:
            change_stored(db, table, partition, key, other)
        rows = len(shown(db, view)) - len(before)
        if rows or shown(db, view) != before:  # not a record in the place of one with the same values
            kinds.append({-1: "missing", 0: "wrong", 1: "extra"}[rows])
    return kinds


def shown(db: vk.Database, view: str) -> list[str]:
    return sorted(map(repr, db.view(view).scan()))


def test_what_was_not_touched_is_seen_by_a_whole_check_alone(db: vk.Database) -> None:
    create(db, "sums", "plain")
    db.table("t").put_many([{"k": f"k{i}", "g": f"g{i % 5}", "x": i} for i in range(30)])
    keep_up(db)
    assert check(db, since=None).ok
    db.table("t").put("k7", {"x": 70})
    keep_up(db)
    for view in ("sums", "plain"):
        partition, key, _ = next(
            one for one in stored_records(db, db.catalog().view(view).node.table) if b"3" in one[1]
        )
        change_stored(db, db.catalog().view(view).node.table, partition, key, None)
    report = check(db, "sums", "plain")

    assert report.ok and report.records == 2 and set(report.since) == {"sums", "plain"}
    assert {finding.view for finding in check(db, since=None).findings} == {"sums", "plain"}


def test_a_view_without_changes_is_not_computed_at_all(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    create(db, "sums", "looked_up")
    db.table("t").put("k1", {"g": "a", "x": 1})
    keep_up(db)
    last = check(db, since=None)
    db.table("w").put("k1", {"g": "a"})
    keep_up(db)
    monkeypatch.setattr(check_views, "SparkRecompute", None)
    report = check(db, "sums", "looked_up")

    assert report.ok and report.records == 0 and report.epoch > last.epoch
    assert {view.checked.epoch for view in db.status().views if view.name != "by_g"} == {report.epoch}
    assert {view.checked.whole for view in db.status().views} == {last.epoch}


def test_where_the_last_check_cannot_be_built_upon_the_whole_view_is_checked_and_that_is_told(db: vk.Database) -> None:
    def told(because: str) -> bool:
        report = check(db, "sums")
        return report.since == {} and report.notes == (f"view sums was checked as a whole: {because}",)

    create(db, "sums")
    db.table("t").put("k1", {"g": "a", "x": 1})
    keep_up(db)
    assert told("it has no earlier check to build on")
    assert check(db, "sums").since == {"sums": db.epoch}

    partition, key, chain = stored_records(db, db.catalog().view("sums").node.table)[0]
    change_stored(db, db.catalog().view("sums").node.table, partition, key, None)
    assert not check(db, "sums", since=None).ok
    change_stored(db, db.catalog().view("sums").node.table, partition, key, chain)
    assert told(f"the check as of epoch {db.epoch} found it wrong")

    before = db.epoch
    for number in range(4):
        db.table("t").put(f"k{number}", {"g": "a", "x": 2})
        keep_up(db)
    collect_garbage(db.store, GcSettings(log_kept_seconds=0))
    assert told(f"the log no longer holds all changes after epoch {before}")
    db.keep_changes(seconds=3_600)
    db.table("t").put("k9", {"g": "b"})
    keep_up(db)
    collect_garbage(db.store, GcSettings(log_kept_seconds=0))
    assert set(check(db, "sums").since) == {"sums"}  # as long as changes are kept, so is the log
    db.rebuild("sums")
    assert told("it has no earlier check to build on")
    with pytest.raises(vk.InputError, match="goes back to the last one"):
        check(db, since="yesterday")


def test_with_a_plain_log_views_are_checked_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with vk.connect(f"embedded:{tmp_path / 'plain'}?sync=off&before_images=off") as db:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, x INT); CREATE MATERIALIZED VIEW v AS SELECT k, x FROM t")
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
        keep_up(db)
        assert check(db, since=None).ok
        assert check(db).notes == (
            "view v was checked as a whole: the log does not hold rows as they were before a change",
        )
