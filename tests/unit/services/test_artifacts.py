"""Jars are in the cache whole or not at all, and a machine that cannot fetch them says why in one line."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.services import artifacts
from tests.support.services.failure import ServicesFailed
from tests.support.services.waiting import say_nothing

# A stand-in for mvn: what the registry does is not ours to test, what we make of its end is.
MAVEN = """#!/bin/sh
for argument; do case "$argument" in -DoutputDirectory=*) lib="${argument#*=}" ;; esac; done
mkdir -p "$lib" && cp "$JAR" "$lib/hbase-thrift-2.6.1.jar"
echo "[INFO] fetching"
echo "[ERROR] $SAYS"
exit "$CODE"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    maven = tmp_path / "bin" / "mvn"
    maven.write_text(MAVEN)
    maven.chmod(0o700)
    with zipfile.ZipFile(tmp_path / "thrift.jar", "w") as jar:
        jar.writestr(artifacts.DEFINITION, "service THBaseService {}")
    values = {"XDG_CACHE_HOME": tmp_path / "cache", "JAR": tmp_path / "thrift.jar", "CODE": 0, "SAYS": "nothing"}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", f"{maven.parent}:/usr/bin:/bin")
    return tmp_path / "cache"


def test_what_was_fetched_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = artifacts.fetch_hbase(say_nothing)
    monkeypatch.setenv("CODE", "1")
    assert artifacts.fetch_hbase(say_nothing) == folder
    assert folder.is_relative_to(cache)
    assert (folder / "hbase.thrift").read_text() == "service THBaseService {}"
    assert list(folder.parent.iterdir()) == [folder]


def test_a_failed_fetch_leaves_nothing_and_says_why(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODE", "1")
    monkeypatch.setenv("SAYS", "no such artifact")
    with pytest.raises(ServicesFailed, match="no such artifact"):
        artifacts.fetch_hbase(say_nothing)
    assert list(artifacts.cache_folder().iterdir()) == []


def test_a_machine_without_maven_is_told_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "ENSURE_MAVEN", "/bin/false")
    with pytest.raises(ServicesFailed, match="Maven was not found: install it"):
        artifacts.fetch_hbase(say_nothing)


def test_the_project_names_every_artifact_and_what_it_leaves_out() -> None:
    project = ElementTree.fromstring(artifacts.project_text(artifacts.HBASE))
    asked = [
        ":".join(part.findtext(name) or "" for name in ("groupId", "artifactId", "version"))
        for part in project.iter("dependency")
    ]
    assert asked == [artifact.coordinates for artifact in artifacts.HBASE]
    assert len(list(project.iter("exclusion"))) == sum(len(artifact.without) for artifact in artifacts.HBASE)
