"""Data is never code: no module evaluates, unpickles or opens a socket, and DuckDB is opened where it is confined."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tests.support.source_tree import Module, imports, modules, nodes_of

FORBIDDEN_MODULES = frozenset(
    "pickle cPickle marshal shelve dill cloudpickle jsonpickle joblib yaml code socket http".split()
)
FORBIDDEN_CALLS = frozenset("eval exec compile __import__ system popen".split())
OPENS_DUCKDB = {
    "viewkeeper.codegen.confined",
    "viewkeeper.load.loading",  # confined when it knows its files
    "viewkeeper.check.compare",  # the same
}


def faults(tree: Iterable[Module]) -> list[str]:
    found = []
    for module in tree:
        for one in imports(module):
            if one.target.split(".")[0] in FORBIDDEN_MODULES:
                found.append(f"{module.name}:{one.line} imports {one.target}")
        for node in nodes_of(module.source):
            if isinstance(node, ast.Call):
                found += [f"{module.name}:{node.lineno} {fault}" for fault in _faults_of(node, module.name)]
    return found


def _faults_of(call: ast.Call, module: str) -> list[str]:
    match call.func:
        case ast.Name(id=name) if name in FORBIDDEN_CALLS:
            return [f"calls {name}"]
        case ast.Attribute(value=ast.Name(id="os" | "builtins"), attr=name) if name in FORBIDDEN_CALLS:
            return [f"calls {name}"]
        case ast.Attribute(value=ast.Name(id="duckdb"), attr="connect") if module not in OPENS_DUCKDB:
            return ["opens DuckDB and does not confine it"]
    return []


def test_no_module_runs_data_as_code_or_opens_duckdb_by_itself() -> None:
    assert faults(modules()) == []


def test_each_of_these_would_be_found() -> None:
    wrong = """
import pickle
from yaml import load
eval("1")
os.system("id")
__import__("os")
duckdb.connect()
"""
    assert len(faults([Module("viewkeeper.client.x", wrong)])) == 6
    assert faults([Module("viewkeeper.client.x", 're.compile("x"); connection.execute("SELECT 1")')]) == []
