"""Paper 5 (consistency on web data platforms): the three ways to lose consistency, each set up and each survived.

Every test first plays the paper's hazard on plain dictionaries, so that one sees what would go wrong, then the same on
ViewKeeper.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from tests.support.dump import chain_epochs, dump
from tests.support.plans import nodes_of
from tests.support.running import (
    HereRunner,
    Interrupted,
    ManagersRunner,
    RunThenDie,
    begin_epoch,
    commit_epoch,
    keep_up,
)
from tests.support.running import plan_of as plan
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.settings import EpochLimits

SUM_VIEW = "CREATE MATERIALIZED VIEW d AS SELECT x, SUM(y) AS s FROM r GROUP BY x"
SELECTION = "CREATE MATERIALIZED VIEW d AS SELECT k, x, y FROM r WHERE y < 25"


def make(path: Path, view: str, rows: list[tuple[str, str, int]]) -> vk.Database:
    """R(K, X, Y) with its initial rows, and the view brought up to them: B0 and V0 of an example."""
    db = vk.connect(f"embedded:{path}?sync=off")
    db.execute(f"CREATE TABLE r (k STRING PRIMARY KEY, x STRING, y BIGINT); {view}")
    for k, x, y in rows:
        db.table("r").put(k, {"x": x, "y": y})
    keep_up(db)
    return db


def sums(db: vk.Database) -> dict[str, int]:
    return {row["x"]: row["s"] for row in db.view("d").scan()}


def last_first(items: list) -> list:
    return items[::-1]


EXAMPLE_1 = [("k1", "x1", 100), ("k2", "x1", 200), ("k3", "x2", 300), ("k4", "x2", 400)]


def move_both(db: vk.Database) -> None:
    db.table("r").put("k2", {"x": "x2"})  # u1
    db.table("r").put("k4", {"x": "x1"})  # u2


def test_example_1_two_managers_that_read_before_either_writes_lose_an_update_on_plain_records() -> None:
    """Section III.C, example 1: reads first, then the writes of one and the writes of the other: {x1: 700, x2: 300}."""
    view = {"x1": 300, "x2": 700}
    read_by_1, read_by_2 = dict(view), dict(view)
    view |= {"x2": read_by_1["x2"] + 200, "x1": read_by_1["x1"] - 200}
    view |= {"x1": read_by_2["x1"] + 400, "x2": read_by_2["x2"] - 400}

    assert view == {"x1": 700, "x2": 300}


@pytest.mark.parametrize("arrange", [list, last_first], ids=["in order", "reversed"])
def test_example_1_two_managers_that_get_one_update_each_converge(tmp_path: Path, arrange: object) -> None:
    """Sections III.C and IV.A, example 1: each update is read by another manager; a record has one writer."""
    db = make(tmp_path / "s", SUM_VIEW, EXAMPLE_1)
    assert sums(db) == {"x1": 300, "x2": 700}
    move_both(db)
    Coordinator(db.store, ManagersRunner(db.store, 2, arrange=arrange)).catch_up()

    assert sums(db) == {"x1": 500, "x2": 500}


def test_example_1_continued_two_drivers_that_read_before_either_writes_converge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section IV.A, example 1 (cont'd): the very interleaving of the hazard, by two drivers of one epoch."""
    db = make(tmp_path / "s", SUM_VIEW, EXAMPLE_1)
    move_both(db)
    epoch = begin_epoch(db.store)
    both_have_read, reads, lock = threading.Barrier(2, timeout=60), [], threading.Lock()
    write_versions = type(db.store).write_versions
    seen: set[int] = set()

    def write_late(store: object, writes: object, inflight: object) -> None:
        if threading.get_ident() not in seen:
            with lock:
                seen.add(threading.get_ident())
                reads.append(threading.get_ident())
            both_have_read.wait()
        write_versions(store, writes, inflight)

    monkeypatch.setattr(type(db.store), "write_versions", write_late)
    drivers = [threading.Thread(target=HereRunner(db.store).run, args=(plan(db.store, epoch), epoch)) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    commit_epoch(db.store, epoch)

    assert len(reads) == 2  # both came to their first write with nothing written
    assert sums(db) == {"x1": 500, "x2": 500}


EXAMPLE_2 = [("k1", "x1", 100), ("k2", "x1", 200)]


def test_example_2_an_update_driven_again_is_counted_twice_on_plain_records() -> None:
    """Section III.C, example 2: the manager died before it could note that it was done: (x1, 500), a state that never was."""
    view = {"x1": 300}
    for _attempt in range(2):
        view["x1"] += 100

    assert view == {"x1": 500}


@pytest.mark.parametrize("deaths", [1, 3])
def test_example_2_continued_an_update_driven_again_is_counted_once(tmp_path: Path, deaths: int) -> None:
    """Section IV.B, example 2 (cont'd): the signature of the record is the epoch; driven again it is left as it is."""
    db = make(tmp_path / "s", SUM_VIEW, EXAMPLE_2)
    db.table("r").put("k3", {"x": "x1", "y": 100})  # i1
    for _ in range(deaths):
        with pytest.raises(Interrupted):
            Coordinator(db.store, RunThenDie(HereRunner(db.store))).catch_up()
        assert sums(db) == {"x1": 300}  # V0 until the epoch is committed: readers see no half
        assert db.view("d").get("x1", read="latest") == {"x": "x1", "s": 400}
    written = dump(db.store)
    keep_up(db)

    assert sums(db) == {"x1": 400}
    assert dump(db.store) == written


def test_one_base_update_that_changes_two_view_records_is_driven_again_as_a_whole(tmp_path: Path) -> None:
    """Section IV.B, case 1: u(R(k3, x1 -> x2, 100)) changes the records x1 and x2; neither is taken for the other."""
    db = make(tmp_path / "s", SUM_VIEW, [*EXAMPLE_2, ("k3", "x1", 100)])
    db.table("r").put("k3", {"x": "x2"})
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store), times=2)).catch_up()
    keep_up(db)

    assert sums(db) == {"x1": 300, "x2": 100}


def test_one_base_update_that_changes_two_views_is_driven_again_in_both(tmp_path: Path) -> None:
    """Section IV.B, case 2: the signature belongs to a record of a view, so the second view is not refused."""
    db = make(
        tmp_path / "s",
        SUM_VIEW + "; CREATE MATERIALIZED VIEW n AS SELECT x, COUNT(*) AS n FROM r GROUP BY x",
        EXAMPLE_2,
    )
    db.table("r").put("k3", {"x": "x1", "y": 100})
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).catch_up()
    keep_up(db)

    assert sums(db) == {"x1": 400}
    assert db.view("n").get("x1") == {"x": "x1", "n": 3}


def test_example_3_updates_that_race_through_two_managers_arrive_in_the_wrong_order_on_plain_records() -> None:
    """Section III.C, example 3: u2 before u1 breaks strong consistency; u2 behind u3 breaks convergence."""
    timeline, view, states = [5, 10, 20, 15], 5, [5]
    for update in (20, 10, 15):
        view = update
        states.append(view)
    assert view == timeline[-1]
    assert [timeline.index(state) for state in states] == [0, 2, 1, 3]  # 10 is shown after 20

    for update in (10, 15, 20):
        view = update
    assert view == 20 != timeline[-1]


@pytest.mark.parametrize("arrange", [list, last_first], ids=["in order", "reversed"])
def test_example_3_three_updates_of_one_record_in_one_epoch_end_with_the_last(tmp_path: Path, arrange: object) -> None:
    """Section III.C, example 3, and IV.C: units read and delivered backwards by three managers, and still the last wins."""
    db = make(tmp_path / "s", SELECTION, [("k1", "x1", 5)])
    for y in (10, 20, 15):
        db.table("r").put("k1", {"y": y})
    Coordinator(db.store, ManagersRunner(db.store, 3, arrange=arrange)).catch_up()

    assert list(db.view("d").scan()) == [{"k": "k1", "x": "x1", "y": 15}]


def test_example_3_continued_every_record_goes_through_its_states_in_the_order_of_the_base(tmp_path: Path) -> None:
    """Section IV.C, example 3 (cont'd): k1 is 5, 10, 20, 15 and k2 is 5, 22, 17, with managers changing all the while."""
    db = make(tmp_path / "s", SELECTION, [("k1", "x1", 5), ("k2", "x2", 5)])
    for key, y in (("k1", 10), ("k2", 22), ("k1", 20), ("k2", 17), ("k1", 15)):
        db.table("r").put(key, {"y": y})
    seen: dict[str, list[int]] = {"k1": [5], "k2": [5]}
    for managers in (1, 2, 3, 8, 2):
        assert (
            Coordinator(db.store, ManagersRunner(db.store, managers), limits=EpochLimits(changes=1)).step() is not None
        )
        for key, states in seen.items():
            y = db.view("d").get(key)["y"]
            states += [y] if y != states[-1] else []

    assert seen == {"k1": [5, 10, 20, 15], "k2": [5, 22, 17]}


MIN_VIEW = "CREATE MATERIALIZED VIEW m AS SELECT x, MIN(y) AS lo FROM r GROUP BY x"


def test_the_min_example_shows_a_state_twice_when_the_base_is_scanned_late() -> None:
    """Section IV, MIN and MAX views, after theorem 2: by scans of B_f the view goes 4, 5, 2, 5: 2 is older than 5."""
    base = {"k2": ("x1", 5)}  # B_f, already reached when the first update is propagated

    def scanned() -> int:
        return min(y for x, y in base.values() if x == "x1")

    states = [4]
    states.append(scanned())  # d1 took the minimum away: scan
    states.append(min(states[-1], 2))  # i2 is smaller: computed locally
    states.append(scanned())  # u3 took the minimum away: scan

    assert states == [4, 5, 2, 5]


@pytest.mark.parametrize("managers", [1, 2, 8])
def test_the_min_example_is_strongly_consistent(tmp_path: Path, managers: int) -> None:
    """Section IV, the same updates: every state is one of the base's, in its order: 4, no group, 2, 5; no base is scanned."""
    db = make(tmp_path / "s", MIN_VIEW, [("k1", "x1", 4)])
    db.table("r").delete("k1")  # d1
    db.table("r").put("k2", {"x": "x1", "y": 2})  # i2
    db.table("r").put("k2", {"y": 5})  # u3
    states = [db.view("m").get("x1")]
    while Coordinator(db.store, ManagersRunner(db.store, managers), limits=EpochLimits(changes=1)).step():
        states.append(db.view("m").get("x1"))

    assert states == [{"x": "x1", "lo": 4}, None, {"x": "x1", "lo": 2}, {"x": "x1", "lo": 5}]


def test_the_next_minimum_is_found_without_a_scan_of_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section V, MIN experiments: a group of 2,000 loses its minimum; few records of its values are read, none is scanned."""
    db = make(tmp_path / "s", MIN_VIEW, [(f"k{y}", "x1", y) for y in range(2000)])
    (node,) = nodes_of(db.catalog(), "m")
    (entries,) = node.entries
    read: list[int] = []
    read_versions = type(db.store).read_versions

    def counting(store: object, table: int, keys: pa.Array, *rest: object) -> object:
        read.append(len(keys) if table == entries.table else 0)
        return read_versions(store, table, keys, *rest)

    monkeypatch.setattr(type(db.store), "read_versions", counting)
    monkeypatch.setattr(type(db.store), "scan_prefixes", None)
    for y in range(3):
        db.table("r").delete(f"k{y}")
        keep_up(db)

    assert db.view("m").get("x1") == {"x": "x1", "lo": 3}
    assert 3 <= sum(read) <= 3 * 3 < len(chain_epochs(db.store, entries.table))
