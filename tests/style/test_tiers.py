"""No test is lost between the tiers: a deep one is left out visibly, and runs when somebody asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT
from tests.support.tiers import is_named

CONFTEST = """
from tests.support import tiers, workers
pytest_addoption, pytest_configure, pytest_report_header = tiers.add_option, tiers.configure, tiers.header
pytest_deselected, pytest_testnodedown = workers.count_left_out, workers.tell_left_out
def pytest_collection_modifyitems(config, items): tiers.leave_out(config, items)
def pytest_xdist_make_scheduler(config, log): return workers.ByFile(config, log)
"""
TESTS = """
import pytest
def test_quick(): pass
@pytest.mark.deep
@pytest.mark.parametrize("place", [1, 2])
def test_slow(place): pass
"""


@pytest.mark.parametrize(
    ("arguments", "deep", "outcome"),
    [
        (["-n", "1"], "0", "1 passed, 2 deselected"),
        (["-n", "1"], "1", "3 passed"),
        (["--deep"], "", "3 passed"),
        (["test_both.py::test_quick", "test_both.py::test_slow[2]"], "", "2 passed"),
    ],
)
def test_deep_tests_run_when_asked_for(tmp_path: Path, arguments: list[str], deep: str, outcome: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_both.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = deep\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    chosen = {"VIEWKEEPER_DEEP": deep} | ({"VIEWKEEPER_SEED": "4711"} if deep == "1" else {})
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VIEWKEEPER", "PYTEST"))}
    environment = {**inherited, "PYTHONPATH": str(ROOT), **chosen}
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout

    assert f" {outcome} in " in told.splitlines()[-1], told
    assert ("VIEWKEEPER_SEED=4711 make test-deep" in told) == (deep == "1"), told


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["a.py::test_x[1]"], True),
        (["a.py::test_x"], True),
        (["a.py::test_x[2]", "a.py::test_xy"], False),
        (["a.py::test_"], False),
    ],
)
def test_a_test_is_named_by_its_function_or_its_parameters(arguments: list[str], named: bool) -> None:
    assert is_named("a.py::test_x[1]", arguments) == named
