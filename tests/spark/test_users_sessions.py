"""Sessions that users pass, in a process of their own: a typed error for each that is no good, and views right afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

WANTED = f"PYSPARK_PYTHON or spark.pyspark.python to a Python {sys.version_info[0]}.{sys.version_info[1]} with the same"
# Another version as far as PySpark can tell, where no other interpreter is at hand.
POSING = """
import sys
names = ("major", "minor", "micro", "releaselevel", "serial")
known = dict(zip(names, (3, sys.version_info[1] - 1, *sys.version_info[2:])))
sys.version_info = type("version_info", (tuple,), known)(known.values())
"""


def other_python(folder: Path) -> str:
    """Another interpreter, if there is one, or this one, which tells its version wrong."""
    minors = [minor for minor in range(10, 20) if minor != sys.version_info[1]]
    beside = [Path(sys.base_prefix).parent.glob(f"3.{minor}.*/bin/python3.{minor}") for minor in minors]
    found = [*filter(None, (shutil.which(f"python3.{minor}") for minor in minors)), *map(str, chain(*beside))]
    for python in found:
        told = subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, timeout=60)
        if told.returncode == 0 and int(told.stdout) in minors:  # no shim, which has none to start
            return python
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(POSING)
    return _script(folder / "python", f'PYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"')


def bare_python(folder: Path) -> str:
    """This interpreter, without any installed package."""
    folder.mkdir()
    return _script(folder / "python", f'exec "{sys.executable}" -S "$@"')


def _script(path: Path, line: str) -> str:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def experiments(folder: Path, python: str, *names: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.support.session_lab", str(folder), python, *names]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def all_of(told: dict[str, object], name: str) -> list[str]:
    """What the attempts of an experiment raised."""
    found = [told[key] for key in told if key.rpartition(" ")[0] == name and key[-1].isdigit()]
    assert found and all(isinstance(words, str) for words in found), (name, found)
    return found


def test_a_session_that_is_no_good_is_one_typed_error_and_gives_no_epoch_up(tmp_path: Path) -> None:
    told = experiments(tmp_path, other_python(tmp_path / "other"), "text", "wrong", "good")

    assert all(words.startswith("InputError: spark is a SparkSession, not str") for words in all_of(told, "text"))
    for words in all_of(told, "wrong"):
        assert words.startswith("SparkUnfit: Spark's Python workers cannot run epochs: they have Python 3.")
        assert WANTED in words
    assert told["wrong epochs"][1] == []
    assert told["wrong jobs"] == len(all_of(told, "wrong"))  # one task each
    assert all("that was passed is stopped" in words for words in all_of(told, "stopped before"))
    assert (told["good 0"], told["good 1"], told["good right"], told["good checked"]) == (None, None, True, True)
    assert told["good kept"] == "Asia/Kathmandu"
    assert told["stopped in an epoch 0"].startswith("SparkLost: the Spark session was stopped while it was used")
    assert (told["default 0"], told["default right"]) == (None, True)


@pytest.mark.deep
def test_a_session_that_ends_beside_a_pipeline_is_lost_and_workers_without_packages_are_named(tmp_path: Path) -> None:
    told = experiments(tmp_path, bare_python(tmp_path / "bare"), "wrong", "stopped", "killed")

    for words in all_of(told, "wrong"):
        assert words.startswith("SparkUnfit: Spark's Python workers cannot run epochs: ") and "no module " in words
    assert told["stopped beside 0"].startswith("SparkLost: the Spark session was stopped while it was used")
    assert (told["another 0"], told["stopped right"]) == (None, True)
    lost = [told[f"killed {number}"] for number in range(4)]
    assert all(words.startswith("SparkLost: Spark's JVM has ended") for words in lost), lost
    assert (told["killed 4"], told["killed right"]) == (None, True)
