"""requirements.lock pins, once and exactly, what pyproject.toml asks for, in versions that fit its ranges."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.source_tree import ROOT

PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)")
INSTALLED = ("spark", "pandas", "hbase", "dev")  # what `make setup` installs; benchmarks are run by hand


def pins(lock: str) -> dict[str, str]:
    lines = [line for line in lock.splitlines() if line and not line.startswith(("#", "    --hash="))]
    found = [PIN.fullmatch(line.removesuffix(" \\")) for line in lines]
    assert all(found), f"not a pin: {[line for line, pin in zip(lines, found, strict=True) if not pin]}"
    named = [(canonicalize_name(pin[1]), pin[2]) for pin in found if pin]
    assert len(dict(named)) == len(named), "a package is pinned twice"
    return dict(named)


def unfit(asked: list[str], pinned: dict[str, str]) -> list[str]:
    """The requirements that no pin fits."""
    wanted = [Requirement(text) for text in asked]
    return [
        str(one)
        for one in wanted
        if not (version := pinned.get(canonicalize_name(one.name))) or not one.specifier.contains(version)
    ]


def test_the_lock_pins_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for name in INSTALLED for text in project["optional-dependencies"][name]]
    assert unfit([*project["dependencies"], *extras], pins((ROOT / "requirements.lock").read_text())) == []


def test_every_pin_has_the_hashes_of_its_files_and_names_no_place() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"\n(?=[A-Za-z])", re.sub(r"(?m)^#.*\n", "", lock).strip())
    assert len(entries) == len(pins(lock))
    hashed = re.compile(rf"{PIN.pattern}( \\\n    --hash=sha256:[0-9a-f]{{64}})+")
    assert [entry for entry in entries if not hashed.fullmatch(entry)] == []
    assert "://" not in lock


def test_a_pin_that_is_missing_or_out_of_range_would_be_found() -> None:
    assert unfit(["a>=2", "b", "C_d<3"], {"a": "1.9", "c-d": "2.0"}) == ["a>=2", "b"]


def test_an_audit_tool_is_no_dependency() -> None:
    assert "pip-audit" not in (ROOT / "pyproject.toml").read_text()
