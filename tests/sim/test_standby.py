"""A standby takes over from a pipeline that was killed or stopped in mid-epoch; one that goes on later changes nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

import viewkeeper as vk
from tests.support import tiers
from tests.support.dump import dump, tombstone_index
from tests.support.histories import Change
from tests.support.standby_lab import Worker, killed_at_last, wait_until
from tests.support.stores import make_database, rounds, write, wrong_views
from viewkeeper.model.positions import covers

CASES = ("indexed", "summed", "extremes")
ROUNDS = tiers.examples(8, deep=40)
POINTS = ("run.fenced", "apply.written", "partition.write.before_commit", "commit.swapped")
MORE_POINTS = (
    "begin.cut",
    "begin.swapped",
    "apply.computed",
    "partition.write.committed",
    "run.receipts",
    "gc.start",
)


def everything(db: vk.Database) -> tuple[object, ...]:
    """All but who owns it: on a busy machine one that only seemed silent may be taken over too."""
    store = db.store
    record = replace(store.read_epoch_record(), version=0, generation=0, owner="")
    return record, store.read_catalog(), dump(store), tombstone_index(store)


def is_caught_up(db: vk.Database) -> bool:
    record = db.store.read_epoch_record()
    return record.inflight is None and covers(record.positions, db.store.ends())


def owner_among(db: vk.Database, workers: tuple[Worker, ...]) -> Worker | None:
    generation = db.store.read_epoch_record().generation
    return next((worker for worker in workers if worker.owns(generation)), None)


def stop_and_take_over(db: vk.Database, workers: tuple[Worker, ...], epochs: int) -> float | None:
    """Stop the owner some epochs later, and let it go on when the other has done its work; the seconds of the take-over.

    None where it was stopped in a write transaction: nobody else can write until it goes on. Nor does it count where it was
    taken over before it was stopped.
    """
    wait_until(lambda: owner_among(db, workers))
    owner = owner_among(db, workers)
    (other,) = (worker for worker in workers if worker is not owner)
    goal = db.epoch + epochs
    wait_until(lambda: db.epoch >= goal or is_caught_up(db))
    owner.stop()
    generation = db.store.read_epoch_record().generation
    if not owner.owns(generation):
        owner.go_on()
        return None
    said = len(other.words())
    seconds = wait_until(lambda: db.store.read_epoch_record().generation > generation or "busy" in other.words()[said:])
    wait_until(lambda: is_caught_up(db) or "busy" in other.words()[said:])
    is_free = "busy" not in other.words()[said:]
    before = everything(db)
    owner.go_on()
    if is_free:
        wait_until(lambda: "fenced" in owner.words()[-1:])
        assert everything(db) == before and not owner.owns(db.store.read_epoch_record().generation)
    wait_until(lambda: is_caught_up(db) and owner_among(db, workers))
    return seconds if is_free else None


def test_a_pipeline_that_was_stopped_and_taken_over_changes_nothing_when_it_goes_on(
    tmp_path: Path, record_property
) -> None:
    db, choose, done = make_database(tmp_path / "s", nodes=2, cases=CASES), random.Random(tiers.seed()), []
    url, seconds = f"{db.url}&busy_timeout=0.3", []
    with killed_at_last(Worker(url), Worker(url)) as workers:
        for part in rounds(41 + tiers.seed(), 4 * ROUNDS, histories=1):
            if len(seconds) == ROUNDS:
                break
            write(db, part)
            done += part
            took = stop_and_take_over(db, workers, choose.randrange(4))
            seconds += [] if took is None else [took]

    assert len(seconds) == ROUNDS
    assert wrong_views(db, done) == []
    record_property("take_over_seconds", seconds)
    print(f"\n{ROUNDS} stopped, taken over after {min(seconds):.2f} to {max(seconds):.2f} s")


def kill_the_owner(db: vk.Database, workers: tuple[Worker, ...], part: list[Change]) -> float:
    """Write, so that the owner runs into a point that kills it; the seconds until the next one owns the store."""
    wait_until(lambda: owner_among(db, workers))
    owner, generation = owner_among(db, workers), db.store.read_epoch_record().generation
    write(db, part)
    wait_until(lambda: owner.is_dead)
    seconds = wait_until(lambda: db.store.read_epoch_record().generation > generation)
    wait_until(lambda: is_caught_up(db))
    assert db.store.read_epoch_record().generation == generation + 1  # one of them, and no other after it
    return seconds


@pytest.mark.parametrize(
    "points", [POINTS, pytest.param(MORE_POINTS, marks=pytest.mark.deep)], ids=["some points", "other points"]
)
def test_one_of_several_standbys_takes_over_from_a_pipeline_that_is_killed_in_mid_epoch(
    tmp_path: Path, points: tuple[str, ...]
) -> None:
    """They wait for a sign of life for ever: after a death they need none."""
    db, folder, done, seconds = make_database(tmp_path / "s", cases=CASES), tmp_path / "points", [], []
    folder.mkdir()
    everyone = (Worker(db.url, folder, patience_seconds=1e9) for _ in range(len(points) + 1))
    with killed_at_last(*everyone) as workers:
        wait_until(lambda: all(worker.words() for worker in workers))
        for point, part in zip(points, rounds(43, len(points), histories=1), strict=True):
            (folder / f"{point}.armed").write_text("1")
            seconds.append(kill_the_owner(db, workers, part))
            done += part
            assert wrong_views(db, done) == []

    print(f"\n{len(points)} killed, taken over after {min(seconds):.2f} to {max(seconds):.2f} s")
