"""Joins of every kind over drawn histories: what they hold is what their texts say, however the epochs were run."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from tests.support.dump import contents, dump
from tests.support.joining import VIEWS, change_at_random, make_joins, wrong
from tests.support.running import HereRunner, Interrupted, ManagersRunner, RunThenDie, keep_up
from tests.support.tiers import examples
from viewkeeper.coordinator.coordinator import Coordinator
from viewkeeper.settings import EpochLimits


@pytest.mark.parametrize("images", ["on", "off"], ids=["before-images", "plain log"])
@pytest.mark.parametrize("seed", range(examples(1, deep=6)))
def test_any_history_ends_in_what_the_texts_say(tmp_path: Path, seed: int, images: str) -> None:
    source = random.Random(seed)
    db = make_joins(tmp_path / "s", options=f"&before_images={images}")
    for managers in (1, 3, 2):
        change_at_random(db, source, changes=12)
        if source.random() < 0.5:
            with contextlib.suppress(Interrupted):  # there may be nothing to do
                Coordinator(db.store, RunThenDie(ManagersRunner(db.store, managers, seed))).catch_up()
        Coordinator(db.store, ManagersRunner(db.store, managers, seed)).catch_up()
        assert wrong(db) == {}


def test_a_join_that_is_filled_in_chunks_is_what_one_that_was_there_is(tmp_path: Path) -> None:
    source = random.Random(7)
    early, late = make_joins(tmp_path / "early"), make_joins(tmp_path / "late", "inner")
    for db in (early, late):
        change_at_random(db, random.Random(1), changes=60, keys=30)
        keep_up(db)
    for name in list(VIEWS)[1:]:
        late.execute(f"CREATE MATERIALIZED VIEW {name}_v AS {VIEWS[name]}")
    filling = Coordinator(late.store, HereRunner(late.store), limits=EpochLimits(rows=6))
    for _ in range(3):  # rows of both tables change below and above the cursors meanwhile
        assert filling.step() is not None
        change_at_random(late, source, changes=4, keys=30)
    assert late.store.read_epoch_record().filling
    filling.catch_up()

    assert wrong(late) == wrong(early) == {}


def test_a_rerun_of_joins_writes_what_the_first_run_wrote(tmp_path: Path) -> None:
    db = make_joins(tmp_path / "s")
    change_at_random(db, random.Random(3), changes=30)
    keep_up(db)
    change_at_random(db, random.Random(4), changes=30)
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(HereRunner(db.store))).catch_up()
    once = dump(db.store)
    with pytest.raises(Interrupted):
        Coordinator(db.store, RunThenDie(ManagersRunner(db.store, 3, seed=5))).catch_up()
    assert dump(db.store) == once
    keep_up(db)

    assert dump(db.store) == once
    assert wrong(db) == {} and len(contents(db)) == len(VIEWS)
