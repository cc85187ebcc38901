"""One batch = singletons = singletons with reads between: what a view holds does not depend on how changes were cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viewkeeper as vk
from tests.support.dump import contents
from tests.support.histories import COMPOSITE, Change, HistoryMaker
from tests.support.oracle import CASES
from tests.support.running import HereRunner
from tests.support.stores import NAME, drop_views, make_database, write
from tests.support.tiers import examples
from viewkeeper.coordinator.coordinator import Coordinator

SHOWN = ("selected", "bag", "indexed", "summed", "averaged", "totals", "decimals")
STORES: dict[str, vk.Database] = {}


@pytest.fixture(scope="module", autouse=True)
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("stores")
    for name in ("batch", "singletons", "with reads"):
        STORES[name] = make_database(folder / name, shape=COMPOSITE, cases=())
    yield
    STORES.clear()


def define(db: object, cases: tuple[str, ...]) -> None:
    """A fresh table and the views of this example; those of the one before are dropped."""
    drop_views(db)
    db.execute(f"DROP TABLE {NAME}; CREATE TABLE {NAME} {COMPOSITE.ddl}")
    key = ", ".join(name for name, _ in COMPOSITE.columns)
    for case in CASES:
        if case.name in cases:
            db.execute(case.definition.format(v=case.name, t=NAME, k=key))


def run(db: object, changes: list[Change], *, at_once: bool, reading: bool) -> int:
    """All changes in one epoch, or each in its own; returns how many epochs it took."""
    coordinator = Coordinator(db.store, HereRunner(db.store))
    coordinator.catch_up()  # the views exist before the first change: nothing is filled from rows
    epochs = 0
    for part in [changes] if at_once else [[change] for change in changes]:
        write(db, part)
        epochs += len(coordinator.catch_up())
        if reading:
            contents(db)
            [list(db.view(view.name).scan(read="latest", reverse=True)) for view in db.catalog().views]
    return epochs


@settings(max_examples=examples(3, deep=20))
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.sampled_from((2, 30, 32, 34)),
    cases=st.sampled_from(list(itertools.combinations(SHOWN, 2))),
)
def test_one_batch_equals_singletons_equals_singletons_with_reads_between(
    seed: int, steps: int, cases: tuple[str, ...]
) -> None:
    changes = HistoryMaker(COMPOSITE, seed).history(0, steps)
    took = {}
    for name, db in STORES.items():
        define(db, cases)
        took[name] = run(db, changes, at_once=name == "batch", reading=name == "with reads")

    assert took["batch"] <= 1
    assert took["singletons"] == took["with reads"] >= took["batch"]
    assert contents(STORES["batch"]) == contents(STORES["singletons"]) == contents(STORES["with reads"])
