"""The project's Markdown pages as data for the style tests.

In: the text of a page. Out: its links, headings, and the tests and files it names. Always: what stands in a code block is no
link and no heading.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.support.source_tree import ROOT, text_files

_FENCE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")
_FILE = re.compile(r"(?<![\w/.*-])((?:[\w.-]+/)*[\w-]+\.(?:py|sh|thrift))\b")
_TEST = re.compile(r"(tests/[\w/.-]+\.py)(?:::((?:\w+::)?\w+))?")


def pages() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


def prose(page: str) -> str:
    return _FENCE.sub("", page)


def headings(page: str) -> list[str]:
    return [match.strip() for match in re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)]


def anchors(page: str) -> set[str]:
    """The fragment that each heading gets on the usual hosts: lower case, no punctuation, dashes for spaces."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


def dead_links(path: Path, page: str) -> list[str]:
    """Relative links whose file or heading does not exist."""
    return [link for link in _LINK.findall(prose(page)) if not _leads_somewhere(path, page, link)]


def named_tests(page: str) -> list[tuple[str, str]]:
    """Every `tests/….py::test_name` of a page, as (file, name); the name is empty where only a file is named."""
    return _TEST.findall(page)


def missing_tests(page: str) -> list[str]:
    return [f"{path}::{name}" for path, name in named_tests(page) if not _test_exists(path, name)]


def missing_files(page: str) -> list[str]:
    """The files of code that a page names and that do not exist: by a path from the root or in the package, or by name."""
    known = _file_names()
    return [name for name in _FILE.findall(page) if name not in known]


@cache
def _file_names() -> frozenset[str]:
    paths = [path.relative_to(ROOT).as_posix() for path in text_files()]
    inside = [path.removeprefix("src/viewkeeper/") for path in paths]
    return frozenset((*paths, *inside, *(path.rpartition("/")[2] for path in paths)))


def _leads_somewhere(path: Path, page: str, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    file, _, fragment = link.partition("#")
    target = (path.parent / file) if file else path
    if not target.exists():
        return False
    return not fragment or fragment in anchors(target.read_text(encoding="utf-8") if file else page)


def _test_exists(path: str, name: str) -> bool:
    if not (ROOT / path).is_file():
        return False
    return not name or name.split("::")[-1] in _functions_of(path)


@cache
def _functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    named = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, named))
