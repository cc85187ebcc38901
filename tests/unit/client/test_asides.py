"""Rows set aside are tried again, or dropped, by one epoch; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import viewkeeper as vk
from tests.support import troubled
from tests.support.duck_judge import DuckRecompute
from tests.support.dump import contents, dump
from tests.support.running import HereRunner, keep_up
from tests.support.tiers import ONE_LOG
from viewkeeper import failpoints
from viewkeeper.check import check_views, repairing
from viewkeeper.client import failed_rows
from viewkeeper.client.set_aside import error_lists
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.operators import delta_rows, grouping_kernel
from viewkeeper.plan.nodes import Edge, Term

OF_JOINS = {"joined", "common", "in_failing"}
VIEWS = {name: text for name, text in troubled.ROWS.items() if name not in OF_JOINS}
BROKEN = 13


@pytest.fixture(params=["on", "off"], ids=["before-images", "plain log"])
def db(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[vk.Database]:
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&before_images={request.param}") as db:
        monkeypatch.setattr(DuckRecompute, "database", db, raising=False)
        monkeypatch.setattr(check_views, "SparkRecompute", DuckRecompute)
        yield db


@contextmanager
def broken_engine() -> Iterator[None]:
    """Expressions that can fail do so on rows with the value 13: a defect that a later version does not have."""
    edge_rows, evaluate = delta_rows.run_edge, grouping_kernel.evaluate

    def bad(rows: pa.Table) -> np.ndarray:
        numbers = [rows[name] for name in rows.column_names if name[0] == "c" and pa.types.is_int32(rows[name].type)]
        none = np.zeros(len(rows), bool)
        return np.logical_or.reduce([none, *(np.asarray(pc.equal(one, BROKEN).fill_null(False)) for one in numbers)])

    def broken_edge(edge: Edge, delta: pa.Table) -> pa.Table:
        rows = edge_rows(edge, delta)
        if "fails" not in rows.column_names:
            return rows
        failing = np.isin(np.asarray(rows["ord"]), np.asarray(delta["ord"])[bad(delta)]) | np.asarray(rows["fails"])
        return rows.set_column(rows.column_names.index("fails"), "fails", pa.array(failing))

    def broken_terms(terms: Sequence[tuple[Term, ...]], rows: pa.Table) -> grouping_kernel.ExpressionBatch:
        found = evaluate(terms, rows)
        for sql in {term.sql for part in terms for term in part if term.can_fail}:
            found.failed[sql] = found.failed.get(sql, np.zeros(len(rows), bool)) | bad(rows)
        return found

    with pytest.MonkeyPatch.context() as patch:
        for module in (delta_rows, grouping_kernel):
            patch.setattr(module, "run_edge", broken_edge)
        patch.setattr(grouping_kernel, "evaluate", broken_terms)
        yield


def make(db: vk.Database, views: dict[str, str]) -> None:
    troubled.make_tables(db)
    for name, text in views.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {text}")
    db.table("t").put_many([{"k": f"bad{i}", "g": "p", "x": BROKEN, "w": i} for i in range(4)])
    db.table("t").put_many([{"k": f"big{i}", "g": "q", "x": troubled.MOST} for i in range(3)])
    db.table("u").put("m", {"g": "p", "x": BROKEN + 1})
    keep_up(db)


def settle(db: vk.Database, view: str, keys: list[tuple] | None, ending: str) -> int:
    with kept_by_hand(db):
        return failed_rows.retry_or_drop(db, view, keys, ending, None)


@contextmanager
def kept_by_hand(db: vk.Database) -> Iterator[None]:
    """In the place of a pipeline, which needs Spark: epochs of this process."""

    def here(database: vk.Database, is_pending: Callable[[], bool], spark: object) -> None:
        while is_pending():
            Coordinator(database.store, HereRunner(database.store)).catch_up()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failed_rows, "await_request", here)
        yield


def listed(db: vk.Database, view: str) -> list[tuple]:
    return sorted(row.key for row in db.set_aside(view))


def is_well(db: vk.Database) -> bool:
    """As the judge says, and down to the last auxiliary record: a repair finds nothing to write."""
    report = repairing.repair_views(db, None, "no Spark at all")
    assert report.before.findings == () and report.before.notes == ()
    return not any((*report.records.values(), *report.auxiliary.values()))


@ONE_LOG
def test_rows_that_fail_no_longer_are_as_if_they_never_had(db: vk.Database, tmp_path: Path) -> None:
    with broken_engine():
        make(db, VIEWS)
    other = vk.connect(f"embedded:{tmp_path / 'other'}?sync=off")
    make(other, VIEWS)
    before = {view: len(listed(db, view)) for view in VIEWS}
    assert all(before.values()) and contents(db) != contents(other)
    for view in VIEWS:
        settle(db, view, None, "retry")

    assert {view: listed(db, view) for view in VIEWS} == {view: listed(other, view) for view in VIEWS}
    assert contents(db) == contents(other)
    assert db.catalog().asides == () and is_well(db)
    db.table("t").delete("bad0")
    db.table("t").put("bad1", {"x": 2})
    other.table("t").delete("bad0")
    other.table("t").put("bad1", {"x": 2})
    keep_up(db)
    keep_up(other)
    assert contents(db) == contents(other)


def test_one_row_is_tried_again_and_those_that_still_fail_stay(db: vk.Database) -> None:
    with broken_engine():
        make(db, {"shown": VIEWS["shown"]})
    assert settle(db, "shown", [("bad1",), ("big0",)], "retry") == 1
    assert listed(db, "shown") == [("bad0",), ("bad2",), ("bad3",), ("big0",), ("big1",), ("big2",)]
    assert db.view("shown").get("bad1") == {"k": "bad1", "y": BROKEN + 1} and db.view("shown").get("bad0") is None
    assert settle(db, "shown", None, "retry") == 3
    epoch = db.epoch
    assert settle(db, "shown", None, "retry") == 0 and db.epoch == epoch + 1
    db.table("t").delete_many([f"big{i}" for i in range(3)])
    keep_up(db)
    epoch = db.epoch
    assert settle(db, "shown", None, "retry") == 0 and db.epoch == epoch  # nothing is asked for


def test_a_row_that_was_dropped_is_not_told_of_until_it_changes(db: vk.Database) -> None:
    make(db, {"shown": VIEWS["shown"], "grouped_shown": VIEWS["grouped_shown"]})
    before = contents(db)
    assert settle(db, "shown", [("big0",)], "drop") == 1
    epoch = db.epoch
    assert settle(db, "shown", iter(["big0"]), "drop") == 0 and db.epoch == epoch  # it is off the list already
    assert settle(db, "shown", None, "drop") == 2
    status = db.status()

    assert listed(db, "shown") == [] and {view.set_aside.count for view in status.views} == {0}
    assert {view.state for view in status.views} == {"fresh"} and not any("aside" in one for one in status.warnings)
    assert contents(db) == before and is_well(db)
    assert listed(db, "shown") == []  # a repair does not bring them back
    db.table("t").put("big0", {"g": "r"})
    db.table("t").put("big1", {"x": 5})
    keep_up(db)
    assert listed(db, "shown") == [("big0",)] and db.view("shown").get("big1") == {"k": "big1", "y": 6}
    assert settle(db, "shown", None, "retry") == 0  # tries what is listed
    assert listed(db, "shown") == [("big0",)]
    settle(db, "shown", [("big2",)], "retry")  # by its key a row that was dropped is tried too
    assert listed(db, "shown") == [("big0",), ("big2",)]
    assert is_well(db)


def test_what_cannot_be_settled_is_refused_and_changes_nothing(db: vk.Database) -> None:
    make(db, {"shown": VIEWS["shown"], "joined": troubled.ROWS["joined"]})
    version = db.catalog().version
    for keys in ([("a",)], [("nobody",)], [("big0", 1)], [(7,)]):
        with pytest.raises(vk.InputError, match="has set no row"):
            settle(db, "shown", keys, "retry")
    with pytest.raises(vk.NotOffered, match="rows of a join.*viewkeeper repair URL joined"):
        settle(db, "joined", None, "retry")
    with pytest.raises(vk.InputError, match="more than 1,000"):
        settle(db, "shown", [(str(i),) for i in range(1_001)], "drop")
    assert db.catalog().version == version
    assert settle(db, "joined", None, "drop") > 0 and listed(db, "joined") == []


class Died(BaseException):
    """What a crash is to the rest of the process: nobody catches it."""


@pytest.mark.parametrize("ending", ["retry", "drop"])
def test_a_crash_at_any_point_leaves_what_the_epoch_without_crashes_leaves(tmp_path: Path, ending: str) -> None:
    names: list[str] = []
    whole = dump(asked(tmp_path / "whole", ending, names.append).store)
    points = list(dict.fromkeys(name for name in names if not name.startswith(("node.", "layout.", "newdirectory."))))
    assert {"repair.due", "begin.swapped", "split.read", "apply.written", "commit.swapped", "replace.ready"} <= {
        *points
    }
    for point in points:
        assert dump(asked(tmp_path / point, ending, dying_at(point)).store) == whole, point


def dying_at(point: str) -> Callable[[str], None]:
    """A hook that dies where the point is first reached."""
    left = [point]

    def die(name: str) -> None:
        if name in left:
            left.remove(name)
            raise Died

    return die


def asked(path: Path, ending: str, hook: Callable[[str], None]) -> vk.Database:
    """A store where rows set aside were asked for, and the epoch was run under the hook, again without it if it died."""
    with broken_engine():
        db = vk.connect(f"embedded:{path}?sync=off")
        make(db, {name: VIEWS[name] for name in ("shown", "grouped_shown", "by_sum")})
    tables = [
        one.table for name in ("shown", "by_sum") for one in error_lists(db.catalog(), db.catalog().view(name), "aside")
    ]
    last = failed_rows._request(db, ending, dict.fromkeys(tables, ()))
    failpoints.hook(hook)
    try:
        Coordinator(db.store, HereRunner(db.store)).catch_up()
    except Died:
        pass
    finally:
        failpoints.hook(None)
    Coordinator(db.store, HereRunner(db.store)).catch_up()
    assert db.catalog().asides == () and db.store.read_epoch_record().aside == last
    assert [row.key for row in db.set_aside("shown")] == (
        [("big0",), ("big1",), ("big2",)] if ending == "retry" else []
    )
    return db
