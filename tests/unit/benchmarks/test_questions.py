"""Every question's harness works at a tiny size; what needs Spark is run in this process instead."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper as vk
from benchmarks import join, join_growth, per_operation, put_latency, reads, single_table
from benchmarks.__main__ import QUESTIONS, _options, _parser
from benchmarks.clock import JOB_STEPS, SPARK_STEPS, STEPS, WORDS, find, in_words
from benchmarks.epoch_steps import profile_here
from benchmarks.join_program import JoinProgram
from benchmarks.join_workload import first_side_rows, prepare_join, side_steps
from benchmarks.options import Options
from benchmarks.pipeline_runs import PipelineRun
from benchmarks.processes import KINDS, CpuSeconds, memory_of
from benchmarks.recompute import WrongResult, base_rows, require_equal, require_views
from benchmarks.update_programs import SYSTEMS
from benchmarks.views import V1, V2, V3, V4, VIEW_SETS
from benchmarks.workload import DISTRIBUTIONS, HereRunner, Workload, fill_here, first_rows, prepare
from viewkeeper.coordinator.coordinator import Coordinator

TINY = replace(Options(), rows=400, changes=1_000, runs=1, gets=20, rounds=2, seconds=0.05)


def _run_in_process(url: str, *rest: object, **options: object) -> PipelineRun:
    with vk.connect(url) as db:
        done = Coordinator(db.store, HereRunner(db.store)).catch_up()
    return PipelineRun(0.1, 0.1, CpuSeconds(0.1, 0.0), len(done), sum(epoch.changes for epoch in done))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_can_be_asked_and_told(question: str) -> None:
    module = import_module(f"benchmarks.{question}")

    assert callable(module.measure)
    assert callable(module.tell)


def test_the_command_line_asks_for_a_full_run_unless_told() -> None:
    quick = _options(_parser().parse_args(["reads", "--quick", "--views", "V1"]))

    assert _options(_parser().parse_args(["reads"])) == Options()
    assert quick == replace(Options(), views=("V1",), quick=True).quickly()
    assert quick.rows < 100_000


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_update_program_computes_its_view(tmp_path: Path, distribution: str) -> None:
    workload = Workload(400, 1_500, distribution=distribution)
    url = f"embedded:{tmp_path / 'store'}"
    prepare(url, workload, [V1], fill_here)
    base, first = base_rows(url), {"r": first_rows(workload)}
    for (view, images), programs in SYSTEMS.items():
        for variant, program in programs.items():
            ran = per_operation.run(url, tmp_path / f"{view}-{images}-{variant}", first, program, variant)
            require_equal(base, VIEW_SETS[view][0], ran.records, variant)


@pytest.mark.parametrize("variant", join.VARIANTS)
def test_the_update_program_of_the_join_computes_it(tmp_path: Path, variant: str) -> None:
    workload, url = Workload(400, 1_500, x_max=20), f"embedded:{tmp_path / 'store'}"
    prepare_join(url, workload, 200, V3, fill_here)
    first = {"r": first_rows(workload), "s": first_side_rows(workload)}
    ran = per_operation.run(url, tmp_path / variant, first, JoinProgram, variant)

    require_equal(base_rows(url), V3, ran.records, variant)
    assert ran.changes > 1_500


def test_changes_of_the_other_table_are_of_all_kinds() -> None:
    done = list(side_steps(Workload(400, 1_000, x_max=50), 500, [100] * 10))
    put = [x for step in done for x in step.puts.tolist()]
    gone = {x for step in done for x in step.deletes.tolist()}

    assert 450 < sum(len(step.puts) + len(step.deletes) for step in done) < 600
    assert gone & set(put)  # some came back, or were updated before they went
    assert all(not set(step.puts.tolist()) & set(step.deletes.tolist()) for step in done)


def test_a_join_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "start_session", lambda managers: None)
    monkeypatch.setattr(join, "forget_removed_stores", lambda spark: None)
    monkeypatch.setattr(join, "fill_on_spark", lambda spark: fill_here)
    monkeypatch.setattr(join, "run_pipeline", _run_in_process)

    assert any("per operation, each" in line for line in join.tell(join.measure(TINY)))


def test_the_growth_of_a_join_is_measured() -> None:
    figures = join_growth.measure(replace(TINY, sizes=(200, 400), changes_per_size=300))

    assert figures["cases"]["200, here"]["r_rows"] == figures["cases"]["400, here"]["r_rows"]
    assert sum("last / first" in line for line in join_growth.tell(figures)) == len(join_growth.FORMS)


def test_the_same_changes_are_written_at_every_size() -> None:
    small, large = (join_growth.Growth(rows, 200, 300, seed=7) for rows in (200, 600))

    for one, other in zip(small.steps("here"), large.steps("here"), strict=True):
        assert (one.puts + 400).tolist() == other.puts.tolist()
        assert (one.deletes + 400).tolist() == other.deletes.tolist()
        assert (one.x + 4).tolist() == other.x.tolist()
    for one, other in zip(small.side_steps("here"), large.side_steps("here"), strict=True):
        assert (one.puts + 4).tolist() == other.puts.tolist()


def test_twenty_views_are_kept(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'store'}"
    waiting = prepare(url, TINY.workload(), V4, fill_here)

    assert len(set(V4)) == 20
    assert _run_in_process(url).changes == waiting
    require_views(url, V4, "here")


def test_a_wrong_record_is_found() -> None:
    base = {"r": pa.table({"k": ["a", "b"], "x": [1, 1], "y": [5, 7]})}

    require_equal(base, V2, pa.table({"x": [1], "lo": [5], "hi": [7]}), "right")
    for wrong in ({"x": [1], "lo": [5], "hi": [8]}, {"x": [1, 2], "lo": [5, 5], "hi": [7, 7]}):
        with pytest.raises(WrongResult, match="wrong: "):
            require_equal(base, V2, pa.table(wrong), "wrong")


def test_single_table_measures_what_this_version_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_table, "start_session", lambda managers: None)
    monkeypatch.setattr(single_table, "forget_removed_stores", lambda spark: None)
    monkeypatch.setattr(single_table, "fill_on_spark", lambda spark: fill_here)
    monkeypatch.setattr(single_table, "run_pipeline", _run_in_process)

    figures = single_table.measure(replace(TINY, views=("V1", "V2")))

    assert {"V1, uniform", "V1, zipf"} <= figures["cases"].keys()
    expected = {f"{view}, {kind}" for view in ("V1", "V1 without images", "V2") for kind in ("uniform", "zipf")}
    assert figures["cases"].keys() | figures["skipped"].keys() == expected
    assert figures["cases"]["V1, uniform"]["ratio_each"] > 0
    assert figures["ratios"]["zipf / uniform throughput, V1"] > 0
    assert any("per operation, fused" in line for line in single_table.tell(figures))


def test_reads_are_measured_and_equal() -> None:
    figures = reads.measure(TINY)

    assert figures["ratio_view_to_bare"] > 0
    assert len(list(reads.tell(figures))) == 4


def test_puts_are_timed_without_a_pipeline(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'store'}"
    prepare(url, TINY.workload(), [V1], fill_here, changes=False)

    latencies, share = put_latency._part(url, TINY, running=False)

    assert min(latencies) > 0
    assert share == 0


def test_the_steps_of_an_epoch_are_clocked(tmp_path: Path) -> None:
    prepare(f"embedded:{tmp_path / 'store'}", TINY.workload(), [V1], fill_here)

    profile = profile_here(tmp_path / "store", changes_per_epoch=1_000)
    words = in_words(profile.clock.wall)

    assert {"log read", "log decode", "group", "store write", "sync store"} <= profile.clock.wall.keys()
    assert words.keys() == {*WORDS, "other"}
    assert sum(words.values()) == pytest.approx(sum(profile.clock.wall.values()))


@pytest.mark.parametrize(
    "name", [name for steps in (STEPS, SPARK_STEPS, JOB_STEPS) for names in steps.values() for name in names]
)
def test_what_the_clock_wraps_is_there(name: str) -> None:
    find(name)


def test_memory_of_this_process_is_seen() -> None:
    found = memory_of(os.getpid())

    assert found["rss"]["driver"] >= found["private"]["driver"] > 1
    assert set(found["rss"]) == set(KINDS)
