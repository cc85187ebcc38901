"""The question `planted_errors` at a small size: every error is found and put right, and nothing else is, under load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import viewkeeper as vk
from benchmarks.planted_errors import Judge, Lab, measured, repeating, tell
from tests.support.duck_judge import DuckRecomputeOfFiles
from tests.support.running import HereRunner
from viewkeeper.check import check_views, repairing
from viewkeeper.coordinator.coordinator import Coordinator


@contextmanager
def kept_fresh(db: vk.Database) -> Iterator[None]:
    """Epochs follow each other until the block ends."""
    claim = db.store.claim(take_over=False)
    coordinator = Coordinator(db.store, HereRunner(db.store))
    coordinator.catch_up()
    try:
        with repeating(coordinator.catch_up):
            yield
    finally:
        claim.release()


def test_all_planted_errors_are_found_and_put_right_while_writes_and_epochs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_views, "SparkRecompute", DuckRecomputeOfFiles)
    with vk.connect(f"embedded:{tmp_path / 's'}?sync=off&nodes=2") as db:
        lab, none = Lab(db, 4_000, seed=7), "no Spark at all"
        judge = Judge(
            lambda since: check_views.check_views(db, None, none, since=since),
            lambda: repairing.repair_views(db, None, none),
        )
        lab.load()
        with kept_fresh(db), repeating(lab.write):
            figures = measured(lab, judge, errors=60, touches=400)

    assert figures["false_alarms"] == 0
    for name, count in (("check_since_last_with_errors", 12), ("check_with_errors", 60)):
        one = figures[name]
        assert (one["not_found"], one["false_alarms"]) == ([], [])
        assert one["planted"] == one["found"] == count
    assert figures["check_since_last_with_errors"]["since"] == 5
    assert figures["check_since_last"]["records"] < figures["records"] / 2
    assert figures["repair"]["ok"] and figures["repair"]["found_after"] == 0 and figures["check_after"]["ok"]
    assert figures["repair"]["records"] == 60 and figures["repair"]["auxiliary"] >= figures["auxiliary_errors"] > 0
    assert all(figures[name]["epochs"] > 0 for name in ("check_with_errors", "repair"))
    assert any("found 60 of 60" in line for line in tell(figures))
