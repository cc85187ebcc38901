"""Two tiers of tests: those of every run, and the deep ones, marked `deep`, which run when somebody asks for them.

Asking is `--deep`, `VIEWKEEPER_DEEP=1`, a marker expression that refers to `deep`, or a test's own name: who types
that wants to see it run. A deep run draws from a seed of its own, which it tells; the runs of
every day draw the same each time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

SWITCH, SEED = "VIEWKEEPER_DEEP", "VIEWKEEPER_SEED"
ONE_LOG = pytest.mark.parametrize(  # of a fixture `db` with either kind of log: every run has one, a deep one both
    "db", ["off", pytest.param("on", marks=pytest.mark.deep)], indirect=True, ids=["plain log", "before-images"]
)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help=f"run the tests marked deep too; so does {SWITCH}=1")


def configure(config: pytest.Config) -> None:
    """The environment holds the choice, so that test modules, workers and children all see the same."""
    if config.getoption("--deep"):
        os.environ[SWITCH] = "1"
    if is_deep():
        os.environ.setdefault(SEED, str(random.randrange(1, 1_000_000)))


def header() -> str:
    return f"deep, with seed {seed()}; the same again: {SEED}={seed()} make test-deep" if is_deep() else "not deep"


def is_deep() -> bool:
    return os.environ.get(SWITCH, "0") not in ("", "0")


def seed() -> int:
    """0 but in deep runs."""
    return int(os.environ.get(SEED, "0"))


def examples(count: int, *, deep: int) -> int:
    """How many examples a law is tried on."""
    return deep if is_deep() else count


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> int:
    """Take the deep tests that nobody asked for out of `items`; returns how many they were."""
    if is_deep() or "deep" in config.getoption("-m"):
        return 0
    named = [_absolute(argument, config.invocation_params.dir) for argument in config.args if "::" in argument]
    kept, left = [], []
    for item in items:
        asked = item.get_closest_marker("deep") is None or is_named(_absolute(item.nodeid, config.rootpath), named)
        (kept if asked else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
    return len(left)


def is_named(node: str, named: Sequence[str]) -> bool:
    """Whether an argument names the test, its function without the parameters, or the class it is in."""
    return any(node == name or node.startswith((f"{name}[", f"{name}::")) for name in named)


def _absolute(node: str, folder: Path) -> str:
    path, mark, name = node.partition("::")
    return f"{(folder / path).resolve()}{mark}{name}"
