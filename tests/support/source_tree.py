"""The project's own source as data for the style tests.

In: the repository root. Out: files, parsed modules, and the imports in them. Always: an import counts wherever it
stands, at the top, inside a function, or in a call of import_module with a literal name.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "viewkeeper"
IMPORTERS = {"import_module", "__import__"}
GENERATED = {"__pycache__", "build", "dist", "out"}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module name."""

    target: str
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the package under its dotted name."""

    name: str
    source: str
    is_package: bool = False

    @property
    def tree(self) -> ast.Module:
        """Shared by all who ask for the same source, who therefore change nothing in it."""
        return parsed(self.source)


@cache
def modules() -> list[Module]:
    return [_module(path) for path in python_files(PACKAGE)]


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """All nodes of a module, outer ones first."""
    return tuple(ast.walk(parsed(source)))


def python_files(folder: Path) -> list[Path]:
    return [path for path in text_files(folder) if path.suffix == ".py"]


def text_files(folder: Path = ROOT) -> list[Path]:
    """All files that people write; hidden folders hold environments, caches and running servers, except the CI script's."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_generated(name)]
        found += [
            path for name in names if name != ".git" and (path := Path(parent, name)).is_file()
        ]  # in a work tree a file
    return sorted(found)


def imports(module: Module, known: frozenset[str] = frozenset()) -> list[Import]:
    """What a module imports, in order; `from a import b` is `a.b` where that is a known module, else `a`."""
    return [Import(target, node.lineno) for node in nodes_of(module.source) for target in _targets(node, module, known)]


def _module(path: Path) -> Module:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Module(".".join(parts[:-1] if is_package else parts), path.read_text(encoding="utf-8"), is_package)


def _is_generated(folder: str) -> bool:
    is_hidden = folder.startswith(".") and folder != ".ci"
    return is_hidden or folder in GENERATED or folder.endswith(".egg-info")


def _targets(node: ast.AST, module: Module, known: frozenset[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=name, names=names, level=level):
            start = _absolute(name, level, module)
            for alias in names:
                full = f"{start}.{alias.name}"
                yield full if full in known else start
        case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if _called_name(func) in IMPORTERS:
            yield name


def _called_name(func: ast.expr) -> str:
    match func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _absolute(name: str | None, level: int, module: Module) -> str:
    if not level:
        return name or ""
    parts = module.name.split(".")
    start = parts[: len(parts) - level + (1 if module.is_package else 0)]
    return ".".join([*start, *filter(None, [name])])
