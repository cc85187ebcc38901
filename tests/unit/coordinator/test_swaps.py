"""A swap whose answer was lost is looked up: applied once, by whoever it was (R5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support.running import HereRunner, keep_up
from tests.support.stores import make_database, rounds, write, wrong_views
from viewkeeper.coordinator.cas import swap_catalog, swap_record
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.errors import EpochFailed, StoreError
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord
from viewkeeper.model.work_stats import Counts
from viewkeeper.ports.meta import change_epoch_record

LOST = [False, StoreError("meta: Input/output error"), TimeoutError("no answer")]
IDS = ["answered no", "store error", "timeout"]


class Lossy:
    """A store that applies swaps and then loses the answer of those chosen by number; with `applies=False` the swap too."""

    def __init__(self, store: object, lost: object, *, chosen: set[int], applies: bool = True) -> None:
        self._store, self._lost, self._chosen, self._applies = store, lost, chosen, applies
        self.swaps = 0
        self.afterwards: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def swap_epoch_record(self, version: int, record: EpochRecord) -> bool:
        return self._swap(lambda: self._store.swap_epoch_record(version, record))

    def swap_catalog(self, version: int, catalog: dict) -> bool:
        return self._swap(lambda: self._store.swap_catalog(version, catalog))

    def _swap(self, swap: Callable[[], bool]) -> bool:
        number, self.swaps = self.swaps, self.swaps + 1
        if number not in self._chosen:
            return swap()
        if self._applies:
            assert swap()
        self.afterwards()
        if isinstance(self._lost, Exception):
            raise self._lost
        return False


@pytest.fixture
def db(tmp_path: Path) -> vk.Database:
    return make_database(tmp_path / "s", cases=("counted", "totals"))


@pytest.mark.parametrize("lost", LOST, ids=IDS)
@pytest.mark.parametrize("chosen", [0, 1, 2], ids=["take over", "begin", "commit"])
def test_an_epoch_goes_on_where_the_answer_of_a_swap_was_lost(db: vk.Database, chosen: int, lost: object) -> None:
    write(db, changes := rounds(1, 1)[0])
    store = Lossy(db.store, lost, chosen={chosen})
    (done,) = Coordinator(store, HereRunner(db.store)).catch_up()

    assert (done.epoch, store.swaps) == (1, 3)
    assert wrong_views(db, changes) == []


@pytest.mark.parametrize("lost", LOST, ids=IDS)
def test_an_epoch_is_aborted_where_the_answer_of_that_was_lost(db: vk.Database, lost: object) -> None:
    write(db, changes := [change for part in rounds(6, 60) for change in part])

    class FailsTwice:
        left = 2

        def run(self, plan: object, epoch: object) -> Counts:
            self.left -= 1
            if self.left >= 0:
                raise EpochFailed("a worker was killed")
            return HereRunner(db.store).run(plan, epoch)

    Coordinator(Lossy(db.store, lost, chosen={2}), FailsTwice()).catch_up()

    assert db.store.read_epoch_record().aborted == (1,)
    assert wrong_views(db, changes) == []


def test_readers_who_pin_behind_a_lost_answer_do_not_hide_it(db: vk.Database) -> None:
    write(db, changes := rounds(1, 1)[0])
    store = Lossy(db.store, False, chosen={1, 2})
    store.afterwards = lambda: change_epoch_record(db.store, lambda record: epochs.pin(record, "me", 0, 1 << 62))
    (done,) = Coordinator(store, HereRunner(db.store)).catch_up()

    assert done.epoch == 1
    assert wrong_views(db, changes) == []


def test_a_swap_that_was_not_applied_is_an_error_and_changes_nothing(db: vk.Database) -> None:
    keep_up(db)
    before, catalog = db.store.read_epoch_record(), db.catalog()
    store = Lossy(db.store, StoreError("no disk"), chosen={0}, applies=False)
    with pytest.raises(StoreError, match="no disk"):
        swap_record(store, lambda record: epochs.take_over(record, "me"))
    with pytest.raises(StoreError, match="no disk"):
        swap_catalog(Lossy(db.store, StoreError("no disk"), chosen={0}, applies=False), add_column)

    assert db.store.read_epoch_record() == before
    assert db.catalog() == catalog


def add_column(catalog: object) -> object:
    from viewkeeper.model.schema import Column
    from viewkeeper.model.types import parse_type

    return catalog.with_columns("t", (Column("added", parse_type("INT")),))


@pytest.mark.parametrize("lost", LOST, ids=IDS)
def test_a_statement_whose_answer_was_lost_is_done_once(
    db: vk.Database, monkeypatch: pytest.MonkeyPatch, lost: object
) -> None:
    monkeypatch.setattr(db, "_store", Lossy(db.store, lost, chosen={0}))

    assert db.execute("CREATE TABLE other (k INT PRIMARY KEY)").message == "table other created"
    assert [table.name for table in db.catalog().tables] == ["t", "other"]


def test_a_statement_is_found_behind_those_of_others(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    other, store = vk.connect(db.url), Lossy(db.store, False, chosen={0})
    store.afterwards = lambda: other.execute("CREATE TABLE theirs (k INT PRIMARY KEY)")
    monkeypatch.setattr(db, "_store", store)
    db.execute("CREATE TABLE mine (k INT PRIMARY KEY)")

    assert [table.name for table in db.catalog().tables] == ["t", "mine", "theirs"]


def test_two_who_say_the_same_at_once_are_told_apart(db: vk.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody else swapped in looks like ours, and is not."""
    other, store = vk.connect(db.url), Lossy(db.store, False, chosen={0}, applies=False)
    sql = "CREATE TABLE same (k INT PRIMARY KEY)"
    store.afterwards = lambda: other.execute(sql)
    monkeypatch.setattr(db, "_store", store)

    with pytest.raises(vk.DuplicateName):
        db.execute(sql)


@pytest.mark.parametrize("lost", LOST, ids=IDS)
def test_a_view_takes_the_place_of_another_where_the_answer_was_lost(db: vk.Database, lost: object) -> None:
    keep_up(db)
    db.execute("CREATE OR REPLACE MATERIALIZED VIEW totals AS SELECT COUNT(x) AS other FROM t")
    Coordinator(Lossy(db.store, lost, chosen={3}), HereRunner(db.store)).catch_up()

    assert list(db.view("totals").get()) == ["other"]
    assert db.catalog().replacements == ()
