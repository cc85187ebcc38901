"""What all tests share: a test's folder gives its marker, and generated input is the same on every run but a deep one.

Hypothesis runs under the profile `ci` unless HYPOTHESIS_PROFILE names another: `ci` derives its choices from the test
itself, so a failure on one machine is a failure on all; `deep`, of deep runs, from the seed that the run tells; `dev` draws
anew each time and keeps what it found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis.core
import pytest
from hypothesis import HealthCheck, settings

from tests.support import children, tiers, workers
from tests.support.handles import close_environments

TESTS = Path(__file__).parent
# A JVM of the tests ends before its best compiler pays: with the first one alone tests on Spark take a quarter less CPU.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False, max_examples=200)
settings.register_profile("dev", deadline=None, max_examples=500)


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    children.let_interrupts_through()
    children.kill_at_failures()
    tiers.configure(config)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deep" if tiers.is_deep() else "ci"))
    if tiers.is_deep():
        hypothesis.core.global_force_seed = tiers.seed()


def pytest_report_header() -> str:
    return tiers.header()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by the first folder under tests/; an unknown folder is refused by --strict-markers."""
    item.add_marker(getattr(pytest.mark, _folder(item)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.leave_out(config, items)
    if hasattr(config, "workeroutput"):  # a worker of several
        items.sort(key=lambda item: workers.longest_first(_folder(item)))


def pytest_deselected(items: list[pytest.Item]) -> None:
    workers.count_left_out(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    workers.tell_left_out(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> workers.ByFile:
    return workers.ByFile(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in workers.told(terminalreporter.getreports("")):
        terminalreporter.write_line(line)


def _folder(item: pytest.Item) -> str:
    folders = item.path.relative_to(TESTS).parts[:-1]
    if not folders:
        raise pytest.UsageError(f"{item.path.name} lies in tests/ itself; put it into one of the folders")
    return folders[0]


@pytest.fixture(autouse=True)
def let_go_of_stores() -> Iterator[None]:
    """A process has room for about a dozen open stores; a store that outlives its test is opened again when used."""
    yield
    close_environments()


@pytest.fixture(scope="module", autouse=True)
def end_what_was_started() -> Iterator[None]:
    """Whatever happens in the tests of a file, which may share processes."""
    with children.none_left():
        yield
