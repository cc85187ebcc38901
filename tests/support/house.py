"""The figures of the house: how large its rooms are, and how far one has to walk through them.

In: src. Out: sections of figures by name. Always: a pure function of the source and of what it runs; no module is named here,
so that modules can move.

Lines are counted in steps, rounded up, so that a repaired line is no change of the house; a median ends to count at its aim.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median_low

from tests.support.source_tree import PACKAGE, ROOT, nodes_of, parsed, python_files
from tests.support.words import MODULES, forbidden_words

Figures = dict[str, dict[str, int]]

WHOLE = "src"
MEDIANS = "median lines of a file"
LINES_STEP, WHOLE_STEP, MEDIAN_STEP = 50, 250, 10
MEDIAN_AIM = 150
SMALL_LINES = 4  # a function of fewer lines is small
PORTS, ADAPTERS = "ports", "stores"


def package_of(path: str) -> str:
    """The room of a file, by its path in the package: the folder directly below; each folder of the adapters is one."""
    parts = path.split("/")
    if len(parts) == 1:
        return "(root)"
    return "/".join(parts[:2]) if parts[0] == ADAPTERS and len(parts) > 2 else parts[0]


def lines_of(sources: Mapping[str, str]) -> dict[str, int]:
    lines = Counter[str]()
    for path, source in sources.items():
        lines[package_of(path)] += len(source.splitlines())
    stepped = {package: _up(count, LINES_STEP) for package, count in lines.items()}
    return stepped | {WHOLE: _up(lines.total(), WHOLE_STEP)}


def files_of(sources: Iterable[str]) -> dict[str, int]:
    counted = Counter(package_of(path) for path in sources)
    return dict(counted) | {WHOLE: counted.total()}


def medians(sources: Mapping[str, str]) -> dict[str, int]:
    """Of the files with code of a package, in steps, and of all."""
    lengths = defaultdict(list)
    for path, source in sources.items():
        if Path(path).name != "__init__.py":
            lengths[package_of(path)].append(len(source.splitlines()))
            lengths[WHOLE].append(len(source.splitlines()))
    found = {package: min(median_low(each), MEDIAN_AIM) for package, each in lengths.items()}
    return {package: median - median % MEDIAN_STEP for package, median in found.items()}


def word_counts(sources: Mapping[str, str]) -> dict[str, int]:
    """How often each forbidden word is used, as a name in the code, or as the name of a module or a folder."""
    counted = Counter[str]()
    for source in sources.values():
        for identifier in names_in(source):
            counted.update(forbidden_words(identifier))
    modules = {Path(path).with_suffix("") for path in sources}
    counted.update(place.name for place in modules | {place.parent for place in modules} if place.name in MODULES)
    return dict(counted)


def names_in(source: str) -> Iterator[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return (token.string for token in tokens if token.type == tokenize.NAME)


def namesakes(sources: Iterable[str]) -> dict[str, int]:
    """The basenames that several modules have, with how many have each; adapters may have the name of their port."""
    modules = defaultdict(list)
    for path in sources:
        if not Path(path).name.startswith("__"):
            modules[Path(path).stem].append(path)
    return {name: len(paths) for name, paths in modules.items() if len(paths) > 1 and not _of_one_port(paths)}


def small_functions(source: str) -> list[str]:
    """The private functions of a module that are small, undecorated, and called in one place of it and used in no other."""
    nodes = nodes_of(source)
    used = Counter(name for node in nodes if (name := _used_name(node)))
    called = Counter(name for node in nodes if isinstance(node, ast.Call) and (name := _used_name(node.func)))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    defined = Counter(node.name for node in functions)
    return [
        node.name
        for node in functions
        if node.name.startswith("_")
        and not node.name.endswith("__")
        and not _is_decorated(node)
        and (node.end_lineno or node.lineno) - node.lineno + 1 < SMALL_LINES
        and used[node.name] == called[node.name] == defined[node.name]
    ]


def small_function_counts(sources: Mapping[str, str]) -> dict[str, int]:
    counted = Counter[str]()
    for path, source in sources.items():
        counted[package_of(path)] += len(small_functions(source))
    return {package: count for package, count in counted.items() if count}


def definitions(source: str) -> Iterator[str]:
    """The names that a module defines for others, and those of its classes' methods; Python itself calls `__these__`."""
    for node in parsed(source).body:
        yield from _defined(node)
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _defined(inner)


@cache
def figures() -> Figures:
    """The figures of today."""
    sources = _sources()
    return {
        "files": files_of(sources),
        "forbidden words": word_counts(sources),
        "lines": lines_of(sources),
        MEDIANS: medians(sources),
        "modules of one basename": namesakes(sources),
        "small private functions called once": small_function_counts(sources),
        "touched files": {name: len(files) for name, files in touched_files().items()},
    }


@cache
def touched_files() -> dict[str, list[str]]:
    """The files that each operation touches, counted in a fresh process."""
    command = [sys.executable, "-m", "tests.support.touched_files"]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def _sources() -> dict[str, str]:
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in python_files(PACKAGE)}


def _up(count: int, step: int) -> int:
    return -(-count // step) * step


def _of_one_port(paths: Sequence[str]) -> bool:
    """Whether modules of one basename are a port and its adapters, one in each folder."""
    folders = Counter(package_of(path) for path in paths)
    return folders[PORTS] == 1 and all(
        folder.startswith((PORTS, ADAPTERS)) and count == 1 for folder, count in folders.items()
    )


def _used_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()) | ast.alias(name=name):
            return name
    return ""


def _is_decorated(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {decorator.id if isinstance(decorator, ast.Name) else "" for decorator in node.decorator_list}
    return bool(names - {"staticmethod", "classmethod"})


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            names = [name]
        case ast.Assign(targets=targets):
            names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            names = [name]
        case _:
            names = []
    return (name for name in names if not (name.startswith("__") and name.endswith("__")))
