"""Repair: records that differ from what the views' texts say are put right, in one epoch, and no others are written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.duck_judge import BELOW, TEXTS, DuckRecompute
from tests.support.dump import contents, dump, written_by
from tests.support.planting import (
    chain_of as planted_chain,
)
from tests.support.planting import (
    change_record,
    change_row_of_delta,
    change_stored,
    row_of_delta,
    stored_records,
    view_keys,
)
from tests.support.running import Interrupted, ManagersRunner, RunThenDie, keep_up
from tests.support.sizes import require_right_sizes
from tests.support.tiers import ONE_LOG
from viewkeeper.check import check_views, repairing
from viewkeeper.check.report import CheckReport, RepairReport
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.plan.replacements import with_shadow_views
from viewkeeper.ports.meta import change_epoch_record
from viewkeeper.stores.version_chains import chain_of, versions_of

SHAPES = BELOW | TEXTS | {
    "ends": "SELECT g, MIN(x) AS lo, MAX(f) AS hi, COUNT(DISTINCT x) AS n, SUM(DISTINCT f) AS s FROM t GROUP BY g",
    "spread": "SELECT MIN(k) AS a, COUNT(DISTINCT k) AS n, SUM(f) AS s, VAR_POP(x) AS v FROM t",
    "outer_pairs": "SELECT t.k, u.k AS o, u.x FROM t LEFT JOIN u ON t.g = u.g AND u.x > t.x",
    "full_sums": "SELECT u.x, COUNT(*) AS n, MIN(t.x) AS lo FROM t FULL JOIN u ON t.x = u.x GROUP BY u.x",
    "not_in": "SELECT k FROM t WHERE x NOT IN (SELECT x FROM u WHERE x > 20)",
    "in_both": "SELECT x FROM t INTERSECT SELECT x FROM u",
    "fallible": "SELECT k, 10 div (x - 3) AS y FROM t",
    "too_large": "SELECT g, SUM(w) AS s, COUNT(*) AS n FROM t GROUP BY g",
}  # fmt: skip


@pytest.fixture(params=["on", "off"], ids=["before-images", "plain log"])
def db(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images={request.param}") as db:
        for name in "tu":
            db.execute(f"CREATE TABLE {name} (k STRING PRIMARY KEY, g STRING, x INT, f DOUBLE, w BIGINT)")
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
        yield db


def live(db: vk.Database, changes: int, *, seed: int = 5) -> Coordinator:
    """Rows that come, change and go, in many epochs."""
    source, coordinator = random.Random(seed), keep_up(db)
    doubles = (None, -0.0, 0.0, 0.1, 0.25, 5e-324)
    for number in range(changes):
        table, key = db.table(source.choice("tttu")), f"k{source.randrange(changes // 5)}"
        if source.random() < 0.3:
            table.delete(key)
        else:
            x, w = source.choice([None, *range(40)]), source.choice([None, 1, 2**62, -5])
            table.put(key, {"g": source.choice([None, "a", "b", "c"]), "x": x, "f": source.choice(doubles), "w": w})
        if number % 80 == 0:
            coordinator.catch_up()
    coordinator.catch_up()
    return coordinator


def create(db: vk.Database, *names: str) -> None:
    for name in names:
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {SHAPES[name]}")
    db.execute("CREATE INDEX by_g ON t (g) INCLUDE (x)")


def repair(db: vk.Database, *names: str) -> RepairReport:
    return repairing.repair_views(db, names or None, spark="no Spark at all")


def state(db: vk.Database) -> dict[tuple[int, bytes], bytes]:
    """The newest row of every record of views and auxiliary tables, but for those that are absent."""
    newest = {(table, key): next(iter(versions_of(chain)))[1] for table, key, chain in dump(db.store)}
    return {record: row for record, row in newest.items() if row is not None}


def tables_of_views(db: vk.Database) -> dict[int, bool]:
    """Every table of a stored node, and whether it is a view's own."""
    own = {view.node.table for view in db.catalog().views}
    return {table: table in own for node in db.catalog().nodes for table in node.tables}


def extra_key(key: bytes) -> bytes:
    return key[:-2] + b"~~" + key[-2:] if key.endswith(b"\0\0") else key[:-1] + bytes([key[-1] ^ 0x55])


def plant(db: vk.Database, table: int, source: random.Random) -> None:
    """A record that is missing, one that is another's, and one too many, as far as there are records."""
    records = stored_records(db, table)
    source.shuffle(records)
    if len(records) > 2:
        (_, _, other), (partition, key, _) = records[:2]
        change_stored(db, table, partition, key, other)
        partition, key, _ = records[2]
        change_stored(db, table, partition, key, None)
        wide = [one for one in records[3:] if one[1][-2:] == b"\0\0" or one[1][-5:-4] == b"\1"]
        for partition, key, chain in wide[:1]:
            change_stored(db, table, partition, extra_key(key), chain)


@ONE_LOG
def test_what_is_right_is_not_written_whatever_its_history(db: vk.Database) -> None:
    create(db, *SHAPES)
    live(db, 240)
    before = state(db)
    report = repair(db)
    collect_garbage(db.store)

    assert report.before.findings == report.after.findings == ()
    assert set(report.records) == {*SHAPES, "by_g"}
    assert not any((*report.records.values(), *report.auxiliary.values()))
    assert written_by(db.store, report.epoch) == []
    assert state(db) == before
    assert db.catalog().replacements == ()


@ONE_LOG
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.deep)])
def test_errors_in_any_table_of_views_of_every_shape_are_put_right_and_nothing_else_is_touched(
    db: vk.Database, seed: int
) -> None:
    create(db, *SHAPES)
    live(db, 300, seed=seed)
    right, shown = state(db), contents(db)
    source, tables = random.Random(seed), tables_of_views(db)
    for table in tables:
        plant(db, table, source)
    planted = {record for record, _ in right.items() ^ state(db).items()}
    report = repair(db)
    collect_garbage(db.store)

    assert report.before.findings and report.after.findings == ()
    assert contents(db) == shown
    own = {table for table, is_own in tables.items() if is_own}
    written = {(table, key) for table, key, _ in written_by(db.store, report.epoch)}
    assert len(planted) > 80 and written >= planted
    assert {record for record in written if record[0] in own} == {record for record in planted if record[0] in own}
    assert state(db) == right
    require_right_sizes(db.store)  # counted anew, because nobody had counted what was planted


def test_views_that_share_records_are_put_right_together(db: vk.Database) -> None:
    """`over_sums` has been computed from records of `sums`: to correct one alone would leave the other wrong."""
    create(db, "sums", "over_sums", "plain")
    live(db, 100)
    change_record(db, "sums", view_keys(db, "sums")[0], None)
    change_record(db, "plain", view_keys(db, "plain")[0], None)
    report = repair(db, "over_sums")

    assert report.ok and report.records == {"sums": 1, "over_sums": 0}
    assert [finding.view for finding in check_views.check_views(db, None, "no Spark at all").findings] == ["plain"]


def test_readers_see_all_of_a_repair_or_nothing_of_it(db: vk.Database) -> None:
    create(db, "sums", "plain")
    coordinator = live(db, 100)
    wrong = {"sums": view_keys(db, "sums")[0], "plain": view_keys(db, "plain")[0]}
    for view, key in wrong.items():
        change_record(db, view, key, None)
    db.change_catalog(lambda catalog: with_shadow_views(catalog, list(wrong), "repair", db.epoch)[0])
    states = []
    while True:
        with db.snapshot() as snapshot:
            states.append([snapshot.view(view).get(*key) is not None for view, key in wrong.items()])
        if coordinator.step() is None:
            break

    assert states[0] == [False, False] and states[-1] == [True, True]
    assert [False, True] not in states and [True, False] not in states


def test_changes_of_a_view_hold_what_a_repair_put_right(db: vk.Database) -> None:
    create(db, "sums")
    live(db, 100)
    db.keep_changes(epochs=20)
    db.table("t").put("another", {"g": "a"})
    keep_up(db)
    epoch, key = db.epoch, view_keys(db, "sums")[0]
    right = db.view("sums").get(*key)
    change_record(db, "sums", key, None)
    repair(db, "sums")

    assert [(c.key, c.before, c.after) for c in db.view("sums").changes(epoch)] == [(key, None, right)]


def test_a_view_that_is_made_or_dropped_meanwhile_is_no_matter(db: vk.Database) -> None:
    create(db, "sums", "over_sums")
    coordinator = live(db, 100)
    db.change_catalog(lambda catalog: with_shadow_views(catalog, ["sums"], "repair", db.epoch)[0])
    db.execute(f"CREATE MATERIALIZED VIEW same AS {SHAPES['sums']}")
    db.execute("DROP MATERIALIZED VIEW over_sums")
    coordinator.catch_up()

    assert db.catalog().view("same").node == db.catalog().view("sums").node
    assert db.catalog().replacements == ()
    assert check_views.check_views(db, None, "no Spark at all").ok


def outcomes(report: RepairReport | CheckReport) -> dict[str, tuple[str, str | None, str | None]]:
    return {one.view: (one.state, one.why, one.way_out) for one in report.outcomes}


@pytest.mark.parametrize("is_named", [True, False])
def test_views_that_cannot_be_repaired_are_listed_with_the_way_out_and_the_others_are_repaired(
    db: vk.Database, is_named: bool
) -> None:
    create(db, "sums", "over_sums", "plain", "grouped")
    live(db, 50)
    change_record(db, "grouped", view_keys(db, "grouped")[0], None)
    db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW plain AS {SHAPES['plain']}")
    stop(db, "sums")
    db.execute(f"CREATE MATERIALIZED VIEW total AS {SHAPES['total']}")
    names = ("sums", "over_sums", "plain", "grouped", "by_g", "total") if is_named else ()
    report = repair(db, *names)

    assert not report.ok and not report.after.findings
    assert outcomes(report) == {
        "sums": ("not done", "it is stopped: it broke", "viewkeeper rebuild URL sums"),
        "over_sums": ("not done", "it is stopped: it broke", "viewkeeper rebuild URL over_sums"),
        "plain": ("not done", "it is being replaced", "wait until the new one is filled"),
        "grouped": ("repaired", None, None),
        "by_g": ("ok", None, None),
        "total": ("not done", "it is not filled yet", "a running pipeline fills views"),
    }
    assert {one.view: one.state for one in report.before.outcomes}["grouped"] == "wrong"
    with pytest.raises(vk.UnknownName):
        repair(db, "nowhere")


def test_where_all_views_are_stopped_neither_check_nor_repair_is_ok_and_both_list_them(db: vk.Database) -> None:
    create(db, "sums")
    live(db, 50)
    for view in ("sums", "by_g"):
        stop(db, view)
    for report in (check_views.check_views(db, None, "no Spark at all"), repair(db), repair(db, "sums", "by_g")):
        assert not report.ok
        assert outcomes(report) == {
            view: ("not done", "it is stopped: it broke", f"viewkeeper rebuild URL {view}") for view in ("sums", "by_g")
        }


def stop(db: vk.Database, view: str) -> None:
    """As if the view's work had failed."""
    table = db.catalog().view(view).node.table
    change_epoch_record(
        db.store,
        lambda record: replace(record, version=record.version + 1, stopped=record.stopped | {int(table): "it broke"}),
    )


def test_a_stopped_view_is_well_again_after_a_rebuild(db: vk.Database) -> None:
    create(db, "sums", "over_sums", "plain")
    live(db, 100)
    shown = contents(db)
    stop(db, "sums")
    db.table("t").put("later", {"g": None, "x": 3, "f": 0.5})
    keep_up(db)
    with pytest.raises(vk.NotReady, match="viewkeeper rebuild"):
        db.view("sums").get(None)
    assert {view.name for view in db.status().views if view.state == "stopped"} == {"sums", "over_sums"}
    before = db.catalog().view("plain")

    assert set(db.rebuild("sums")) == {"sums", "over_sums"}
    assert {view.state for view in db.status().views} == {"fresh"}
    assert contents(db) != shown and check_views.check_views(db, None, "no Spark at all").ok
    assert db.catalog().view("plain") == before
    db.table("t").delete("later")
    keep_up(db)
    assert contents(db) == shown


def test_a_rebuild_changes_no_definition_and_leaves_no_old_table(db: vk.Database) -> None:
    create(db, *SHAPES)
    live(db, 100)
    shown, before = contents(db), {view.name: (view.id, view.text, view.shown) for view in db.catalog().views}
    old = tables_of_views(db)
    opened = db.view("sums")
    db.rebuild(*SHAPES, "by_g")
    collect_garbage(db.store)

    assert contents(db) == shown
    assert {view.name: (view.id, view.text, view.shown) for view in db.catalog().views} == before
    assert old.keys().isdisjoint(tables_of_views(db))
    assert old.keys().isdisjoint(table for table, _, _ in dump(db.store))
    assert list(opened.scan()) == list(db.view("sums").scan())


def test_a_pipeline_that_runs_takes_up_the_request() -> None:
    with vk.connect("memory:") as db:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING); CREATE MATERIALIZED VIEW v AS SELECT g FROM t")
        with db.pipeline() as pipeline:
            pipeline.start()
            pipeline.wait_for(db.table("t").put("a", {"g": "x"}))
            before = db.catalog().view("v").node
            assert db.rebuild("v") == ("v",)
            pipeline.wait_for(db.table("t").put("b", {"g": "y"}))
        assert db.catalog().view("v").node.table != before.table
        assert [row["g"] for row in db.view("v").scan()] == ["x", "y"]


@pytest.mark.parametrize("same", [True, False], ids=["its database", "another one of the process"])
def test_a_pipeline_that_is_open_and_not_started_does_what_is_asked_beside_it(same: bool) -> None:
    with vk.connect("memory:beside") as db, vk.connect("memory:beside") as other, db.pipeline() as pipeline:
        db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING); CREATE MATERIALIZED VIEW v AS SELECT g FROM t")
        db.table("t").put("a", {"g": "x"})
        pipeline.run_available()
        before = db.catalog().view("v").node
        assert (db if same else other).rebuild("v") == ("v",)
        assert db.catalog().view("v").node.table != before.table
        pipeline.start()
        pipeline.wait_for(db.table("t").put("b", {"g": "y"}))
        assert [row["g"] for row in db.view("v").scan()] == ["x", "y"]


def test_a_request_outlives_who_made_it_and_a_later_one_takes_its_place(db: vk.Database) -> None:
    create(db, "sums")
    live(db, 50)
    for ending in ("rebuild", "repair"):
        db.change_catalog(lambda catalog, ending=ending: with_shadow_views(catalog, ["sums"], ending, db.epoch)[0])
    assert [twin.twin for twin in db.catalog().replacements] == ["repair"]
    assert db.status().views[0].replacement == "being repaired, waiting"
    keep_up(db)

    assert db.catalog().replacements == ()
    assert db.store.read_epoch_record().repaired.keys() == {db.catalog().view("sums").node.table}


def test_checks_and_repairs_are_remembered_with_the_records_they_were_for(db: vk.Database) -> None:
    create(db, "sums", "plain")
    live(db, 50)
    change_record(db, "sums", view_keys(db, "sums")[0], None)
    assert db.status().views[0].checked is None
    check_views.check_views(db, ["sums"], "no Spark at all")
    with vk.connect(db.url) as again:
        sums, plain, _ = again.status().views
    assert (sums.checked.epoch, sums.checked.findings, plain.checked) == (db.epoch, 1, None)
    assert f"view sums had 1 wrong record at epoch {db.epoch}; viewkeeper repair URL sums" in db.status().warnings
    epoch = repair(db, "sums").epoch
    sums = db.status().views[0]
    assert (sums.checked.findings, sums.repaired.epoch, sums.repaired.records) == (0, epoch, 1)
    db.rebuild("sums")
    db.table("t").put("later", {"g": "a"})
    keep_up(db)
    assert (db.status().views[0].checked, db.status().views[0].repaired) == (None, None)


def test_a_record_of_an_epoch_that_never_was_stops_its_view_alone_and_rebuild_is_the_way_out(db: vk.Database) -> None:
    create(db, "sums", "plain")
    live(db, 50)
    key = view_keys(db, "plain")[0]
    change_record(db, "plain", key, chain_of([(1 << 40, b"no row at all")]))
    db.table("t").put(key[0], {"g": "new", "x": 1})
    keep_up(db)
    views = {view.name: view for view in db.status().views}
    assert (views["plain"].state, views["sums"].state) == ("stopped", "fresh")
    assert "its bytes were changed" in views["plain"].stopped
    assert db.view("sums").get("new") is not None
    assert not repair(db).ok
    assert db.rebuild("plain") == ("plain",)
    assert check_views.check_views(db, None, "no Spark at all").ok


def test_a_view_with_a_record_of_an_epoch_that_never_was_is_named_by_check_and_rebuilt_by_repair(
    db: vk.Database,
) -> None:
    """Where it lies above a right version, readers see nothing of it, and the next epoch that reads it would stop."""
    create(db, "sums", "plain")
    live(db, 50)
    key, shown = view_keys(db, "plain")[0], contents(db)
    change_record(db, "plain", key, chain_of([(1 << 40, b"no row at all")]) + planted_chain(db, "plain", key))
    report = repair(db)

    found = [(one.view, one.key, one.kind, one.why) for one in report.before.findings]
    why = f"it is of epoch {1 << 40}, and the last one is {report.before.epoch}"
    assert found == [("plain", key, "unreadable", why)]
    assert report.ok and report.rebuilt == ("plain",) and contents(db) == shown
    assert {one.view: one.state for one in report.outcomes} == {"sums": "ok", "plain": "rebuilt", "by_g": "ok"}
    db.table("t").put(key[0], {"g": "new", "x": 1})
    keep_up(db)
    assert {view.state for view in db.status().views} == {"fresh"}


def test_what_damage_a_check_has_seen_status_warns_of(db: vk.Database) -> None:
    create(db, "sums", "plain")
    live(db, 50)
    change_record(db, "plain", view_keys(db, "plain")[0], b"\1" * 17)
    report = check_views.check_views(db, None, "no Spark at all")

    assert [(one.view, one.kind, one.why) for one in report.findings] == [
        ("plain", "unreadable", "its versions cannot be read")
    ]
    assert outcomes(report)["plain"] == ("wrong", None, "viewkeeper repair URL plain")
    assert f"view plain had 1 wrong record at epoch {db.epoch}; viewkeeper repair URL plain" in db.status().warnings


def test_status_has_a_word_for_each_view(db: vk.Database) -> None:
    create(db, "sums", "fallible")
    live(db, 50)
    states = [view.state for view in db.status().views]
    db.execute(f"CREATE MATERIALIZED VIEW plain AS {SHAPES['plain']}")
    assert (states[0], db.status().views[-1].state) == ("fresh", "filling")
    keep_up(db)
    db.table("t").put("bad", {"x": 3})
    sums = db.status().views[0]
    assert (sums.state, sums.lag_changes, sums.bytes > 0) == ("lagging", 1, True)
    keep_up(db)
    assert [view.state for view in db.status().views] == ["fresh", "degraded", "fresh", "fresh"]


@pytest.mark.parametrize("db", ["off"], indirect=True, ids=["plain log"])
def test_where_delta_is_wrong_its_rows_are_logged_again_and_the_views_over_it_are_rebuilt(db: vk.Database) -> None:
    create(db, "sums", "plain")
    db.execute("CREATE MATERIALIZED VIEW others AS SELECT k FROM u")
    live(db, 100)
    shown, (first, second) = contents(db), [row["k"] for row in db.table("t").scan(limit=2)]
    change_row_of_delta(db, "t", (first,), None)
    change_row_of_delta(db, "t", ("extra",), row_of_delta(db, "t", (second,)))
    report = repair(db)

    assert {finding.view for finding in report.before.findings} >= {"DELTA(t)"}
    assert report.ok and set(report.rebuilt) == {"sums", "plain", "by_g"} and report.records == {"others": 0}
    assert contents(db) == shown
    db.table("t").delete(first)
    db.table("t").put("extra", {"g": "a", "x": 2})
    keep_up(db)
    assert check_views.check_views(db, None, "no Spark at all").ok


@pytest.mark.parametrize("db", ["off"], indirect=True, ids=["plain log"])
@pytest.mark.parametrize("rows_max", [2, 5])
def test_all_wrong_rows_of_a_delta_are_logged_again_however_many_at_once(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    monkeypatch.setattr(repairing, "_ROWS_AT_ONCE", rows_max)
    create(db, "plain")
    live(db, 20)
    shown, keys = contents(db), [row["k"] for row in db.table("t").scan(limit=5)]
    for key in keys:
        change_row_of_delta(db, "t", (key,), None)
    report = repair(db)

    assert {finding.key for finding in report.before.findings if finding.view == "DELTA(t)"} == {(key,) for key in keys}
    assert report.ok and contents(db) == shown


@pytest.mark.parametrize("db", ["off"], indirect=True, ids=["plain log"])
def test_a_view_over_a_wrong_delta_is_kept_as_wrong_whatever_its_own_records(db: vk.Database) -> None:
    create(db, "sums")
    db.execute("CREATE MATERIALIZED VIEW others AS SELECT k FROM u")
    live(db, 50)
    change_row_of_delta(db, "t", next((row["k"],) for row in db.table("t").scan()), None)
    report = check_views.check_views(db, None, "no Spark at all")

    assert {finding.view for finding in report.findings} == {"DELTA(t)"}
    assert {view.name: view.checked.findings for view in db.status().views} == {"sums": 1, "by_g": 1, "others": 0}
    assert f"view sums had 1 wrong record at epoch {db.epoch}; viewkeeper repair URL sums" in db.status().warnings
    assert repair(db).ok
    assert {view.checked.findings for view in db.status().views} == {0}


@pytest.mark.parametrize("managers", [1, 3, 11])
def test_a_repair_that_is_run_twice_by_several_managers_writes_and_counts_the_same(
    db: vk.Database, managers: int
) -> None:
    views = ("sums", "ends", "outer_pairs")
    create(db, *views)
    live(db, 100)
    right, source = state(db), random.Random(1)
    for table in tables_of_views(db):
        plant(db, table, source)
    planted = {record for record, _ in right.items() ^ state(db).items()}
    db.change_catalog(lambda catalog: with_shadow_views(catalog, [*views, "by_g"], "repair", db.epoch)[0])
    runner = ManagersRunner(db.store, managers, seed=managers)
    filling = Coordinator(db.store, runner)
    filling.step()
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(runner)).step()
    assert db.store.read_epoch_record().inflight.repair
    Coordinator(db.store, runner).catch_up()
    collect_garbage(db.store)

    done = db.store.read_epoch_record().repaired
    own = [record for record in planted if record[0] in done]
    assert sum(one.records for one in done.values()) == len(own) > 0
    assert state(db) == right
