"""Whatever a demo, a check and a pipeline on Spark write, only their user may read, though the umask allows all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

SCRIPT = """
import json, os, stat, sys, time
from pathlib import Path
import viewkeeper as vk
from viewkeeper.cli import demo
from viewkeeper.check.check_files import CheckFiles

os.umask(0)
temporary, kept = Path(os.environ["TMPDIR"]), Path(sys.argv[1])
modes = {}

def look():
    for path in temporary.iterdir():
        if path.is_dir():  # what is in a folder that others may not enter is private
            modes[path.name.rsplit("-", 1)[0]] = stat.S_IMODE(path.stat().st_mode)

write = CheckFiles.write

def write_and_look(self, *arguments):
    write(self, *arguments)
    look()

CheckFiles.write = write_and_look
demo.demo(None)
demo.demo(kept)
db = vk.connect(f"embedded:{kept}")
with db.pipeline(engine="spark") as pipeline:
    pipeline.start()
    while not list(temporary.glob("viewkeeper-checkpoint-*")):
        pipeline.raise_failure()
        time.sleep(0.01)
    look()
loose = [str(path) for path in (kept, *kept.rglob("*")) if stat.S_IMODE(path.lstat().st_mode) & 0o077]
print("TOLD" + json.dumps({"modes": modes, "loose": loose}), flush=True)
"""


@pytest.mark.deep
def test_folders_of_a_demo_a_check_and_a_pipeline_are_private(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "kept")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    told = json.loads(line.removeprefix("TOLD"))

    made = {"viewkeeper-demo", "viewkeeper-check", "viewkeeper-checkpoint", "viewkeeper-spark"}
    assert made <= told["modes"].keys()
    assert set(told["modes"].values()) == {0o700}
    assert told["loose"] == []
