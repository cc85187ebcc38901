"""No test is lost between the tiers: a deep one is left out visibly, and runs when somebody asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

CONFTEST = """
from tests.support import tiers
pytest_addoption = tiers.add_option
def pytest_collection_modifyitems(config, items): tiers.leave_out(config, items)
"""
TESTS = """
import pytest
def test_quick(): pass
@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2])
def test_slow(seed): pass
"""


@pytest.mark.parametrize(
    ("arguments", "deep", "outcome"),
    [
        (["."], "", "1 passed, 2 deselected"),
        (["."], "0", "1 passed, 2 deselected"),
        (["."], "1", "3 passed"),
        (["--deep"], "", "3 passed"),
        (["-m", "deep"], "", "2 passed, 1 deselected"),
        (["-k", "slow"], "", "3 deselected"),
        (["test_both.py::test_slow"], "", "2 passed"),
        (["test_both.py::test_slow[2]"], "", "1 passed"),
        (["test_both.py::test_quick", "test_both.py::test_slow[2]"], "", "2 passed"),
    ],
)
def test_deep_tests_run_when_asked_for(tmp_path: Path, arguments: list[str], deep: str, outcome: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_both.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = deep\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "VIEWKEEPER_DEEP": deep}
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout

    assert told.splitlines()[-1].partition(" in ")[0] == outcome, told
