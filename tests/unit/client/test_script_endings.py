"""Scripts that end without closing anything: nothing is printed but their own words, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import viewkeeper as vk
from viewkeeper.ports.meta import live_holder

SCRIPT = """
import os, signal, sys, threading
import viewkeeper as vk

def fill(url, rows):
    db = vk.connect(url)
    db.execute('''
        CREATE TABLE t (k INT PRIMARY KEY, g INT, v INT);
        CREATE TABLE u (g INT PRIMARY KEY, name STRING);
        CREATE MATERIALIZED VIEW sums AS SELECT g, SUM(v) AS s, MIN(v) AS low, COUNT(*) AS n FROM t GROUP BY g;
        CREATE MATERIALIZED VIEW named AS SELECT t.k, t.v, u.name FROM t JOIN u ON t.g = u.g;
        CREATE MATERIALIZED VIEW high AS SELECT k, v + 1 AS w FROM t WHERE v > 2
    ''')
    db.table("u").put_many([{"g": g, "name": str(g)} for g in range(3)])
    return db, db.table("t").put_many([{"k": k, "g": k % 3, "v": k} for k in range(rows)])

first, _ = fill(sys.argv[1], 100)
pipeline = first.pipeline()
pipeline.run_available()  # many rows
first.table("t").put({"k": 1000, "g": 0, "v": 0})
pipeline.run_available()  # few
second, token = fill("memory:", 50)
background = second.pipeline()
background.start()
background.wait_for(token)
first.execute("SELECT COUNT(*) FROM t")
snapshot = first.snapshot()
print("done", flush=True)
"""
ENDINGS = {
    "end": ("", 0, ""),
    "raise": ("raise ValueError('mine')", 1, "ValueError: mine"),
    "exit": ("sys.exit(3)", 3, ""),
    "interrupt": ("signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt"),
    "thread": ("threading.Thread(target=pipeline.run_available).start()", 0, ""),
    "daemon": (
        "e = threading.Event()\n"
        "threading.Thread(target=lambda: (pipeline.run_available(), e.set(), threading.Event().wait()), daemon=True)"
        ".start()\ne.wait()",
        0,
        "",
    ),
    "fork": (
        "pid = os.fork()\nif pid == 0: sys.exit(4)\nassert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4",
        0,
        "",
    ),
    "pool": (
        "import multiprocessing\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool: assert pool.map(abs, [-1]) == [1]",
        0,
        "",
    ),
}


SOME = ("interrupt", "daemon", "fork")


@pytest.mark.parametrize(
    "ending", [*SOME, *(pytest.param(one, marks=pytest.mark.deep) for one in ENDINGS if one not in SOME)]
)
def test_a_script_that_closes_nothing(ending: str, tmp_path: Path) -> None:
    last, code, told = ENDINGS[ending]
    url = f"embedded:{tmp_path / 's'}?sync=off"
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT + last, url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (ended.returncode, ended.stdout) == (code, "done\n"), ended.stderr
    *trace, final = ended.stderr.splitlines() or [""]
    assert final == told
    assert not trace or (
        trace[0] == "Traceback (most recent call last):" and all(line[:2] == "  " for line in trace[1:])
    )
    with vk.connect(url) as db, db.pipeline() as pipeline:
        assert pipeline.run_available() == []
        assert dict(db.view("sums").get(0)) == {"g": 0, "s": 1683, "low": 0, "n": 35}


# It says its version, and with which command the JVM is to be started; then it is that JVM, which never comes up.
JAVA = """#!/bin/sh
case "$*" in
  *-version*) echo 'openjdk version "17.0.9"' >&2 ;;
  *launcher.Main*) printf '\\0\\n%s\\0%s\\0%s\\0' "$0" wait 0 ;;
  wait*) echo $$ >"$(dirname "$0")/jvm"; exec sleep 1000 ;;
esac
"""
WAITS_FOR_SPARK = """
import os, sys, time
import viewkeeper as vk
db = vk.connect(sys.argv[1])
db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
db.execute("CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM t")
db.table("t").put(1, {})
pipeline = db.pipeline(engine=sys.argv[2], settings=vk.EngineSettings(small_work_max=0, meanwhile_work=0))
pipeline.start()
while not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
"""


@pytest.fixture
def slow_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a process whose Spark never starts, and whose temporary files are in a folder of their own."""
    for name in ("bin", "temporary", "cache"):
        (tmp_path / name).mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(JAVA)
    java.chmod(0o755)
    folders = {"JAVA_HOME": tmp_path, "TMPDIR": tmp_path / "temporary", "XDG_CACHE_HOME": tmp_path / "cache"}
    return os.environ | {name: str(path) for name, path in folders.items()} | {"PYTHONPATH": os.pathsep.join(sys.path)}


def require_nothing_left(folder: Path) -> None:
    jvm = int((folder / "bin" / "jvm").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(jvm, 0)
    assert list((folder / "temporary").iterdir()) == []
    with vk.connect(f"embedded:{folder / 's'}") as db:
        assert live_holder(db.store) is None


@pytest.mark.parametrize("engine", ["auto", "spark"])
@pytest.mark.parametrize(("last", "code", "told"), [("", 0, ""), ("raise ValueError('mine')", 1, "ValueError: mine")])
def test_a_script_that_ends_while_spark_is_starting_does_not_wait_for_it(
    tmp_path: Path, slow_java: dict[str, str], engine: str, last: str, code: int, told: str
) -> None:
    command = [sys.executable, "-c", WAITS_FOR_SPARK + last, f"embedded:{tmp_path / 's'}?sync=off", engine]
    ended = subprocess.run(
        [*command, str(tmp_path / "bin" / "jvm")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=slow_java,
    )
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.count("Traceback") == bool(told) and (ended.stderr.splitlines() or [""])[-1] == told, (
        ended.stderr
    )
    require_nothing_left(tmp_path)


def test_sigterm_while_spark_is_starting_leaves_nothing(tmp_path: Path, slow_java: dict[str, str]) -> None:
    url = f"embedded:{tmp_path / 's'}"
    with vk.connect(url) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY)")
    command = [sys.executable, "-m", "viewkeeper", "run", url, "--engine", "spark"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=slow_java)
    while not (tmp_path / "bin" / "jvm").exists():
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    told, _ = running.communicate(timeout=120)
    assert (running.returncode, told.splitlines()[-1]) == (0, "stopped at epoch 0"), told
    require_nothing_left(tmp_path)
