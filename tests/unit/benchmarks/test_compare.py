"""Two results are compared figure by figure, and only what got worse is marked so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import compare, plots
from benchmarks.results import spread, write_result

OLD = {
    "rows": 100,
    "machine": {"cores": 2, "processor": "p", "load": 0.1},
    "pipeline_seconds": spread([1.0, 1.1, 0.9]),
    "per_operation_each_seconds": spread([10.0]),
    "ratio_each": 10.0,
    "put": {"running_p99_us": 50.0, "ratio_p99": 2.0},
    "changes_per_second": 1_000,
}


def _marks(new: dict) -> dict[str, str]:
    return {found.name: found.mark() for found in compare.compare(OLD, {**OLD, **new}) if found.mark()}


def test_a_result_is_as_good_as_itself() -> None:
    assert _marks({}) == {}
    assert list(compare.caveats(OLD, OLD)) == []


@pytest.mark.parametrize(
    ("new", "marks"),
    [
        ({"pipeline_seconds": spread([2.0])}, {"pipeline_seconds": "worse"}),
        ({"pipeline_seconds": spread([0.5])}, {"pipeline_seconds": "better"}),
        ({"pipeline_seconds": spread([1.05])}, {}),
        ({"ratio_each": 5.0}, {"ratio_each": "worse"}),
        ({"changes_per_second": 2_000}, {"changes_per_second": "better"}),
        ({"put": {"running_p99_us": 50.0, "ratio_p99": 3.0}}, {"put.ratio_p99": "worse"}),
        ({"per_operation_each_seconds": spread([20.0])}, {}),
    ],
)
def test_marks_know_which_way_is_better(new: dict, marks: dict[str, str]) -> None:
    assert _marks(new) == marks


def test_other_sizes_are_told() -> None:
    assert list(compare.caveats(OLD, {**OLD, "rows": 200})) == ["rows: 100 against 200"]


def test_two_folders_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_result("first_speed", OLD, tmp_path / "old")
    write_result("first_speed", {**OLD, "ratio_each": 5.0}, tmp_path / "new")

    assert compare.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert "<- WORSE" in printed
    assert "1 worse, 0 better" in printed


def test_a_result_says_what_was_measured(tmp_path: Path) -> None:
    kept = json.loads(write_result("reads", {"seed": 1}, tmp_path).read_text())

    assert {"question", "commit", "python", "versions", "machine", "seed"} <= kept.keys()
    assert kept["machine"]["cores"] >= 1


def test_without_matplotlib_nothing_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots.importlib.util, "find_spec", lambda name: None)

    assert plots.draw(write_result("first_speed", OLD, tmp_path)) is None
