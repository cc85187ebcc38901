"""Artifacts: the jars of HBase's servers, from their registry by the ordinary client, once for each machine.

In: coordinates. Out: a folder with the jars and the Thrift 2 definition that lies in one of them. Always: the folder is in
the user's cache, its name is a digest of what was asked for, and it is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.services.failure import ServicesFailed
from tests.support.services.waiting import wait_until
from tests.support.source_tree import ROOT

DEFINITION = "org/apache/hadoop/hbase/thrift2/hbase.thrift"
ENSURE_MAVEN = ROOT / "scripts" / "ensure_maven.sh"
FETCH_SECONDS_MAX = 1800


@dataclass(frozen=True, slots=True)
class Artifact:
    """One dependency, as `group:name:version`, without the named dependencies of its own."""

    coordinates: str
    without: tuple[str, ...] = ()

    def xml(self) -> str:
        excluded = "".join(f"<exclusion>{_names(text)}</exclusion>" for text in self.without)
        group_and_name, _, version = self.coordinates.rpartition(":")
        return (
            f"<dependency>{_names(group_and_name)}<version>{version}</version>"
            f"<exclusions>{excluded}</exclusions></dependency>"
        )


# 2.6.4-hadoop3 is the newest whole set. Its Thrift server is not among it: that of 2.6.1, without dependencies of its own,
# which are Hadoop 2's, serves as well. What is left out is not needed by a server.
HBASE = (
    Artifact(
        "org.apache.hbase:hbase-server:2.6.4-hadoop3",
        (
            "org.apache.hadoop:hadoop-distcp",
            "org.apache.hadoop:hadoop-mapreduce-client-core",
            "io.netty:netty-all",
        ),
    ),
    Artifact("org.apache.hbase:hbase-thrift:2.6.1", ("*:*",)),
    Artifact("org.apache.thrift:libthrift:0.14.1", ("org.apache.tomcat.embed:tomcat-embed-core",)),
    Artifact("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"),
    Artifact("org.apache.logging.log4j:log4j-core:2.25.4"),
    Artifact("org.apache.logging.log4j:log4j-api:2.25.4"),
    Artifact("org.apache.logging.log4j:log4j-1.2-api:2.25.4"),
)


def fetch_hbase(tell: Callable[[str], None]) -> Path:
    """The folder with `lib/*.jar` and `hbase.thrift`; fetched if it is not there yet."""
    pom = project_text(HBASE)
    folder = cache_folder() / f"hbase-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"
    if not folder.exists():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as part:
            _fetch(pom, Path(part), tell)
            try:
                Path(part, "whole").rename(folder)
            except OSError:  # somebody else was faster
                if not folder.exists():
                    raise
    return folder


def cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "viewkeeper" / "services"


def project_text(artifacts: tuple[Artifact, ...]) -> str:
    """A Maven project that depends on the artifacts."""
    dependencies = "\n".join(artifact.xml() for artifact in artifacts)
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>local</groupId><artifactId>servers</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{dependencies}\n</dependencies></project>\n"
    )


def _fetch(pom: str, part: Path, tell: Callable[[str], None]) -> None:
    maven = shutil.which("mvn") if subprocess.run([ENSURE_MAVEN], check=False).returncode == 0 else None
    if maven is None:
        raise ServicesFailed("Maven was not found: install it (Debian, Ubuntu: apt-get install maven)")
    (part / "pom.xml").write_text(pom)
    lib = part / "whole" / "lib"
    command = [maven, "-B", "-q", "-f", str(part / "pom.xml"), "dependency:copy-dependencies"]
    with (part / "log").open("w+") as log:
        wanted = ["-DincludeScope=runtime", f"-DoutputDirectory={lib}"]
        with subprocess.Popen([*command, *wanted], stdin=subprocess.DEVNULL, stdout=log, stderr=log) as run:
            ended = wait_until(
                lambda: run.poll() is not None,
                seconds_max=FETCH_SECONDS_MAX,
                state=lambda: f"fetching HBase with mvn, {len(list(lib.glob('*.jar')))} jars",
                tell=tell,
            )
            if not ended:
                run.kill()
        if run.returncode:
            log.seek(0)
            raise ServicesFailed(f"mvn could not fetch HBase: {_first_error(log.read())}")
    (jar,) = lib.glob("hbase-thrift-*.jar")
    with zipfile.ZipFile(jar) as opened:
        (part / "whole" / "hbase.thrift").write_bytes(opened.read(DEFINITION))


def _names(text: str) -> str:
    group, name = text.split(":")
    return f"<groupId>{group}</groupId><artifactId>{name}</artifactId>"


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "ERROR" in line] or text.splitlines() or ["it said nothing"]
    return lines[0]
