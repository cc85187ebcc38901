"""Two tiers of tests: those of every run, and the deep ones, marked `deep`, which run when somebody asks for them.

Asking is `--deep`, `VIEWKEEPER_DEEP=1`, a marker expression that speaks of `deep`, or a test's own name: who types
`tests/sim/test_kills.py::test_x` wants to see it run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

SWITCH = "VIEWKEEPER_DEEP"


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help=f"run the tests marked deep too; so does {SWITCH}=1")


def deep_is_on(config: pytest.Config) -> bool:
    return config.getoption("--deep") or os.environ.get(SWITCH, "0") not in ("", "0")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the deep tests that nobody asked for out of `items`; pytest's last line counts them as deselected."""
    if deep_is_on(config) or "deep" in config.getoption("-m"):
        return
    named = [_absolute(argument, config.invocation_params.dir) for argument in config.args if "::" in argument]
    kept, left = [], []
    for item in items:
        asked = item.get_closest_marker("deep") is None or is_named(_absolute(item.nodeid, config.rootpath), named)
        (kept if asked else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def is_named(node: str, named: Sequence[str]) -> bool:
    """Whether an argument names the test, its function without the parameters, or the class it is in."""
    return any(node == name or node.startswith((f"{name}[", f"{name}::")) for name in named)


def _absolute(node: str, folder: Path) -> str:
    path, mark, name = node.partition("::")
    return f"{(folder / path).resolve()}{mark}{name}"
