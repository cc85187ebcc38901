"""Ctrl-C: one line, exit code 130, what was done and how to go on."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

import viewkeeper as vk
from viewkeeper.cli import render, rows
from viewkeeper.client.interruptible import interruptibly

Run = Callable[..., Result]

# All pairs of pairs: minutes of work, though the table is small.
ENDLESS = "SELECT COUNT(*) AS n FROM t a JOIN t b ON a.g = b.g JOIN t c ON b.g = c.g JOIN t d ON c.g = d.g"

# Becomes the Python that its arguments say, as the owner of the terminal it was given.
IN_ITS_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def busy(url: str) -> str:
    """A store on which `ENDLESS` takes for ever."""
    with vk.connect(url) as database:
        database.execute("CREATE TABLE t (k INT PRIMARY KEY, g INT)")
        database.table("t").put_many([{"k": number, "g": 1} for number in range(2_000)])
    return url


def test_a_query_in_c_is_stopped(busy: str) -> None:
    text = f"INSERT INTO t VALUES (-1, 1); {ENDLESS}; INSERT INTO t VALUES (-2, 1)"
    command = [sys.executable, "-m", "viewkeeper", "sql", busy, text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1 row put\n"  # the next statement begins
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)

    words = "interrupted: statement 2 was stopped and can be run again; the one before it is done\n"
    assert (process.returncode, told) == (130, ("", words))
    assert vk.connect(busy).table("t").get(-2) is None


def test_control_c_stops_a_query_of_the_prompt_and_the_prompt_goes_on(busy: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    # the terminal of a session of its own: Ctrl-C in it is a signal to this process alone
    command = [sys.executable, "-c", IN_ITS_TERMINAL, "-m", "viewkeeper", "sql", busy]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        os.write(ours, f"INSERT INTO t VALUES (-1, 1); {ENDLESS};\n".encode())
        shown = _read_until(ours, b"1 row put")
        os.write(ours, b"\x03")
        shown += _read_until(ours, b"interrupted: statement 2 was stopped")
        os.write(ours, b"SELECT 6 * 7 AS answer;\n\\q\n")
        shown += _read_until(ours, b"42")
        assert process.wait(60) == 0
    os.close(ours)


def test_control_c_is_noticed_when_another_thread_gets_the_signal() -> None:
    """So it also is when the signal comes just before the main thread begins to wait."""
    stopped, found, main = threading.Event(), [], threading.main_thread().ident

    def work() -> None:
        while sys._current_frames()[main].f_code.co_name != "wait" or time.monotonic() < began + 0.05:
            pass  # the main thread does not wait yet
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        found.append(stopped.wait(20))

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interruptibly(work, stopped.set)
    assert found == [True]


def test_an_answer_that_is_cut_short_is_no_statement_that_was_stopped(
    run: Run, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "print_result", lambda result, form: signal.raise_signal(signal.SIGINT))
    told = run("sql", shop, "SELECT id FROM orders; INSERT INTO orders VALUES ('o9', 'eu', 1)")

    words = "interrupted: the answer of the statement was cut short; what it did is done\n"
    assert (told.exit_code, told.stderr) == (130, words)
    assert run("get", shop, "orders", "o9").exit_code == 3


def test_control_c_while_the_commands_are_loaded_is_told_as_well() -> None:
    code = """
import signal, sys
from viewkeeper.cli.start import main

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "viewkeeper.cli.exit_codes":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted: nothing was changed\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("scan", "orders"), "nothing was changed"),
        (("get", "orders", "o1"), "nothing was changed"),
        (("put", "orders", "o1", "amount=1"), "the row is written or it is not; the command can be run again"),
    ],
)
def test_every_command_says_what_was_done(
    run: Run, shop: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], words: str
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(rows, "open_database", interrupt)
    told = run(command[0], shop, *command[1:])

    assert (told.exit_code, told.stdout, told.stderr) == (130, "", f"interrupted: {words}\n")


def test_work_is_told_to_stop_until_it_does() -> None:
    told, ended = threading.Semaphore(0), threading.Event()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(3):  # what is told too early is not heard
            assert told.acquire(timeout=60)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        interruptibly(work, told.release)
    assert ended.is_set()


def test_a_process_ends_well_behind_work_that_used_duckdb() -> None:
    code = """
import pyarrow as pa
from viewkeeper.client.interruptible import interruptibly
from viewkeeper.operators.duck import run_sql
print(interruptibly(lambda: len(run_sql("FROM t", t=pa.table({"a": [1, 2]}))), lambda: None))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_work_that_fails_fails_as_it_would_without_a_thread() -> None:
    with pytest.raises(vk.InputError, match="wrong"):
        interruptibly(lambda: _fail(), lambda: None)
    assert interruptibly(lambda: 42, lambda: None) == 42


def _fail() -> None:
    raise vk.InputError("wrong")


def _read_until(descriptor: int, wanted: bytes) -> bytes:
    """What the terminal shows, up to these words; fails when they do not come."""
    shown, watched = b"", select.poll()  # which takes descriptors of any number
    watched.register(descriptor, select.POLLIN)
    while wanted not in shown:
        assert watched.poll(60_000), shown
        try:
            shown += os.read(descriptor, 4096)
        except OSError as error:  # the terminal was closed by whoever wrote to it
            raise AssertionError(shown.decode()) from error
    return shown
