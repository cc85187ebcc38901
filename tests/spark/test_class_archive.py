"""The archive of Spark's classes, with real JVMs: the first leaves it behind, the next one maps it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from pathlib import Path
from viewkeeper.engine.spark_session import default_session

session = default_session(view_managers=1)
assert session.range(10).count() == 10
maps = Path(f"/proc/{session.sparkContext._gateway.proc.pid}/maps").read_text()
print(sorted({line.split("/")[-1] for line in maps.splitlines() if "/viewkeeper/spark-" in line}))
"""


@pytest.mark.deep
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process maps is told by /proc")
def test_a_second_start_maps_what_the_first_one_left(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "a cache")}

    def mapped() -> str:
        # the pipe is open until the JVM has ended too
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300, check=True
        )
        return done.stdout.splitlines()[-1]

    assert mapped() == "[]"
    (written,) = (tmp_path / "a cache" / "viewkeeper").iterdir()
    assert mapped() == f"['{written.with_suffix('.jsa').name}']"
