"""The attack laboratory: runs hostile statements in a process of its own, and watches what the process does.

Run as a program in an empty directory. In: a seed and a count. Out: JSON lines: for each statement with a fault what was
wrong, and at the end the counts. Always: the directory holds a file, the environment a variable, and this module a variable
of Python, each with a canary; Python's audit hook sees files, sockets, processes and libraries that the statements lead to.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa

import viewkeeper as vk
from tests.support.attack_texts import FILE, VALID, VARIABLE, attacks
from tests.support.running import keep_up

SECRET = "canary-4d1c"
MEMORY_MAX = 6 << 30
CPU_SECONDS_MAX = 600
# What leads out of the process. A module that is imported late opens its own source.
WATCHED = (
    "open",
    "os.",
    "shutil.",
    "socket.",
    "subprocess.",
    "ctypes.dlopen",
    "urllib",
    "glob.",
    "tempfile.",
    "pickle.",
)
HARMLESS = ("os.listdir", "os.scandir")  # of import paths
TABLE = "CREATE TABLE IF NOT EXISTS t (k INT PRIMARY KEY, s STRING, n BIGINT, d DECIMAL(12,2), b BINARY, ok BOOLEAN)"

canary_of_python = pa.table({"x": [SECRET]})
watching: list[str] | None = None


def hook(event: str, arguments: tuple) -> None:
    if watching is None or not event.startswith(WATCHED) or event in HARMLESS:
        return
    if event == "open" and str(arguments[0]).endswith((".py", ".pyc", ".so")):
        return
    watching.append(f"{event} {arguments!r}"[:200])


def prepare() -> vk.Database:
    database = vk.connect("memory:")
    restore(database)
    for statement in VALID:  # what is imported late is imported here
        database.execute(statement)
    return database


def restore(database: vk.Database) -> None:
    """Statements may drop what they can reach."""
    database.execute(TABLE)
    database.table("t").put_many([{"k": k, "s": "a" * 30 + "!", "n": k, "ok": True} for k in range(4)])


def run(database: vk.Database, text: str) -> tuple[str, str]:
    """How the statement ended, and all that it answered."""
    try:
        answer = database.execute(text)
        if "VIEW" in text:
            keep_up(database)
        return "computed", f"{answer.rows} {answer.message}"
    except vk.ViewKeeperError as error:
        return "refused", str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200], ""


def fault(database: vk.Database, text: str, kept: tuple[object, ...]) -> tuple[str, str]:
    """How the statement ended, and what is wrong with that."""
    global watching
    watching = []
    ended, told = run(database, text)
    did, watching = watching, None
    wrong = [*did]
    if ended not in ("computed", "refused"):
        wrong.append(ended)
    if SECRET in told:
        wrong.append("a canary was told")
    if surroundings() != kept:
        wrong.append("the directory or the environment has changed")
    return ended, "; ".join(wrong)


def surroundings() -> tuple[object, ...]:
    return sorted(os.listdir()), dict(os.environ), os.getcwd(), sys.getrecursionlimit()


def main(seed: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
    Path(FILE).write_text(f"x\n{SECRET}\n")
    os.environ[VARIABLE] = SECRET
    database = prepare()
    sys.addaudithook(hook)
    kept, ends = surroundings(), Counter[str]()
    for number, text in enumerate(attacks(seed, count)):
        ended, wrong = fault(database, text, kept)
        ends[ended] += 1
        if wrong:
            print(json.dumps({"number": number, "text": text[:300], "wrong": wrong}), flush=True)
        restore(database)
    print(json.dumps({"ends": ends}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
