"""The damage laboratory: damages copies of a small store, one file at a time, and tells what a user of each copy meets.

Run as a program in a process of its own. In: a directory, a seed, a number of trials for each file and kind of damage,
and whose files: parts of the store, or all. Out: a JSON line for each trial: the file, the damage and the end.
Always: each copy is read in a forked child, because LMDB reads through a map and damage may end the process.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import viewkeeper as vk
from tests.support.running import keep_up

ROWS = 60
PAGE = 4096


def prepare(path: Path) -> None:
    with vk.connect(f"embedded:{path}?sync=off") as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT, v STRING)")
        db.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, COUNT(*) AS n, MAX(v) AS hi FROM t GROUP BY g")
        db.table("t").put_many([{"k": k, "g": k % 7, "v": f"value {k}" * 9} for k in range(ROWS)])
        keep_up(db)


def look(path: Path) -> str:
    """All that a reader and a pipeline see of the store, as a text."""
    with vk.connect(f"embedded:{path}?sync=off") as db:
        seen = [sorted(map(str, db.table("t").scan())), sorted(map(str, db.view("sums").scan()))]
        db.table("t").put(1, {"g": 100})
        keep_up(db)
        seen += [sorted(map(str, db.view("sums").scan())), sorted(map(str, db.table("t").scan()))]
    return json.dumps(seen)


def zero(content: bytearray, source: random.Random) -> None:
    """A page, or what there is of it, as zeros."""
    start = source.randrange(len(content)) // PAGE * PAGE
    content[start : start + PAGE] = bytes(len(content[start : start + PAGE]))


def flip(content: bytearray, source: random.Random) -> None:
    """One bit, where the file is not empty."""
    places = [place for place in (source.randrange(len(content)) for _ in range(400)) if content[place]]
    content[places[0] if places else 0] ^= 1 << source.randrange(8)


def cut(content: bytearray, source: random.Random) -> None:
    del content[source.randrange(len(content)) :]


def garble(content: bytearray, source: random.Random) -> None:
    """A run of random bytes."""
    start = source.randrange(len(content))
    size = len(content[start : start + 64])
    content[start : start + size] = source.randbytes(size)


DAMAGES: dict[str, Callable[[bytearray, random.Random], None]] = {
    "zeroed": zero,
    "flipped": flip,
    "truncated": cut,
    "garbled": garble,
}


def end_of(path: Path, expected: str) -> str:
    """How a child ends that looks at the store: right, wrong, an error's name, or a signal."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        try:
            told = "right" if look(path) == expected else "wrong"
        except vk.ViewKeeperError as error:
            told = type(error).__name__
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            told = f"raw {type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {error}"[:200]
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        told = answer.read()
    status = os.waitpid(pid, 0)[1]
    return told or f"signal {os.WTERMSIG(status)}"


def trial(made: Path, copy: Path, file: Path, damage: str, source: random.Random, expected: str) -> str:
    shutil.copytree(made, copy)
    content = bytearray((copy / file).read_bytes())
    DAMAGES[damage](content, source)
    (copy / file).write_bytes(content)
    try:
        return end_of(copy, expected)
    finally:
        shutil.rmtree(copy)


def main(root: Path, seed: int, trials: int, parts: str) -> None:
    made = root / "made"
    in_child(prepare, made)
    in_child(lambda: (root / "expected").write_text(look(Path(shutil.copytree(made, root / "whole")))))
    expected, source = (root / "expected").read_text(), random.Random(seed)
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    for file in [file for file in files if parts == "all" or file.parts[0] in parts.split(",")]:
        for damage in DAMAGES if (made / file).stat().st_size else ():
            for _ in range(trials):
                end = trial(made, root / "copy", file, damage, source, expected)
                print(json.dumps({"file": str(file), "damage": damage, "end": end}), flush=True)


def in_child(work: Callable[..., object], *arguments: object) -> None:
    pid = os.fork()
    if pid == 0:
        work(*arguments)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("a child failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
