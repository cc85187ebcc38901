"""`viewkeeper.__all__` is the public face: documented, importable, and cheap to import."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib

import pytest

import viewkeeper
import viewkeeper.errors
from tests.support.source_tree import ROOT
from viewkeeper.settings import VERSION

HEAVY = ("pyspark", "py4j", "sqlglot", "duckdb", "pyarrow", "pandas", "numpy", "lmdb")


def documented_names(page: str) -> list[str]:
    """Names in the first column of the tables under `## Public names`."""
    section = page.split("## Public names", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)


def modules_loaded_by(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter loads for a statement."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT / "src",
    )
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in run.stderr.splitlines() if line.count("|") == 2}


def test_the_documented_names_are_the_public_names() -> None:
    documented = documented_names((ROOT / "docs" / "api.md").read_text(encoding="utf-8"))

    assert sorted(documented) == sorted(viewkeeper.__all__)
    assert len(set(documented)) == len(documented)


@pytest.mark.parametrize("name", viewkeeper.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(viewkeeper, name).__name__ == name


def test_every_error_is_public_and_has_the_one_root() -> None:
    errors = dict(inspect.getmembers(viewkeeper.errors, inspect.isclass))

    assert set(errors) <= set(viewkeeper.__all__)
    assert all(issubclass(error, viewkeeper.errors.ViewKeeperError) for error in errors.values())


def test_the_error_tree_in_the_docstring_names_every_error() -> None:
    errors = {name for name, _ in inspect.getmembers(viewkeeper.errors, inspect.isclass)}
    drawn = set(re.findall(r"^ {4}[│├└─ ]*([A-Z]\w+)(?: {2,}.*)?$", viewkeeper.errors.__doc__ or "", re.MULTILINE))

    assert drawn == errors


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        viewkeeper.nothing


def test_the_version_is_the_packages_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert viewkeeper.__version__ == VERSION == project["version"]


def test_importing_viewkeeper_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("import viewkeeper; viewkeeper.ViewKeeperError; viewkeeper.__version__")

    assert "viewkeeper" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_a_heavy_import_would_be_seen() -> None:
    assert "pyarrow" in modules_loaded_by("import viewkeeper, pyarrow")
