"""CREATE OR REPLACE MATERIALIZED VIEW: the new one is filled beside the old one, which serves until an epoch swaps them."""

from __future__ import annotations

from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.dump import dump
from tests.support.plans import tables_of
from tests.support.running import HereRunner, Interrupted, keep_up
from viewkeeper.client import views as client_views
from viewkeeper.coordinator import coordinator as flow
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.coordinator.gc import collect_garbage
from viewkeeper.settings import EpochLimits

ROWS = 20
OLD = "SELECT COUNT(*) AS n FROM t"
NEW = "SELECT g, SUM(x) AS s FROM t GROUP BY g"
NEW_RECORDS = [{"g": "a", "s": 90}, {"g": "b", "s": 100}]


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    db = vk.connect(f"embedded:{tmp_path / 's'}?sync=off")
    db.execute("CREATE TABLE t (k STRING PRIMARY KEY, g STRING, x INT)")
    db.execute(f"CREATE MATERIALIZED VIEW v AS {OLD}")
    db.table("t").put_many([{"k": f"k{number:02}", "g": "ab"[number % 2], "x": number} for number in range(ROWS)])
    keep_up(db)
    return db


def replace(db: vk.Database, text: str = NEW) -> str:
    return db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {text}").message


def filling(db: vk.Database, rows_max: int = 4) -> Coordinator:
    """A pipeline that fills a few rows in each epoch."""
    return Coordinator(db.store, HereRunner(db.store), limits=EpochLimits(rows=rows_max))


def state(db: vk.Database) -> str:
    return {row[0]: row[3] for row in db.execute("SHOW VIEWS").rows}["v"]


def tables_held(db: vk.Database) -> set[int]:
    return {table for table, _, _ in dump(db.store)}


def test_the_old_one_serves_and_is_kept_up_until_the_new_one_is_filled(db: vk.Database) -> None:
    opened = db.view("v")
    assert replace(db) == "view v is being replaced: the old one is read until the new one is filled"
    assert state(db) == "ready, being replaced"
    pipeline, steps = filling(db), 0
    while state(db) == "ready, being replaced" and steps < 20:
        assert opened.get() == db.view("v").get() == {"n": ROWS + steps}
        assert db.execute("SELECT n FROM v").rows == ((ROWS + steps,),)
        db.table("t").put(f"new{steps}", {"g": "a", "x": 0})
        assert pipeline.step() is not None
        steps += 1

    assert steps > 3
    assert state(db) == "ready"
    assert list(opened.scan()) == list(db.view("v").scan()) == NEW_RECORDS
    assert [row[:3] for row in db.execute("SHOW VIEWS").rows] == [("v", "AGGREGATE", "g")]
    assert [row[0] for row in db.execute("DESCRIBE v").rows] == ["g", "s"]


def test_the_swap_comes_with_an_epoch_and_needs_no_other(db: vk.Database) -> None:
    before, epoch = db.catalog().view("v"), db.epoch
    replace(db)
    assert db.catalog().view("v") == before  # readers know nothing of it yet
    assert [view.id for view in db.catalog().replacements] == [max(tables_of(db.catalog(), before)) + 1]
    keep_up(db)
    after = db.catalog().view("v")

    assert db.epoch == epoch + 1
    assert (after.replaces, db.catalog().replacements) == ((before.id,), ())
    assert db.view("v").get("b") == {"g": "b", "s": 100}


READS = {
    "get": lambda view: view.get("a"),
    "scan": lambda view: list(view.scan()),
    "reverse": lambda view: list(view.scan(reverse=True))[::-1],
    "prefix": lambda view: list(view.scan("a")) + list(view.scan("b")),
    "range": lambda view: list(view.scan(start="a", stop="c")),
    "limit": lambda view: list(view.scan(limit=2)),
    "to_arrow": lambda view: view.to_arrow().to_pylist(),
    "to_arrow of a prefix": lambda view: view.to_arrow("a").to_pylist() + view.to_arrow("b").to_pylist(),
    "latest": lambda view: list(view.scan(read="latest")),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("tidy", [False, True], ids=["old records there", "old records gone"])
def test_the_first_read_of_a_view_that_was_opened_before_finds_the_new_one(
    db: vk.Database, read: str, tidy: bool
) -> None:
    """The new one has another key: where its records lie, and what a range of it means, is known from itself alone."""
    opened = db.view("v")
    assert opened.get() == {"n": ROWS}
    replace(db)
    keep_up(db)
    if tidy:
        collect_garbage(db.store)

    assert READS[read](opened) == (NEW_RECORDS[0] if read == "get" else NEW_RECORDS)
    assert opened.definition == db.catalog().view("v")


def test_changes_of_a_view_that_was_opened_before_are_those_of_the_new_one(db: vk.Database) -> None:
    opened = db.view("v")
    replace(db)
    keep_up(db)
    since = db.epoch
    db.table("t").put("k00", {"x": 1_000})
    keep_up(db)
    with pytest.raises(vk.ChangesLost):
        opened.changes(since - 1)
    opened = db.view("v")
    db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {NEW}")
    keep_up(db)
    since = db.epoch
    for key in ("k00", "k01"):
        db.table("t").put(key, {"x": 0})
    keep_up(db)
    found = list(opened.changes(since))

    assert [(change.key, change.before, change.after) for change in found] == [
        (("a",), {"g": "a", "s": 1090}, {"g": "a", "s": 90}),
        (("b",), {"g": "b", "s": 100}, {"g": "b", "s": 99}),
    ]


def test_a_key_of_the_wrong_kind_is_refused_by_what_the_view_is_now(db: vk.Database) -> None:
    opened = db.view("v")
    replace(db)
    keep_up(db)
    with pytest.raises(vk.InputError, match="has the key"):
        opened.get()
    with pytest.raises(vk.InputError):
        opened.scan("a", "b")  # at once, not when the first row is asked for


def test_a_scan_that_was_begun_goes_on_over_what_it_began_with(db: vk.Database) -> None:
    replace(db)
    keep_up(db)
    rows = db.view("v").scan()
    assert next(rows) == NEW_RECORDS[0]
    replace(db, "SELECT k FROM t WHERE x < 3")
    keep_up(db)
    collect_garbage(db.store)

    assert list(rows) == NEW_RECORDS[1:]
    assert [row["k"] for row in db.view("v").scan()] == ["k00", "k01", "k02"]


def test_a_snapshot_keeps_the_views_that_were_there(db: vk.Database) -> None:
    with db.snapshot() as snapshot:
        early = snapshot.view("v")
        replace(db)
        keep_up(db)
        collect_garbage(db.store)

        assert early.get() == snapshot.view("v").get() == {"n": ROWS}
        assert list(snapshot.view("v").scan()) == [{"n": ROWS}]
    with db.snapshot() as snapshot:
        assert list(snapshot.view("v").scan()) == NEW_RECORDS


def test_one_that_was_dropped_before_it_was_filled_is_not_ready_in_a_snapshot_of_before(db: vk.Database) -> None:
    db.execute(f"CREATE MATERIALIZED VIEW w AS {NEW}")
    with db.snapshot() as before:
        db.execute("DROP MATERIALIZED VIEW w")
        with pytest.raises(vk.NotReady, match="not filled yet"):
            list(before.view("w").scan())


def test_a_view_that_was_dropped_since_is_there_in_a_snapshot_of_before(db: vk.Database) -> None:
    with db.snapshot() as snapshot:
        db.execute("DROP MATERIALIZED VIEW v; CREATE MATERIALIZED VIEW w AS SELECT k FROM t")
        keep_up(db)
        collect_garbage(db.store)

        assert snapshot.view("v").get() == {"n": ROWS}
        with pytest.raises(vk.UnknownName):
            snapshot.view("w")


@pytest.mark.parametrize("read", ["get", "scan", "to_arrow"])
def test_a_swap_between_a_readers_two_looks_is_noticed(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """The reader knows which epoch it reads; then the views are swapped, and it looks up what the view is."""
    replace(db, "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    keep_up(db)
    replace(db)
    opened, moment_of, swapped = db.view("v"), client_views.moment_of, []

    def swap_after(*arguments: object) -> object:
        moment = moment_of(*arguments)
        if not swapped:
            swapped.append(keep_up(db))
            collect_garbage(db.store)
            db.forget_catalog()
        return moment

    monkeypatch.setattr(client_views, "moment_of", swap_after)

    assert READS[read](opened) == (NEW_RECORDS[0] if read == "get" else NEW_RECORDS)
    assert len(swapped) == 1


@pytest.mark.parametrize("read", ["get", "scan"])
def test_a_swap_between_a_readers_look_and_its_read_is_noticed(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """The old view has a record under the key, and it is removed before the reader comes to it."""
    replace(db, "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    keep_up(db)
    opened = db.view("v")
    assert opened.get("a") == {"g": "a", "n": ROWS // 2}
    replace(db)
    store, swapped = type(db.store), []
    name = "get_record" if read == "get" else "hold"
    original = getattr(store, name)

    def swap_before(*arguments: object) -> object:
        if not swapped:
            swapped.append(keep_up(db))
            collect_garbage(db.store)
        return original(*arguments)

    monkeypatch.setattr(store, name, swap_before)

    assert READS[read](opened) == (NEW_RECORDS[0] if read == "get" else NEW_RECORDS)


@pytest.mark.parametrize("point", ["replace.ready", "replace.swapped", "commit.swapped", "commit.done"])
def test_a_crash_between_commit_and_swap_leaves_the_swap_to_the_next(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    replace(db)

    def die_at(name: str) -> None:
        if name == point:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(flow, "failpoint", die_at)
        with pytest.raises(Interrupted):
            keep_up(db)
    new = db.catalog().replacements[0].id if point != "replace.swapped" else db.catalog().view("v").id
    assert new in db.store.read_epoch_record().filled
    if point != "replace.swapped":
        assert db.view("v").get() == {"n": ROWS}  # the old one is whole, and read
    db.table("t").put("k00", {"x": 5})
    pipeline = filling(db)  # takes over: the swap needs no epoch of its own
    assert list(db.view("v").scan()) == NEW_RECORDS
    pipeline.catch_up()

    assert db.view("v").get("a") == {"g": "a", "s": 95}
    assert db.catalog().replacements == ()


def test_a_replacement_that_is_replaced_on_its_way_never_shows(db: vk.Database) -> None:
    replace(db)
    filling(db).step()
    (first,) = db.catalog().replacements
    tables = tables_of(db.catalog(), first)
    replace(db, "SELECT MAX(x) AS most FROM t")
    (second,) = db.catalog().replacements
    assert second.id != first.id and second.replaces == first.replaces
    opened = db.view("v")
    filling(db).catch_up()
    assert opened.get() == {"most": 19}
    collect_garbage(db.store)

    assert not tables_held(db) & tables
    assert db.catalog().view("v").replaces == first.replaces


def test_one_that_is_on_its_way_goes_with_the_view(db: vk.Database) -> None:
    replace(db)
    filling(db).step()
    (waiting,) = db.catalog().replacements
    assert tables_held(db) & tables_of(db.catalog(), waiting)
    opened = db.view("v")
    db.execute("DROP MATERIALIZED VIEW v")
    assert db.catalog().views == db.catalog().replacements == ()
    db.table("t").put("k00", {"x": 1})
    keep_up(db)
    collect_garbage(db.store)

    assert tables_held(db) == set()
    assert db.store.read_epoch_record().filling == {}
    with pytest.raises(vk.UnknownName, match="view v was dropped"):
        opened.get()


def test_the_records_of_the_old_one_are_gone_after_gc(db: vk.Database) -> None:
    replace(db, "SELECT g, MIN(x) AS lo, COUNT(x + 1) AS n FROM t GROUP BY g HAVING COUNT(*) > 0")
    keep_up(db)
    old = tables_of(db.catalog(), db.catalog().view("v"))
    replace(db)
    keep_up(db)
    assert set(db.catalog().dropped) >= {(table, db.epoch) for table in old}
    assert tables_held(db) & old
    collect_garbage(db.store)

    assert tables_held(db) <= tables_of(db.catalog(), db.catalog().view("v"))
    assert not tables_held(db) & old
    assert db.catalog().dropped == ()
    assert list(db.view("v").scan()) == NEW_RECORDS


def test_replacing_again_and_again_is_followed_by_views_opened_at_any_time(db: vk.Database) -> None:
    opened = []
    for number in range(1, 4):
        opened.append(db.view("v"))  # and not read before the next
        replace(db, f"SELECT COUNT(*) + {number} AS n FROM t")
        keep_up(db)
        collect_garbage(db.store)

    assert [view.get() for view in opened] == [{"n": ROWS + 3}] * 3


def test_a_name_that_is_not_there_is_created(db: vk.Database) -> None:
    message = db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW other AS {NEW}").message
    keep_up(db)

    assert message == "view other created"
    assert list(db.view("other").scan()) == NEW_RECORDS
    assert db.catalog().view("other").replaces == ()


def test_one_that_is_not_filled_yet_may_be_replaced(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW late AS SELECT MIN(x) AS lo FROM t")
    filling(db, rows_max=3).step()
    db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW late AS {NEW}")
    with pytest.raises(vk.NotReady):
        db.view("late").get()
    keep_up(db)

    assert list(db.view("late").scan()) == NEW_RECORDS


def test_what_cannot_be_replaced_is_refused_and_changes_nothing(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT n FROM v")
    keep_up(db)
    before = db.catalog()
    for statement, kind, fact in (
        ("v AS SELECT g FROM t", vk.NameInUse, "view v is read by w"),
        ("w AS SELECT n FROM w", vk.InputError, "view w would read itself"),
        ("v AS SELECT n FROM w", vk.NameInUse, "view v is read by w"),  # by way of another
        ("w AS SELECT nope FROM v", vk.UnknownName, "no column nope"),
        ("t AS SELECT n FROM v", vk.UnknownName, "t is a table, not a view"),
    ):
        with pytest.raises(kind, match=fact):
            db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {statement}")
    assert db.catalog() == before
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT n + 1 AS n FROM v")  # the one above may be
    keep_up(db)

    assert db.view("w").get() == {"n": ROWS + 1}


def test_a_replacement_counts_as_a_reader_of_what_it_will_read(db: vk.Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT k FROM t")
    keep_up(db)
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT n FROM v")
    for statement in (f"CREATE OR REPLACE MATERIALIZED VIEW v AS {NEW}", "DROP MATERIALIZED VIEW v", "DROP TABLE t"):
        with pytest.raises(vk.NameInUse, match="is read by"):
            db.execute(statement)
    keep_up(db)

    assert db.view("w").get() == {"n": ROWS}


def test_nothing_is_made_over_a_view_that_is_being_replaced(db: vk.Database) -> None:
    """Its text would mean the old one today and the new one tomorrow."""
    replace(db)
    before = db.catalog()
    for statement in (
        "CREATE MATERIALIZED VIEW w AS SELECT n FROM v",
        "CREATE OR REPLACE MATERIALIZED VIEW w AS SELECT n FROM v",
    ):
        with pytest.raises(vk.NameInUse, match="view v is being replaced; .*until the new one is filled"):
            db.execute(statement)
    assert db.catalog() == before
    keep_up(db)
    db.execute("CREATE MATERIALIZED VIEW w AS SELECT s FROM v WHERE s > 95")
    keep_up(db)

    assert list(db.view("w").scan()) == [{"s": 100}]
    assert "base t" in db.explain()
    with pytest.raises(vk.NameInUse):
        db.execute("DROP MATERIALIZED VIEW v")


def test_a_replacement_that_fails_is_stopped_and_the_old_one_goes_on(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from viewkeeper.errors import InvariantBroken
    from viewkeeper.operators import program

    replace(db)
    (waiting,) = db.catalog().replacements
    apply = program.StagePart._apply_node

    def fail(part: object, applier: object, node: object, *rest: object) -> object:
        if node.backfill == waiting.id:
            raise InvariantBroken("no")
        return apply(part, applier, node, *rest)

    monkeypatch.setattr(program.StagePart, "_apply_node", fail)
    keep_up(db)
    db.table("t").put("more", {"x": 1})
    keep_up(db)
    assert db.view("v").get() == {"n": ROWS + 1}
    assert waiting.node.table in db.store.read_epoch_record().stopped
    monkeypatch.undo()
    replace(db, "SELECT COUNT(*) AS many FROM t")  # another attempt takes its place
    keep_up(db)

    assert db.view("v").get() == {"many": ROWS + 1}


def test_a_query_may_be_explained_while_what_it_reads_is_being_replaced(db: vk.Database) -> None:
    replace(db)

    assert any("sum(x)" in line for (line,) in db.execute(f"EXPLAIN {NEW}").rows)
    assert any(line.endswith("→ more") for (line,) in db.execute("EXPLAIN SELECT n + 1 AS more FROM v").rows)
    assert state(db) == "ready, being replaced"
