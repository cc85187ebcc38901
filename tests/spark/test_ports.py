"""A session that we start listens on loopback alone, and has no web interface; a job runs while we look."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, os, sys, threading
from pathlib import Path
from viewkeeper.engine.spark_session import default_session

def listening(pids):
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and parts[9] in inodes:
                found.append(parts[1].split(":")[0])
    return found

def family(pid):
    children = [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]
    return [pid, *(one for child in children for one in family(child))]

folder = sys.argv[1]
started, go = folder + "/started", folder + "/go"
os.mkfifo(started)
os.mkfifo(go)

def wait(batches):
    open(started, "w").close()  # until somebody reads
    open(go).close()  # until somebody writes
    yield from batches

session = default_session(1)
job = threading.Thread(target=lambda: session.range(0, 1, 1, 1).mapInArrow(wait, "id long").collect())
job.start()
open(started).close()
names = ("spark.ui.enabled", "spark.driver.host", "spark.driver.bindAddress")
conf = session.sparkContext.getConf()
told = {"ui": session.sparkContext.uiWebUrl, "during": listening(family(os.getpid()))}
told["conf"] = {name: conf.get(name) for name in names}
open(go, "w").close()
job.join()
print("TOLD" + json.dumps(told))
session.stop()
"""
LOOPBACK = {
    "0100007F",  # 127.0.0.1
    "0000000000000000FFFF00000100007F",  # the same, written as IPv6
    "00000000000000000000000001000000",  # ::1
}


def test_every_port_of_our_session_is_on_loopback_and_there_is_no_web_interface(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    told = json.loads(line.removeprefix("TOLD"))
    assert told["ui"] is None
    assert told["conf"] == {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    assert len(told["during"]) >= 3, "the driver, its block manager and py4j listen"
    assert set(told["during"]) <= LOOPBACK
