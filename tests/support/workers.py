"""Several worker processes share a run (pytest-xdist): who runs what, and what they tell at the end.

Always: the tests of a file stay together, for some count over the whole file; those of Spark stay together, for a session
takes seconds to start. The longest begin first, so that no worker is left with them in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import pytest
from xdist.scheduler import LoadScopeScheduling

LONGEST = ("spark", "property", "random_views", "sim")
TOLD = "told at the end"


class ByFile(LoadScopeScheduling):
    """Gives a worker a file at a time, or all that needs Spark."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/spark" if nodeid.startswith("tests/spark/") else nodeid.partition("::")[0]


def longest_first(folder: str) -> int:
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)


def count_left_out(items: Sequence[pytest.Item]) -> None:
    """In a worker: remember for `tell_left_out` how many tests were deselected."""
    output = getattr(items[0].config, "workeroutput", None) if items else None
    if output is not None:
        output["left out"] = output.get("left out", 0) + len(items)


def tell_left_out(node: object) -> None:
    """Each worker left out the same tests, and pytest-xdist tells nobody; the last line of the run counts them."""
    count = getattr(node, "workeroutput", {}).get("left out", 0)
    reporter = node.config.pluginmanager.getplugin("terminalreporter")
    reporter.stats["deselected"] = [SimpleNamespace() for _ in range(count)]


def told(reports: Iterable[pytest.TestReport]) -> list[str]:
    """What tests said with `record_property(TOLD, …)`; it comes with their reports, whoever ran them."""
    return [line for report in reports for name, line in report.user_properties if name == TOLD]
