"""Files and functions stay small, modules say what they are, and `__init__.py` holds no logic."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGE, ROOT, nodes_of, parsed, python_files

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
NAMES_REFUSED = {"utils", "util", "common", "helpers", "helper", "base", "misc"}

# (file, what breaks the wall) -> why it may. "lines" stands for the file's length; else the name of the function.
EXCEPTIONS: dict[tuple[str, str], str] = {}

CODE = python_files(PACKAGE) + python_files(ROOT / "benchmarks")
TESTS = python_files(ROOT / "tests")


def file_faults(path: str, source: str) -> Iterator[tuple[str, str]]:
    if len(source.splitlines()) > FILE_LINES_MAX:
        yield path, "lines"


def function_faults(path: str, source: str) -> Iterator[tuple[str, str]]:
    for node in nodes_of(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES_MAX:
                yield path, node.name


def init_faults(source: str) -> list[str]:
    """Statements of an `__init__.py` that are neither docstring, nor import, nor a plain dunder constant."""
    return [ast.unparse(node).splitlines()[0] for node in ast.parse(source).body if not _is_plain(node)]


def lacks_docstring(source: str) -> bool:
    """An empty file needs none: it says nothing that would have to be explained."""
    tree = parsed(source)
    return bool(tree.body) and not ast.get_docstring(tree)


def _is_plain(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            literal = isinstance(value, ast.Constant | ast.List | ast.Tuple)
            return literal and name.startswith("__") and not any(isinstance(part, ast.Call) for part in ast.walk(value))
    return False


def _read(path: Path) -> tuple[str, str]:
    return path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


@cache
def _wall_faults() -> list[tuple[str, str]]:
    files = [fault for path in CODE + TESTS for fault in file_faults(*_read(path))]
    functions = [fault for path in CODE for fault in function_faults(*_read(path))]
    return files + functions


def test_there_is_code_to_judge() -> None:
    assert len(CODE) > 10
    assert len(TESTS) > 4


def test_files_and_functions_stay_behind_the_wall() -> None:
    assert [fault for fault in _wall_faults() if fault not in EXCEPTIONS] == []


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    assert set(EXCEPTIONS) <= set(_wall_faults())
    assert all(len(reason) > 10 for reason in EXCEPTIONS.values())


def test_module_names_say_what_is_inside() -> None:
    refused = [_read(path)[0] for path in CODE + TESTS if {path.stem, path.parent.name} & NAMES_REFUSED]

    assert refused == []


def test_init_files_hold_no_logic() -> None:
    face = PACKAGE / "__init__.py"  # lazy exports are its work
    inits = [_read(path) for path in CODE if path.name == "__init__.py" and path != face]

    assert {path: init_faults(source) for path, source in inits if init_faults(source)} == {}


def test_every_module_says_what_it_is() -> None:
    shared = python_files(ROOT / "tests" / "support")

    assert [_read(path)[0] for path in CODE + shared if lacks_docstring(_read(path)[1])] == []


@pytest.mark.parametrize(("lines", "is_fault"), [(FILE_LINES_MAX, False), (FILE_LINES_MAX + 1, True)])
def test_the_file_wall_stands_where_it_should(lines: int, is_fault: bool) -> None:
    assert bool(list(file_faults("long.py", "x = 1\n" * lines))) is is_fault


@pytest.mark.parametrize(("lines", "is_fault"), [(FUNCTION_LINES_MAX, False), (FUNCTION_LINES_MAX + 1, True)])
def test_the_function_wall_stands_where_it_should(lines: int, is_fault: bool) -> None:
    inner = "class A:\n    async def f(self):\n" + "        x = 1\n" * (lines - 1)

    assert bool(list(function_faults("long.py", inner))) is is_fault


@pytest.mark.parametrize("source", ["def f(): ...", "x = 1", "__all__ = list(f())", "print()", "if x: import y"])
def test_logic_in_an_init_file_is_found(source: str) -> None:
    assert init_faults('"""Doc."""\nimport os\n__all__ = ["os"]\n' + source) != []


def test_a_missing_docstring_is_found() -> None:
    assert lacks_docstring("import os\n")
    assert not lacks_docstring('"""Doc."""\nimport os\n')
    assert not lacks_docstring("")
