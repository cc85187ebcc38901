"""At the end of a run: what the random views contained."""

from __future__ import annotations

import pytest

from tests.support.random_worlds import TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY.views:
        terminalreporter.section("random views")
        for line in TALLY.lines():
            terminalreporter.write_line(line)
