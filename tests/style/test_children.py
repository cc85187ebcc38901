"""Tests run the same in the background, where SIGINT is ignored; and none waits for a process that it no longer needs."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys

import pytest

from tests.support.children import none_left
from tests.support.source_tree import ROOT

ENDLESS = [sys.executable, "-c", "import signal\nwhile True: signal.pause()"]


def test_control_c_reaches_the_children_of_tests_that_were_begun_in_the_background() -> None:
    code = (
        "import signal, subprocess, sys; from tests.support.children import let_interrupts_through\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        "let_interrupts_through()\n"
        "child = [sys.executable, '-c', 'import signal; signal.raise_signal(signal.SIGINT)']\n"
        "sys.exit(subprocess.run(child, stderr=subprocess.DEVNULL, timeout=60).returncode == -signal.SIGINT)"
    )
    command = ["sh", "-c", """trap '' INT; exec "$0" -c "$1" """, sys.executable, code]
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == 1


def test_a_process_ends_with_a_block_that_fails() -> None:
    with pytest.raises(subprocess.TimeoutExpired), subprocess.Popen(ENDLESS) as process:
        process.communicate(timeout=0.01)
    assert process.returncode == -signal.SIGKILL


def test_no_process_outlives_its_test() -> None:
    with none_left():
        process = multiprocessing.get_context("spawn").Process(target=signal.pause)
        process.start()
    assert process.exitcode == -signal.SIGKILL
