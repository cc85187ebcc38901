"""Processes: servers that outlive the command that started them, and are found again by others.

In: a folder that keeps a note for each server: its pid and when that process began. Out: signals to exactly these. Always:
a pid that the system gave to somebody else since is not ours: its start time differs, or its command line lacks our mark.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.services.waiting import say_nothing, wait_until

_START_FIELD = 19  # of /proc/<pid>/stat, after the command's name, which may hold anything


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one folder: `run` has their notes, `logs` what they print."""

    folder: Path

    @property
    def mark(self) -> str:
        """An argument that every process of this folder has on its command line."""
        return f"-Dviewkeeper.services={self.folder}"

    def start(self, name: str, command: Sequence[str], environment: dict[str, str]) -> None:
        """Start `command`, which must have `mark` among its arguments, unless a process of that name runs."""
        if self.is_running(name):
            return
        for folder in (self._notes, self.folder / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        output = (os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self.log(name)), *output),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)
        note = self._notes / f"{name}.json"
        note.with_suffix(".part").write_text(json.dumps({"pid": pid, "began": _began(pid)}))
        note.with_suffix(".part").rename(note)
        # its arguments are readable a moment after it has begun
        wait_until(lambda: self.is_running(name), seconds_max=5, state=str, tell=say_nothing)

    def names(self) -> list[str]:
        return sorted(note.stem for note in self._notes.glob("*.json"))

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def is_running(self, name: str) -> bool:
        return self.pid(name) is not None

    def pid(self, name: str) -> int | None:
        """None if it does not run."""
        found = self._note(name)
        return found[0] if found and self._is_ours(*found) else None

    def memory_mb(self, name: str) -> int | None:
        """What a running process holds in memory; None if it does not run."""
        pid = self.pid(name)
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024
        return None

    def wait_for_end(self, name: str, *, seconds_max: float) -> bool:
        """Whether the process has ended in that time; then it is forgotten."""
        with self._handle(name) as handle:
            if handle.number is not None:
                waiting = select.poll()
                waiting.register(handle.number, select.POLLIN)
                if not waiting.poll(seconds_max * 1000):
                    return False
        self._forget(name)
        return True

    def end(self, name: str, *, seconds_max: float = 20.0) -> None:
        """Ask the process to end, and kill it if it does not."""
        self.send(name, signal.SIGTERM)
        if not self.wait_for_end(name, seconds_max=seconds_max):
            self.kill(name)

    def kill(self, name: str) -> bool:
        """kill -9; whether there was something to kill."""
        was_running = self.send(name, signal.SIGKILL)
        self.wait_for_end(name, seconds_max=10.0)
        return was_running

    def send(self, name: str, number: signal.Signals) -> bool:
        """Send a signal through a handle that was opened before the process was identified: no other can get it."""
        with self._handle(name) as handle:
            if handle.number is None:
                return False
            signal.pidfd_send_signal(handle.number, number)
            return True

    @property
    def _notes(self) -> Path:
        return self.folder / "run"

    def _note(self, name: str) -> tuple[int, int] | None:
        try:
            found = json.loads((self._notes / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        return found["pid"], found["began"]

    def _is_ours(self, pid: int, began: int) -> bool:
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")  # those of a zombie are gone
        except OSError:
            return False
        return os.fsencode(self.mark) in arguments and _began(pid) == began

    def _handle(self, name: str) -> _Handle:
        found = self._note(name)
        if found is None:
            return _Handle(None)
        try:
            handle = _Handle(os.pidfd_open(found[0]))
        except ProcessLookupError:
            return _Handle(None)
        if self._is_ours(*found):
            return handle
        handle.__exit__()
        return _Handle(None)

    def _forget(self, name: str) -> None:
        found = self._note(name)
        if found is not None:
            with suppress(ChildProcessError):  # started by another command
                os.waitpid(found[0], os.WNOHANG)
            (self._notes / f"{name}.json").unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Handle:
    """An open pidfd, or None where there is no process of ours."""

    number: int | None

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *error: object) -> None:
        if self.number is not None:
            os.close(self.number)


def _began(pid: int) -> int:
    """When a process began, in ticks since the machine's start; -1 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_START_FIELD])
    except OSError:
        return -1
