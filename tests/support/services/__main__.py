"""`make services`, `make services-stop` and `make services-status`: real servers on loopback, from the command line."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.support.services.failure import ServicesFailed
from tests.support.services.hbase import PORT_BASE, Cluster
from tests.support.source_tree import ROOT

FOLDER = ROOT / ".services" / "hbase"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.services")
    parser.add_argument("command", choices=["start", "status", "stop"])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--port-base", type=int, default=PORT_BASE)
    parser.add_argument("--region-servers", type=int, default=2)
    parser.add_argument("--thrift-servers", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    try:
        cluster = Cluster.find(asked.folder, tell=_tell)
        if asked.command == "start":
            cluster = cluster if cluster and cluster.running() else _create(asked)
            cluster.start()
        elif cluster and asked.command == "stop":
            cluster.stop()
    except ServicesFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    _report(cluster, time.monotonic() - began)
    return 0


def _create(asked: argparse.Namespace) -> Cluster:
    return Cluster.create(
        asked.folder,
        port_base=asked.port_base,
        region_servers=asked.region_servers,
        thrift_servers=asked.thrift_servers,
        tell=_tell,
    )


def _report(cluster: Cluster | None, seconds: float) -> None:
    if not cluster or not cluster.running():
        print(f"no HBase runs ({seconds:.0f} s)")
        return
    layout = cluster.layout
    for name in layout.names():
        memory = cluster.processes.memory_mb(name)
        state = f"port {layout.port(name)}, {memory} MB" if memory is not None else "does not run"
        print(f"{name:<16} {state}")
    ports = ", ".join(f"127.0.0.1:{port}" for port in layout.thrift_ports())
    print(f"HBase ({seconds:.0f} s): Thrift 2 on {ports}; files in {layout.root}; logs in {layout.folder / 'logs'}")
    print("stop it with `make services-stop`")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
