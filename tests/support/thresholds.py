"""Thresholds: the numbers of the source that choose a way, and which tests take both ways.

In: the source, as trees. Out: the thresholds by name; and, while a run is probed, for each test which thresholds it was
below and above. Always: found in the source, not listed by hand: a constant, or a setting, that an ordering compares with, a
`range` steps by, `min` and `max` bound by, or a slice ends at.

`VIEWKEEPER_THRESHOLDS=folder make test ARGS="-p tests.support.thresholds"` probes a run, and `python -m
tests.support.thresholds folder` writes the list from what it told.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from tests.support.source_tree import parsed

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "viewkeeper"
LIST = ROOT / "tests" / "golden" / "thresholds.txt"
FOLDER = "VIEWKEEPER_THRESHOLDS"
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
_SETTINGS = re.compile(r"\b(settings|limits|work|_settings|_limits)\.(\w+)$")
_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_PROBE = "__viewkeeper_probe__"

Outcomes = dict[str, set[bool]]  # by threshold: whether the number was above it, or the bound held


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def constants() -> dict[str, set[str]]:
    """The modules that define each numeric constant, by its name; settings are `settings.FIELD`."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SOURCE.rglob("*.py")):
        for name, value in _assignments(parsed(path.read_text(encoding="utf-8"))):
            if _CONSTANT.fullmatch(name) and _is_number(value):
                found[name].add(module_of(path))
    for node in ast.parse((SOURCE / "settings.py").read_text()).body:
        for field in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None:
                if _is_number(field.value):
                    found[f"settings.{field.target.id}"].add("viewkeeper.settings")
    return found


@cache
def thresholds() -> list[str]:
    """Every threshold as `module:NAME`, of the module that uses it."""
    known = constants()
    found = set[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        probed = _Prober(module_of(path), known)
        probed.visit(ast.parse(path.read_text()))
        found |= probed.found
    return sorted(found)


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                yield from (
                    (one.id, value) for one, value in zip(names, values, strict=True) if isinstance(one, ast.Name)
                )
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _is_number(value: ast.expr) -> bool:
    """Whether an expression is made of numbers alone."""
    allowed = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant)
    nodes = list(ast.walk(value))
    numbers = all(type(one.value) in (int, float) for one in nodes if isinstance(one, ast.Constant))
    return numbers and all(isinstance(one, allowed) for one in nodes)


class _Prober(ast.NodeTransformer):
    """Finds the uses of thresholds in a module, and has each of them tell what came of it."""

    def __init__(self, module: str, known: dict[str, set[str]]) -> None:
        self._module, self._known = module, known
        self.found: set[str] = set()

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        compared = [node.left, *node.comparators]
        is_of_sets = any(
            isinstance(one, ast.Set) for one in compared
        )  # `{A} <= names` asks what is in it, not how much
        if all(isinstance(operator, _ORDERINGS) for operator in node.ops) and not is_of_sets:
            return self._told("compared", node, compared)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[_, _, step]):
                return self._told("stepped", node, [step])
            case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_], keywords=[]) if not any(
                isinstance(one, ast.Starred) for one in node.args
            ):
                bounds = [one for one in node.args if self._names(one) and not isinstance(one, ast.Call)]
                if len(bounds) == 1:
                    return self._told("bounded", node, bounds, bounds[0])
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(slice=ast.Slice(lower=None, upper=ast.Name() as upper, step=None), ctx=ast.Load()):
                return self._told("cut", node, [upper], node.value, upper)
        return node

    def _told(self, how: str, node: ast.expr, parts: Sequence[ast.expr], *more: ast.expr) -> ast.expr:
        names = sorted({name for part in parts for name in self._names(part)})
        if not names:
            return node
        self.found.update(names)
        arguments = [ast.Constant(how), ast.Constant(",".join(names)), node, *more]
        return ast.copy_location(ast.Call(ast.Name(_PROBE, ast.Load()), arguments, []), node)

    def _names(self, node: ast.expr) -> Iterator[str]:
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in self._known:
                yield f"{self._home(one.id)}:{one.id}"
            elif isinstance(one, ast.Attribute) and (setting := _SETTINGS.search(ast.unparse(one))):
                if f"settings.{setting[2]}" in self._known:
                    yield f"viewkeeper.settings:{setting[2]}"

    def _home(self, name: str) -> str:
        homes = self._known[name]
        return self._module if self._module in homes else min(homes)


class _Loader(importlib.abc.SourceLoader, importlib.machinery.SourceFileLoader):
    """Loads a module of the product with its thresholds probed."""

    known: dict[str, set[str]] = {}

    def source_to_code(self, data: bytes, path: str, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        tree = ast.fix_missing_locations(_Prober(self.name, self.known).visit(ast.parse(data)))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)  # never from a cache

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[_PROBE] = PROBE.tell
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "viewkeeper":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class Probe:
    """What one process saw, test by test."""

    def __init__(self) -> None:
        self.test = ""
        self.seen: dict[str, Outcomes] = defaultdict(lambda: defaultdict(set))

    def tell(self, how: str, names: str, result: object, *more: object) -> object:
        """Note on which side of the thresholds a use was; returns its result."""
        outcomes = self.seen[self.test]
        for name in names.split(","):
            outcomes[name] |= _sides(how, result, *more)
        return result

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        told = {test: {name: sorted(sides) for name, sides in found.items()} for test, found in self.seen.items()}
        (folder / f"{os.getpid()}.json").write_text(json.dumps(told))


PROBE = Probe()


def _sides(how: str, result: object, *more: object) -> set[bool]:
    match how:
        case "compared":
            if hasattr(result, "any") and hasattr(result, "all"):
                return {bool(side) for side in (result.any(), result.all())}
            return {bool(result)}
        case "stepped":
            return {len(result) > 1}  # type: ignore[arg-type]
        case "bounded":
            return {bool(result == more[0])}
    value, upper = more
    return {len(value) > upper}  # type: ignore[arg-type, operator]


def pytest_load_initial_conftests() -> None:
    """Probe every module of the product; none is imported yet."""
    _Loader.known = constants()
    sys.meta_path.insert(0, _Finder())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    PROBE.test = item.nodeid.partition("[")[0]
    try:
        return (yield)
    finally:
        PROBE.test = ""


def pytest_sessionfinish() -> None:
    PROBE.write(Path(os.environ[FOLDER]))


def crossed(folder: Path) -> dict[str, str]:
    """For each threshold that was crossed the test that took both ways, or else a test for each way."""
    sides: dict[str, dict[bool, str]] = defaultdict(dict)
    both: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        for test, found in json.loads(path.read_text()).items():
            for name, outcomes in found.items() if test else ():
                if len(outcomes) == 2:
                    both[name] = min(both.get(name, test), test)
                for side in outcomes:
                    sides[name][side] = min(sides[name].get(side, test), test)
    return {name: " + ".join(tests.values()) for name, tests in sides.items() if len(tests) == 2} | both


def main(arguments: Sequence[str]) -> int:
    """Write the list from a probed run; what was listed by hand stays. Prints the thresholds that no test crossed."""
    known, told = read_list(), crossed(Path(arguments[0]))
    tests = {name: told.get(name, known.get(name)) for name in thresholds()}
    LIST.write_text("".join(f"{name} = {test}\n" for name, test in tests.items() if test))
    missing = [name for name, test in tests.items() if not test]
    print(f"{len(tests) - len(missing)} of {len(tests)} thresholds are crossed; not: {' '.join(missing) or 'none'}")
    return 1 if missing else 0


def read_list() -> dict[str, str]:
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    return dict(line.split(" = ", 1) for line in lines if line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
