"""Numbers of the source that choose a way are listed with a test that takes both ways.

The list is made by a probed run (`tests/support/thresholds.py`), which notes for each test on which side of each threshold it
was; here it is held to the source and to the tests that there are.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.source_tree import parsed
from tests.support.thresholds import LIST, ROOT, read_list, thresholds

MAKE = "tests/support/thresholds.py says how the list is made"


def test_every_threshold_has_a_test_that_crosses_it() -> None:
    missing = sorted(set(thresholds()) - set(read_list()))

    assert missing == [], f"no test takes both ways at these; {MAKE}"


def test_the_thresholds_that_are_listed_are_in_the_source() -> None:
    assert sorted(set(read_list()) - set(thresholds())) == [], f"these are not thresholds any more; {MAKE}"


def test_the_tests_that_cross_thresholds_exist() -> None:
    named = {test for tests in read_list().values() for test in tests.split(" + ")}
    known = {path: _functions(ROOT / path) for path in {test.partition("::")[0] for test in named}}

    assert [test for test in sorted(named) if test.partition("::")[2] not in known[test.partition("::")[0]]] == []


def test_the_list_is_sorted() -> None:
    lines = LIST.read_text().splitlines()

    assert lines == sorted(lines)


def _functions(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {
        node.name for node in ast.walk(parsed(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    }
