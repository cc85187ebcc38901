"""Imports go one way, in the order that docs/architecture.md draws; no module reaches Spark that should not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.source_tree import Module, imports, modules

# Lowest first. Packages of one row may use each other as long as no circle arises, except the peers, which may not.
ROWS: tuple[tuple[str, ...], ...] = (
    ("errors", "failpoints"),
    ("model",),
    ("ports", "events", "settings"),
    ("algebra",),
    ("sql", "codegen"),
    ("catalog", "plan"),
    ("coordinator", "operators", "stores"),
    ("engine",),
    ("client", "load", "check"),
    ("cli", "testing"),
)
PEERS = frozenset({"coordinator", "operators", "stores"})
# What judges views shares no code with what makes them.
JUDGES = frozenset({"query_blocks", "error_tolerant_sql", "oracle_sql", "compare", "report"})
RANK = {package: rank for rank, row in enumerate(ROWS) for package in row}
TOP = frozenset(ROWS[-1])

SPARK = frozenset({"pyspark", "py4j"})
SPARK_ALLOWED = frozenset({"engine"})


def layer_faults(tree: Iterable[Module]) -> Iterator[str]:
    """Every import that breaks the order, as `module:line what is wrong`."""
    tree = list(tree)
    known = frozenset(module.name for module in tree)
    for module in tree:
        home = _package(module.name)
        if home is None:
            continue  # viewkeeper/__init__.py is the public face, above all layers
        if home not in RANK:
            yield f"{module.name}: package {home!r} has no place in the order"
            continue
        for found in imports(module, known):
            fault = _fault(home, found.target) or _judge_fault(module.name, found.target)
            if fault:
                yield f"{module.name}:{found.line} {fault}"


def _fault(home: str, target: str) -> str | None:
    root = target.split(".")[0]
    if root in SPARK and home not in SPARK_ALLOWED:
        return f"imports {root}; only {' and '.join(sorted(SPARK_ALLOWED))} may"
    if root != "viewkeeper":
        return None
    package = _package(target)
    if package is None:
        return None if home in TOP else "imports the public face of the package it belongs to"
    if package not in RANK:
        return f"imports {target}, which has no place in the order"
    if RANK[package] > RANK[home]:
        return f"imports {target}, which lies above {home}"
    if package != home and {package, home} <= PEERS:
        return f"imports {target}, but {home} and {package} are peers"
    return None


def _judge_fault(name: str, target: str) -> str | None:
    home, package = name.split("."), _package(target)
    if home[1:2] != ["check"]:
        return None
    if package == "operators" or (home[-1] in JUDGES and package in ("engine", "client")):
        return f"imports {target}, which the judge of views may not use"
    return None


def _package(name: str) -> str | None:
    parts = name.split(".")
    if len(parts) == 1:
        return None
    return "cli" if parts[1] == "__main__" else parts[1]


def circles(tree: Iterable[Module]) -> list[str]:
    """The modules of one import circle, or nothing; imports for type checkers and inside functions count too."""
    tree = list(tree)
    known = frozenset(module.name for module in tree)
    graph = {
        module.name: {
            found.target
            for found in imports(module, known)
            if found.target in known and found.target not in (module.name, "viewkeeper")
        }
        for module in tree
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_go_one_way() -> None:
    assert list(layer_faults(modules())) == []


def adapter_faults(tree: Iterable[Module]) -> list[str]:
    """Adapters of stores that import one another; what two of them need stands beside them. Kernels are below one of them."""
    tree = list(tree)
    known = frozenset(module.name for module in tree)
    return [
        f"{module.name}:{found.line} imports {found.target}"
        for module in tree
        if (home := _adapter(module.name))
        for found in imports(module, known)
        if _adapter(found.target) not in (None, home, BELOW.get(home))
    ]


def test_no_store_adapter_is_named_outside_the_stores() -> None:
    assert named_adapters(modules()) == []
    wrong = Module("viewkeeper.client.views", "def f():\n    from viewkeeper.stores.version_chains import version_at")
    assert len(named_adapters([wrong, Module("viewkeeper.stores.version_chains", "")])) == 1


def named_adapters(tree: Iterable[Module]) -> list[str]:
    """Imports from outside `stores`, for types too, of anything in it but the way to open one by its URL."""
    tree = list(tree)
    known = frozenset(module.name for module in tree)
    return [
        f"{module.name}:{found.line} imports {found.target}"
        for module in tree
        if _package(module.name) != "stores"
        for found in imports(module, known)
        if _package(found.target) == "stores" and found.target != "viewkeeper.stores.open"
    ]


BELOW = {"local": "kv"}


def _adapter(name: str) -> str | None:
    parts = name.split(".")
    return parts[2] if parts[:2] == ["viewkeeper", "stores"] and len(parts) > 3 else None


def test_no_store_adapter_imports_another() -> None:
    assert adapter_faults(modules()) == []
    wrong = Module("viewkeeper.stores.kv.kernel", "from viewkeeper.stores.local.node import Node")
    assert len(adapter_faults([wrong, Module("viewkeeper.stores.local.node", "")])) == 1


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(modules()) == []


def test_the_public_face_names_the_same_order() -> None:
    face = next(module for module in modules() if module.name == "viewkeeper")
    drawn = [line.strip() for line in face.source.splitlines() if " < " in line]

    assert " ".join(drawn) == (
        "errors, model < ports, events, settings < algebra < sql, codegen < catalog, plan "
        "< coordinator | operators | stores < engine < client, load, check < cli, testing"
    )


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("viewkeeper.model.rowcodec", "from viewkeeper.sql.parse import parse"),
        ("viewkeeper.model.rowcodec", "def f():\n    import viewkeeper.engine.run"),
        ("viewkeeper.model.rowcodec", "from ..engine import run"),
        ("viewkeeper.model.rowcodec", "import importlib\nimportlib.import_module('viewkeeper.client.database')"),
        (
            "viewkeeper.model.rowcodec",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from viewkeeper import sql",
        ),
        ("viewkeeper.errors", "from viewkeeper.model.rowcodec import Row"),
        ("viewkeeper.plan.node", "import viewkeeper"),
        ("viewkeeper.operators.count", "from viewkeeper.stores.lmdb import open_store"),
        ("viewkeeper.coordinator.view_managers", "from viewkeeper.stores import open"),
        ("viewkeeper.check.verify", "from viewkeeper.operators.count import step"),
        ("viewkeeper.check.compare", "from viewkeeper.engine.spark_session import start"),
        ("viewkeeper.operators.count", "def f():\n    from pyspark.sql import functions"),
        ("viewkeeper.client.database", "import pyspark"),
        ("viewkeeper.shiny.new", "import os"),
        ("viewkeeper.cli.main", "from viewkeeper.shiny.new import thing"),
    ],
)
def test_a_wrong_import_is_found(name: str, source: str) -> None:
    neighbours = [Module("viewkeeper.sql", "", is_package=True), Module("viewkeeper.engine", "", is_package=True)]

    assert len(list(layer_faults([Module(name, source), *neighbours]))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("viewkeeper.model.rowcodec", "from viewkeeper.errors import BadRow\nfrom viewkeeper.failpoints import reach"),
        ("viewkeeper.model.rowcodec", "from . import types\nfrom .types import Type"),
        ("viewkeeper.ports.store", "from viewkeeper.settings import Settings"),
        ("viewkeeper.engine.epoch_query", "from pyspark.sql.datasource import DataSource"),
        ("viewkeeper.engine.job", "from pyspark.sql import SparkSession\nfrom viewkeeper.operators.count import step"),
        ("viewkeeper.cli.main", "import viewkeeper\nfrom viewkeeper.client.database import connect"),
        ("viewkeeper", "from viewkeeper.cli.main import main"),
    ],
)
def test_a_right_import_is_left_alone(name: str, source: str) -> None:
    assert list(layer_faults([Module(name, source)])) == []


def test_a_circle_is_found() -> None:
    first = Module("viewkeeper.plan.first", "from viewkeeper.plan.second import b")
    second = Module("viewkeeper.plan.second", "def f():\n    from viewkeeper.plan import first")

    assert set(circles([first, second])) == {"viewkeeper.plan.first", "viewkeeper.plan.second"}
    assert circles([first, Module("viewkeeper.plan.second", "")]) == []


@pytest.mark.parametrize("package", ["plan", "operators"])
def test_no_sql_is_parsed_back(package: str) -> None:
    """What the planner knew of an expression stands beside its SQL."""
    known = frozenset(module.name for module in modules())
    mine = [module for module in modules() if module.name.startswith(f"viewkeeper.{package}.")]

    assert mine and not [module.name for module in mine if any(one.target == "re" for one in imports(module, known))]
