"""What all tests share: a test's folder gives its marker, and generated input is the same on every run.

Hypothesis runs under the profile `ci` unless HYPOTHESIS_PROFILE names another: `ci` derives its choices from the test
itself, so a failure on one machine is a failure on all; `dev` draws anew each time and keeps what it found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import tiers
from tests.support.handles import close_environments

TESTS = Path(__file__).parent

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_option(parser)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.leave_out(config, items)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by the first folder under tests/; an unknown folder is refused by --strict-markers."""
    folders = item.path.relative_to(TESTS).parts[:-1]
    if not folders:
        raise pytest.UsageError(f"{item.path.name} lies in tests/ itself; put it into one of the folders")
    item.add_marker(getattr(pytest.mark, folders[0]))


@pytest.fixture(autouse=True)
def let_go_of_stores() -> Iterator[None]:
    """A process has room for about a dozen open stores; a store that outlives its test is opened again when used."""
    yield
    close_environments()
