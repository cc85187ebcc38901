"""Docs do not lie: links lead somewhere, named tests exist, decisions are complete, nothing is left to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.pages import (
    dead_links,
    documentation_in,
    documents,
    headings,
    missing_files,
    missing_imports,
    missing_members,
    missing_names,
    missing_paths,
    missing_targets,
    missing_tests,
    missing_things,
    named_tests,
    pages,
)
from tests.support.source_tree import PACKAGE, ROOT, text_files
from viewkeeper.ports.store import Store

DECISIONS = ROOT / "docs" / "decisions"
GUARANTEES = ROOT / "docs" / "guarantees.md"
DECISION_PARTS = ("Status", "Context", "Decision")
STATES = ("Accepted", "Proposed", "Superseded by")
RECORDS = sorted(DECISIONS.glob("[0-9]*.md"))

# Built from parts, so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join(["/" + "work/", "/" + "root/", r"/" + r"home/\w+/", "/" + "Users/", "/tmp" + "/w/"])
)
LEFTOVERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")


def decision_faults(name: str, page: str) -> list[str]:
    state = page.partition("## Status")[2].strip()
    parts = DECISION_PARTS[:1] if state.startswith("Superseded by") else DECISION_PARTS
    faults = [part for part in parts if part not in headings(page)]
    number = re.match(r"(\d{4})-[a-z0-9-]+\.md$", name)
    if not number or not page.startswith(f"# {number[1]}: "):
        faults.append("number")
    return faults if state.startswith(STATES) else [*faults, "state"]


def index_faults(index: str, records: Mapping[str, str]) -> list[str]:
    """Records by file name that the index does not list exactly once, or with another status than they have."""
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| .+ \| (in force|part of \d{4})\b[^|]*\|$", index, flags=re.M)
    listed = [(file, status) for number, file, status in rows if file.startswith(f"{number}-")]
    actual = [(name, _status_of(page)) for name, page in records.items()]
    return sorted({name for name, _ in (Counter(listed) - Counter(actual)) + (Counter(actual) - Counter(listed))})


def _status_of(page: str) -> str:
    superseded = re.search(r"^## Status\n\nSuperseded by \[(\d{4})\]", page, flags=re.M)
    return f"part of {superseded[1]}" if superseded else "in force"


def lines_with(pattern: re.Pattern[str], text: str) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _faulty_files(pattern: re.Pattern[str]) -> dict[str, list[int]]:
    texts = {_relative(path): path.read_text(encoding="utf-8", errors="ignore") for path in text_files()}
    found = {path: lines_with(pattern, text) for path, text in texts.items()}
    return {path: lines for path, lines in found.items() if lines}


def test_every_cited_rule_of_the_protocol_is_on_its_page() -> None:
    page = (ROOT / "docs" / "epochs.md").read_text(encoding="utf-8")
    stated = set(re.findall(r"^\*\*([RV]\d+[a-z]?)\.", page, flags=re.MULTILINE))
    cited = {
        rule
        for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "tests" / "sim").rglob("*.py"))
        for rule in re.findall(r"\(`?(?:docs/epochs\.md`?, )?([RV]\d+[a-z]?)\)", path.read_text(encoding="utf-8"))
    }
    assert cited
    assert cited <= stated


def test_there_are_pages_to_judge() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/api.md"} <= {
        _relative(page) for page in pages()
    }


@pytest.mark.parametrize("page", pages(), ids=_relative)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, page.read_text(encoding="utf-8")) == []


def test_what_pages_docstrings_and_comments_name_exists() -> None:
    missing = {_relative(path): missing_things(path, documentation_in(path)) for path in documents()}

    dead = [f"{path}: {', '.join(names)}" for path, names in missing.items() if names]
    assert dead == [], "\n".join(["name what is there now", *dead])


def test_what_scripts_in_texts_import_exists() -> None:
    missing = {_relative(path): missing_imports(path.read_text(encoding="utf-8")) for path in documents()}

    assert {path: names for path, names in missing.items() if names} == {}


def test_the_glossary_defines_at_most_45_words_each_once() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [word for line in page.splitlines() for word in re.findall(r"^\| \*\*(.+?)\*\* \|", line)]

    assert 30 < len(words) <= 45
    assert sorted({word for word in words if words.count(word) > 1}) == []


def test_the_architecture_counts_and_names_the_ports_of_a_store() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    count, listed = re.findall(r"^(\w+) ports lead to a store(.+?)`Store` is all of them", page, re.M | re.S)[0]
    ports = {port.__name__ for port in Store.__bases__} - {"Protocol"}

    assert set(re.findall(r"`([A-Z]\w+)`", listed)) == ports
    assert count == {6: "Six", 7: "Seven", 8: "Eight"}[len(ports)]


def test_every_row_of_the_guarantees_names_a_test() -> None:
    rows = [line for line in GUARANTEES.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    promises = [row for row in rows[1:] if not set(row) <= set("|-: ")]

    assert promises
    assert [row for row in promises if not any(name for _, name in named_tests(row))] == []


@pytest.mark.parametrize("record", RECORDS, ids=_relative)
def test_a_decision_record_is_complete(record: Path) -> None:
    assert decision_faults(record.name, record.read_text(encoding="utf-8")) == []


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(record.name[:4]) for record in RECORDS]

    assert numbers == list(range(1, len(numbers) + 1))


def test_the_index_lists_each_decision_once_with_its_status() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")

    assert index_faults(index, {record.name: record.read_text(encoding="utf-8") for record in RECORDS}) == []


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert _faulty_files(MACHINE_PATHS) == {}


def test_nothing_is_left_to_do() -> None:
    assert _faulty_files(LEFTOVERS) == {}


def test_a_dead_link_is_found() -> None:
    page = "# Title\n\n[a](LICENSE) [b](#title) [c](https://example.org)\n```\n[not a link](nowhere.md)\n```\n"

    assert dead_links(ROOT / "README.md", page) == []
    assert dead_links(ROOT / "README.md", page + "[d](nowhere.md) [e](#nothing) [f](docs/glossary.md#no)") == [
        "nowhere.md",
        "#nothing",
        "docs/glossary.md#no",
    ]


def test_a_missing_test_is_found() -> None:
    here = "tests/style/test_docs.py"

    assert missing_tests(f"{here}::test_a_missing_test_is_found and {here}") == []
    assert missing_tests(f"{here}::test_of_nothing") == [f"{here}::test_of_nothing"]
    assert missing_tests("tests/style/" + "test_nowhere.py") == ["tests/style/" + "test_nowhere.py::"]


def test_a_missing_file_is_found() -> None:
    named = (
        "`tests/style/test_docs.py`, `model/keys.py`, keys.py, https://example.org/no.py and src/viewkeeper/errors.py"
    )

    assert missing_files(named) == []
    assert missing_files("`client/" + "nowhere.py`, (`nowhere" + ".py`)") == [
        "client/" + "nowhere.py",
        "nowhere" + ".py",
    ]


def test_a_missing_path_is_found() -> None:
    module = next(path for path in PACKAGE.glob("*/*.py") if path.name != "__init__.py").relative_to(PACKAGE)
    whole = f"`{module.with_suffix('')}`, src/viewkeeper, tests/style/test_docs.py::test_x, docs/*.md, https://x.org/docs/no"

    assert missing_paths(whole) == []
    nowhere = f"{module.parent}/nowhere"
    assert missing_paths(f"`{nowhere}` and (tests/nowhere/).") == [nowhere, "tests/nowhere"]


def test_a_missing_name_is_found() -> None:
    whole = (
        "viewkeeper.errors, viewkeeper.connect(), viewkeeper.settings.VERSION and viewkeeper.errors.ViewKeeperError."
    )

    assert missing_names(whole) == []
    assert missing_names(
        "viewkeeper.nowhere.Name, viewkeeper.errors.NoSuchError and viewkeeper.errors.ViewKeeperError.no"
    ) == [
        "viewkeeper.nowhere.Name",
        "viewkeeper.errors.NoSuchError",
        "viewkeeper.errors.ViewKeeperError.no",
    ]


def test_a_missing_import_is_found() -> None:
    # built from parts, so that the test above does not find them
    lines = [
        "from viewkeeper" + line for line in (".errors import NoSuchError, ViewKeeperError as Error", " import connect")
    ]

    assert missing_imports("\n".join(lines)) == ["viewkeeper.errors.NoSuchError"]


def test_a_missing_member_is_found() -> None:
    assert missing_members("`Database.execute(sql)`, `Unknown.member`, `EngineSettings.spark_*`") == []
    assert missing_members("`Database.no_such_method`") == ["Database.no_such_method"]


def test_a_missing_target_of_make_is_found() -> None:
    assert missing_targets("`make test`, `VIEWKEEPER_SEED=1 make test-deep ARGS=x`; make haste") == []
    assert missing_targets("`make haste`") == ["make haste"]


def test_a_python_file_tells_in_docstrings_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('"""One."""\nx = "two"  # three\ndef f():\n    "four"\n    # five\n', encoding="utf-8")

    assert documentation_in(path).split() == ["One.", "four", "three", "five"]


def test_an_incomplete_decision_is_found() -> None:
    whole = "# 0007: Title\n\n## Status\n\nAccepted\n\n## Context\n\n## Decision\n"

    assert decision_faults("0007-title.md", whole) == []
    assert decision_faults("0008-title.md", whole) == ["number"]
    assert decision_faults("0007-title.md", whole.replace("Accepted", "Perhaps")) == ["state"]
    assert decision_faults("0007-title.md", whole.replace("## Context", "")) == ["Context"]
    assert decision_faults("0007-title.md", "# 0007: Title\n\n## Status\n\nSuperseded by [0008](0008-b.md)") == []


def test_a_fault_of_the_index_is_found() -> None:
    records = {"0001-a.md": "## Status\n\nAccepted", "0002-b.md": "## Status\n\nSuperseded by [0001](0001-a.md)"}
    first, second = "| [0001](0001-a.md) | A | in force |\n", "| [0002](0002-b.md) | B | part of 0001 |\n"

    assert index_faults(first + second, records) == []
    assert index_faults(first, records) == ["0002-b.md"]
    assert index_faults(first + first + second, records) == ["0001-a.md"]
    assert index_faults(first + second.replace("part of 0001", "in force"), records) == ["0002-b.md"]


def test_machine_paths_and_leftovers_are_found() -> None:
    assert lines_with(MACHINE_PATHS, "a\nsee " + "/root" + "/x") == [2]
    assert lines_with(MACHINE_PATHS, "cd " + "/work" + "/y") == [1]
    assert lines_with(LEFTOVERS, "# TO" + "DO: later\nTODOS") == [1]
