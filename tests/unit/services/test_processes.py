"""Servers that a command started are found again by another, and nobody else's process is ever signalled."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services.processes import Processes

WAITS = "import signal, sys; print('here', flush=True); signal.pause()"
STAYS = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True)\nwhile True: signal.pause()"


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    for name in made.names():
        made.kill(name)


def start(processes: Processes, name: str, program: str = WAITS, mark: str | None = None) -> int:
    command = [sys.executable, "-c", program, processes.mark if mark is None else mark]
    processes.start(name, command, dict(os.environ))
    while "here" not in processes.log(name).read_text():
        pass
    return note(processes, name)["pid"]


def note(processes: Processes, name: str) -> dict[str, int]:
    return json.loads((processes.folder / "run" / f"{name}.json").read_text())


def change_note(processes: Processes, name: str, **changed: int) -> None:
    (processes.folder / "run" / f"{name}.json").write_text(json.dumps(note(processes, name) | changed))


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes() != b""


def test_another_command_finds_and_ends_what_one_has_started(ours: Processes) -> None:
    pid = start(ours, "one")
    other = Processes(ours.folder)
    assert other.names() == ["one"] and other.is_running("one") and other.memory_mb("one")
    start(other, "one")
    assert note(ours, "one")["pid"] == pid, "it runs already"
    other.end("one")
    assert other.names() == [] and not ours.is_running("one") and ours.memory_mb("one") is None


def test_who_does_not_end_when_asked_is_killed(ours: Processes) -> None:
    start(ours, "one", STAYS)
    assert not ours.wait_for_end("one", seconds_max=0.0)
    ours.end("one", seconds_max=0.0)
    assert not ours.is_running("one")


def test_one_is_killed_and_the_other_is_not(ours: Processes) -> None:
    start(ours, "one")
    start(ours, "two")
    assert ours.kill("one")
    assert not ours.kill("one")
    assert [ours.is_running(name) for name in ("one", "two")] == [False, True]


@pytest.mark.parametrize("reused", ["another start time", "another command line"])
def test_a_process_that_has_the_pid_of_one_of_ours_is_left_alone(ours: Processes, tmp_path: Path, reused: str) -> None:
    mark = "-Dsomebody=else" if reused == "another command line" else None
    pid = start(ours, "one", mark=mark)
    if reused == "another start time":
        change_note(ours, "one", began=note(ours, "one")["began"] - 1)
    assert not ours.is_running("one")
    assert not ours.send("one", signal.SIGKILL)
    ours.end("one")
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_pid_that_nobody_has_is_no_process(ours: Processes) -> None:
    pid = start(ours, "one")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not ours.is_running("one") and not ours.kill("one")
