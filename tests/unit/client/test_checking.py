"""What a check asks and what it makes of the answer, for views of every shape; DuckDB stands in for Spark."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

import viewkeeper as vk
from tests.support import troubled
from tests.support.duck_judge import BELOW, TEXTS, DuckRecompute
from tests.support.planting import change_row_of_delta, row_of_delta
from tests.support.running import keep_up
from tests.support.troubled import make_tables, make_trouble
from viewkeeper.check import check_files, check_views
from viewkeeper.check.report import CheckReport
from viewkeeper.model.keys import encode_key
from viewkeeper.model.schema import Column
from viewkeeper.model.types import STRING
from viewkeeper.stores.kv.kernel import table_prefix

KEY = (Column("k", STRING),)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    make_tables(db)
    monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
    monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
    return db


def check(db: vk.Database, *names: str) -> CheckReport:
    return check_views.check_views(db, names or None, spark="no Spark at all")


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


def test_rows_set_aside_are_judged_in_views_of_every_shape(db: vk.Database) -> None:
    make_trouble(db, troubled.ROWS)
    keep_up(db)
    report = check(db)

    assert all(view.set_aside.count for view in db.status().views)
    assert report.notes == () and report.findings == ()
    assert report.ok and set(report.views) == set(troubled.ROWS)


def test_a_row_that_is_set_aside_without_cause_is_found(db: vk.Database) -> None:
    """What the pipeline lists is not asked: the judge finds out for itself on which rows the text fails."""
    make_trouble(db, {"shown": troubled.ROWS["shown"]})
    keep_up(db)
    db.table("t").put("big1", {"x": 7})  # the stand-in judges by the rows of now
    report = check(db)

    assert [(finding.key, finding.kind) for finding in report.findings] == [(("big1",), "missing")]


def test_a_delta_that_is_not_what_the_base_was_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are judged by DELTA where the log has no before-images: what it lacks, they may lack without a difference."""
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images=off&nodes=2")
    make_tables(db)
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
    monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
    keep_up(db)
    changed = {"a": {"x": 100}, "late": {"x": 1}}  # behind the committed epoch: the base cannot tell what they were
    for key, row in changed.items():
        db.table("t").put(key, row)
    db.table("t").delete("b")
    assert not [finding for finding in check(db).findings if finding.view != "v"]

    change_row_of_delta(db, "t", ("c",), None)
    change_row_of_delta(db, "t", ("late",), row_of_delta(db, "t", ("e",)))
    change_row_of_delta(db, "u", ("new",), row_of_delta(db, "u", ("a",)))
    change_row_of_delta(db, "u", ("y",), row_of_delta(db, "u", ("a",)))
    faults = [(finding.view, finding.key, finding.kind) for finding in check(db).findings if finding.view != "v"]
    assert faults == [("DELTA(t)", ("c",), "missing"), ("DELTA(u)", ("new",), "extra"), ("DELTA(u)", ("y",), "wrong")]
    assert [finding.view for finding in check(db, "v").findings if finding.view != "v"] == ["DELTA(t)"]


def test_views_that_are_not_filled_are_told_and_alone_they_are_not_ok(db: vk.Database) -> None:
    db.execute("CREATE TABLE fresh (k INT PRIMARY KEY)")
    db.execute("CREATE MATERIALIZED VIEW early AS SELECT k FROM fresh; CREATE INDEX late ON fresh (k)")
    report = check(db)
    note = "early, late are not filled yet, so not compared; a running pipeline fills views"
    assert (report.ok, report.views, report.notes) == (False, (), (note,))

    keep_up(db)
    db.execute("CREATE MATERIALIZED VIEW same AS SELECT k FROM fresh")  # kept already
    db.execute("CREATE MATERIALIZED VIEW later AS SELECT k FROM fresh WHERE k > 0")
    report = check(db)
    note = "later is not filled yet, so not compared; a running pipeline fills views"
    assert (report.ok, set(report.views), report.notes) == (True, {"early", "late", "same"}, (note,))


@pytest.mark.parametrize("row", [b"", b"\1", b"\4\0\0" + b"\xff" * 40, b"\xff" * 30])
def test_a_damaged_row_of_a_table_is_named_and_the_views_over_other_tables_are_checked(
    db: vk.Database, row: bytes
) -> None:
    create(db, "plain")
    db.execute("CREATE MATERIALIZED VIEW others AS SELECT k FROM u")
    keep_up(db)
    with db.store.node(0).kernel.write("rows") as rows:
        rows.put(table_prefix(db.table("t").schema.id) + encode_key(KEY, ["a"]), row)
    report = check(db)

    states = {one.view: (one.state, one.why, one.way_out) for one in report.outcomes}
    why = "a row of table t is damaged, that with the key ('a',)"
    assert states["plain"] == ("not done", why, "restore a backup, or load the table anew")
    assert states["others"][0] == "ok" and not report.ok and report.views == ("others",)


@pytest.mark.parametrize("rows_max", [5, 6])
def test_a_base_that_is_read_in_batches_is_compared_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    """Of five rows, or ten: the last batch may be full, or empty."""
    monkeypatch.setattr(check_files, "_BATCH_ROWS", rows_max)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images=off&nodes=2") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, x INT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT k, x FROM t WHERE x >= 0")
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
        for count in (5, 10):
            db.table("t").put_many([{"k": number, "x": number} for number in range(count)])
            keep_up(db)
            assert check(db).findings == ()
        for key in (0, 9):
            change_row_of_delta(db, "t", (key,), None)
        wrong = [(finding.key, finding.kind) for finding in check(db).findings if finding.view == "DELTA(t)"]
        assert wrong == [((0,), "missing"), ((9,), "missing")]


@pytest.mark.parametrize("more", [0, 1])
def test_a_jvm_for_few_rows_is_asked_for_where_the_store_is_small(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    asked: list[str] = []

    def start(view_managers: int, *, java_options: str) -> object:
        asked.append(java_options)
        return MagicMock()

    create(db, "plain")
    monkeypatch.setattr(check_views, "default_session", start)
    monkeypatch.setattr(check_views, "_FEW_ROWS_BYTES", db.store.facts().bytes_used + more)
    report = check_views.check_views(db, ["plain"], spark=None)

    assert report.ok and report.views == ("plain",)
    assert asked == [check_views.FEW_ROWS_JAVA_OPTIONS if more else ""]
