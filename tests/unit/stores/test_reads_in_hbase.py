"""Reads over HBase, which holds nothing for a reader: what epochs have purged meanwhile is told, or was kept (R4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import viewkeeper as vk
from tests.support.running import keep_up
from tests.support.simulation.processes import calm_database
from viewkeeper.client.database import Database
from viewkeeper.client.session import Snapshot
from viewkeeper.coordinator.gc import collect_garbage

ROWS = 40  # of several pages in each partition


@pytest.fixture
def db() -> Iterator[Database]:
    with calm_database() as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, x INT); CREATE MATERIALIZED VIEW v AS SELECT k, x FROM t")
        write(db, 1)
        yield db


def write(db: Database, x: int) -> None:
    """Every row in an epoch, and what readers of the one before need is purged as soon as may be."""
    for k in range(ROWS):
        db.table("t").put(k, {"x": x})
    keep_up(db)
    collect_garbage(db.store)


def overtake(db: Database) -> None:
    for x in range(2, 7):
        write(db, x)


def values(rows: Iterator[dict[str, object]]) -> set[object]:
    return {row["x"] for row in rows}


READS: dict[str, Callable[[Snapshot], object]] = {
    "scan": lambda snapshot: list(snapshot.view("v").scan()),
    "scan of none": lambda snapshot: list(snapshot.view("v").scan(3)),
    "reversed": lambda snapshot: list(snapshot.view("v").scan(reverse=True)),
    "get": lambda snapshot: snapshot.view("v").get(3),
    "arrow": lambda snapshot: snapshot.view("v").to_arrow(),
    "changes": lambda snapshot: snapshot.view("v").changes(snapshot.epoch),
}


@pytest.mark.parametrize("read", READS)
def test_a_snapshot_that_epochs_have_overtaken_says_so(db: Database, read: str) -> None:
    with Snapshot(db) as snapshot:
        overtake(db)
        with pytest.raises(vk.StaleRead, match="was given up"):
            READS[read](snapshot)


def test_a_snapshot_of_a_database_is_kept_until_it_is_closed(db: Database) -> None:
    with db.snapshot() as snapshot:
        overtake(db)
        assert values(snapshot.view("v").scan()) == {1}
        assert snapshot.view("v").get(3) == {"k": 3, "x": 1}
    assert db.store.read_epoch_record().pins == {}


def test_a_pin_is_renewed_when_half_of_its_time_is_over(db: Database) -> None:
    with db.snapshot() as snapshot:
        ends = []
        for seconds in (0, 400, 100):  # a pin is for 900
            db.store.hbase.pass_time(seconds)
            snapshot.keep()
            ends += [until for _, until in db.store.read_epoch_record().pins.values()]
        assert ends[0] == ends[1] < ends[2]


def test_a_scan_keeps_its_epoch_from_its_first_page_to_its_last(db: Database) -> None:
    scan = db.view("v").scan()
    first = next(scan)
    overtake(db)
    rest = list(scan)
    assert values(iter([first, *rest])) == {1} and len(rest) == ROWS - 1
    assert db.store.read_epoch_record().pins == {}


def test_a_read_that_epochs_overtake_before_its_first_page_starts_over(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, waiting = db.store.hold, [lambda: overtake(db)]

    def overtaken(*asked: object) -> object:
        held = hold(*asked)
        scan = held.scan

        def late(*asked: object, **named: object) -> object:
            if waiting:
                waiting.pop()()
            return scan(*asked, **named)

        held.scan = late
        return held

    monkeypatch.setattr(db.store, "hold", overtaken)
    assert values(db.view("v").scan()) == {6} and not waiting
    waiting.append(lambda: write(db, 7) or overtake(db))
    assert set(db.view("v").to_arrow()["x"].to_pylist()) == {6} and not waiting


def test_a_short_read_pins_nothing(db: Database) -> None:
    before = db.store.read_epoch_record().version
    assert len(list(db.view("v").scan(3))) == 1
    assert db.store.read_epoch_record().version == before
