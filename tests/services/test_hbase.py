"""The servers that tests run on: all there, and for this machine alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.support.services.hbase import Cluster

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
LISTENS = "0A"


def test_another_command_finds_all_servers_running(hbase: Cluster) -> None:
    found = Cluster.find(hbase.layout.folder)

    assert found is not None
    assert found.running() == hbase.layout.names()
    assert min(found.processes.memory_mb(name) or 0 for name in found.running()) > 30


def test_every_port_is_on_loopback(hbase: Cluster) -> None:
    ports = {name: listening(hbase, name) for name in hbase.layout.names()}

    assert {address for found in ports.values() for address, _ in found} <= LOOPBACK
    assert all(hbase.layout.port(name) in {port for _, port in found} for name, found in ports.items())


def listening(hbase: Cluster, name: str) -> set[tuple[str, int]]:
    """Addresses and ports at which a server listens, as the kernel tells it."""
    pid = hbase.processes.pid(name)
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            sockets.add(os.readlink(link))
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    found = [line[1].split(":") for line in lines if line[3] == LISTENS and f"socket:[{line[9]}]" in sockets]
    return {(address, int(port, 16)) for address, port in found}
