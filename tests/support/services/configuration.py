"""Configuration of a small HBase on loopback: ports, settings, and the command line of each server.

In: a folder, a port, how many servers. Out: files in `conf`, and arguments. Always: nothing listens on another address,
and all servers of a folder use the same file system folder, as HBase's pseudo-distributed mode does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.support.services.failure import ServicesFailed

ADDRESS = "127.0.0.1"
MASTER, ZOOKEEPER = "master", "zookeeper"
PREFIX = "org.apache.hadoop.hbase"
OPENED = "java.io java.nio sun.nio.ch java.lang jdk.internal.ref java.lang.reflect java.util java.util.concurrent"
EXPORTED = (
    "java.base/jdk.internal.misc java.base/sun.net.dns java.base/sun.net.util java.security.jgss/sun.security.krb5"
)

LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p [%t] %c{2}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a cluster's files are, on which ports it listens, and how many servers of each kind it has."""

    folder: Path
    artifacts: Path
    port_base: int
    region_servers: int
    thrift_servers: int

    @property
    def root(self) -> Path:
        """HBase's own folder, with WALs and oldWALs."""
        return self.folder / "data" / "hbase"

    def names(self) -> list[str]:
        """The servers, in the order in which they start."""
        return [
            ZOOKEEPER,
            MASTER,
            *(f"regionserver-{number}" for number in range(1, self.region_servers + 1)),
            *(f"thrift-{number}" for number in range(1, self.thrift_servers + 1)),
        ]

    def port(self, name: str) -> int:
        kind, _, number = name.partition("-")
        offset = {MASTER: 0, ZOOKEEPER: 11, "regionserver": 20, "thrift": 90}[kind]
        return self.port_base + offset + int(number or 0)

    def thrift_ports(self) -> list[int]:
        return [self.port(name) for name in self.names() if name.startswith("thrift-")]


def write_configuration(layout: Layout) -> None:
    folder = layout.folder / "conf"
    folder.mkdir(parents=True, exist_ok=True)
    values = settings(layout)
    lines = [f"<property><name>{name}</name><value>{escape(text)}</value></property>" for name, text in values.items()]
    (folder / "hbase-site.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
    (folder / "log4j2.properties").write_text(LOGGING)


def settings(layout: Layout) -> dict[str, str]:
    """hbase-site.xml."""
    zookeeper = "hbase.zookeeper.property"
    return {
        "hbase.rootdir": f"file://{layout.root}",
        "hbase.tmp.dir": f"{layout.folder}/data/tmp",
        "hbase.cluster.distributed": "true",
        "hbase.unsafe.stream.capability.enforce": "false",  # a local file system stands in for HDFS
        "hbase.zookeeper.quorum": ADDRESS,
        f"{zookeeper}.clientPort": str(layout.port(ZOOKEEPER)),
        f"{zookeeper}.clientPortAddress": ADDRESS,
        f"{zookeeper}.dataDir": f"{layout.folder}/data/zk",
        f"{zookeeper}.admin.enableServer": "false",
        f"{zookeeper}.tickTime": "1000",
        f"{zookeeper}.minSessionTimeout": "2000",
        # How long a killed region server goes unnoticed, unless it comes back sooner. With 6,000 servers that were starved
        # by others on the machine for eight seconds gave up.
        "zookeeper.session.timeout": "15000",
        "hbase.master.hostname": "localhost",
        "hbase.unsafe.regionserver.hostname": "localhost",
        "hbase.master.ipc.address": ADDRESS,
        "hbase.regionserver.ipc.address": ADDRESS,
        "hbase.master.port": str(layout.port(MASTER)),
        "hbase.master.info.port": "-1",  # no web pages
        "hbase.regionserver.info.port": "-1",
        "hbase.thrift.info.port": "-1",
        "hbase.master.wait.on.regionservers.mintostart": str(layout.region_servers),
        "hbase.wal.provider": "filesystem",
        "hbase.master.logcleaner.ttl": "2147483647",  # oldWALs stay: the log source reads them
        # How old a request can get inside a Thrift server, which goes on for 20 minutes by itself if not told otherwise.
        "hbase.client.operation.timeout": "60000",
        "hbase.rpc.timeout": "20000",
        "hbase.regionserver.handler.count": "8",
        "hbase.hregion.memstore.flush.size": "16777216",
    }


def server_arguments(layout: Layout, name: str) -> tuple[int, list[str]]:
    """The heap in MB, then the main class and its arguments, of one server."""
    kind = name.partition("-")[0]
    port = str(layout.port(name))
    return {
        ZOOKEEPER: (128, [f"{PREFIX}.zookeeper.HQuorumPeer"]),
        MASTER: (384, [f"{PREFIX}.master.HMaster", "start"]),
        "regionserver": (
            768,  # with the tables of some stores, 384 were not enough
            [f"{PREFIX}.regionserver.HRegionServer", "-D", f"hbase.regionserver.port={port}", "start"],
        ),
        "thrift": (384, [f"{PREFIX}.thrift2.ThriftServer", "-p", port, "-b", ADDRESS, "--infoport", "-1"]),
    }[kind]


def java_command(layout: Layout, mark: str, heap_mb: int, arguments: list[str]) -> list[str]:
    """Java with the flags that HBase's own start script gives it from version 11 on."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        raise ServicesFailed("JAVA_HOME is not set: scripts/ensure_java.sh prints it")
    opened = [flag for package in OPENED.split() for flag in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    exported = [flag for package in EXPORTED.split() for flag in ("--add-exports", f"{package}=ALL-UNNAMED")]
    return [
        f"{home}/bin/java",
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
        *("--add-modules", "jdk.unsupported", *opened, *exported),
        mark,
        *("-cp", class_path(layout), *arguments),
    ]


def class_path(layout: Layout) -> str:
    return f"{layout.folder}/conf:{layout.artifacts}/lib/*"
