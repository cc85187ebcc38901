"""A small real HBase on loopback: ZooKeeper, a master, region servers and Thrift 2 servers, each a process of its own.

In: a folder. Out: servers that serve, faults for tests, an orderly end. Always: everything that a cluster writes is in its
folder, and the processes that are signalled are those that were started for it, by whichever command.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.services import thrift
from tests.support.services.artifacts import fetch_hbase
from tests.support.services.configuration import (
    ADDRESS,
    MASTER,
    PREFIX,
    ZOOKEEPER,
    Layout,
    java_command,
    server_arguments,
    write_configuration,
)
from tests.support.services.failure import ServicesFailed
from tests.support.services.processes import Processes
from tests.support.services.waiting import say_nothing, wait_until

PORT_BASE = 16000
READY_SECONDS_MAX = 600.0
STOP_SECONDS_MAX = 90.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """One HBase; made by `create` or, from the folder alone, by `find`."""

    layout: Layout
    tell: Callable[[str], None] = say_nothing

    @staticmethod
    def create(
        folder: Path,
        *,
        port_base: int = PORT_BASE,
        region_servers: int = 2,
        thrift_servers: int = 1,
        tell: Callable[[str], None] = say_nothing,
    ) -> Cluster:
        """Nothing is started; jars are fetched if this machine has none."""
        layout = Layout(folder.resolve(), fetch_hbase(tell), port_base, region_servers, thrift_servers)
        write_configuration(layout)
        numbers = {"port_base": port_base, "region_servers": region_servers, "thrift_servers": thrift_servers}
        (layout.folder / "cluster.json").write_text(json.dumps(numbers))
        return Cluster(layout, tell)

    @staticmethod
    def find(folder: Path, *, tell: Callable[[str], None] = say_nothing) -> Cluster | None:
        """The cluster that was created in the folder, whether it runs or not."""
        try:
            numbers = json.loads((folder / "cluster.json").read_text())
        except FileNotFoundError:
            return None
        return Cluster(Layout(folder.resolve(), fetch_hbase(tell), **numbers), tell)

    @property
    def processes(self) -> Processes:
        return Processes(self.layout.folder)

    @property
    def types(self) -> ModuleType:
        return thrift.definition(self.layout.artifacts / "hbase.thrift")

    def client(self, number: int = 1) -> Any:
        """A connection to a Thrift 2 server, for a `with` block."""
        return thrift.connected(self.types, self.layout.port(f"thrift-{number}"))

    def start(self) -> None:
        """Returns when every Thrift server serves; what was started is stopped if that fails."""
        names = self.layout.names()
        if not all(map(self.processes.is_running, names)):
            self._refuse_taken_ports()
        try:
            for name in names:
                self.run(name)
            self.wait_until_serving()
        except BaseException:
            self.kill_all()
            raise

    def wait_until_serving(self) -> None:
        ports = self.layout.thrift_ports()
        served = wait_until(
            lambda: self._all_run() and all(thrift.serves(self.types, port) for port in ports),
            seconds_max=READY_SECONDS_MAX,
            state=lambda: f"waiting for HBase to serve; running: {', '.join(self.running())}",
            tell=self.tell,
        )
        if not served:
            raise ServicesFailed(
                f"HBase does not serve after {READY_SECONDS_MAX:.0f} s; see {self.layout.folder / 'logs'}"
            )

    def run(self, name: str) -> None:
        """Start one server, if it does not run."""
        heap, arguments = server_arguments(self.layout, name)
        self.processes.start(name, self._java(heap, arguments), dict(os.environ))

    def kill(self, name: str) -> None:
        """kill -9 of one server."""
        if not self.processes.kill(name):
            raise ServicesFailed(f"{name} does not run")

    def running(self) -> list[str]:
        return [name for name in self.layout.names() if self.processes.is_running(name)]

    def stop(self) -> None:
        """An orderly end: regions are closed, so WALs is empty afterwards."""
        ours = self.processes
        for name in ours.names():
            if name.startswith("thrift-"):
                ours.end(name)
        if ours.is_running(MASTER):
            self.tell("closing the regions")
            command = self._java(128, [f"{PREFIX}.master.HMaster", "stop", "--shutDownCluster"])
            with ours.log("stop").open("ab") as log:
                subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
            ours.wait_for_end(MASTER, seconds_max=STOP_SECONDS_MAX)
        for name in sorted(ours.names(), key=lambda name: name == ZOOKEEPER):
            ours.end(name)

    def kill_all(self) -> None:
        """For a cluster whose data nobody needs."""
        for name in self.processes.names():
            self.processes.kill(name)

    def print_wal(self, file: Path) -> str:
        """What HBase's own WALPrettyPrinter says of a file: entries as JSON, each with its end. It fails at a live end."""
        command = self._java(256, [f"{PREFIX}.wal.WALPrettyPrinter", "-j", "-p", str(file)])
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout

    def _java(self, heap: int, arguments: list[str]) -> list[str]:
        return java_command(self.layout, self.processes.mark, heap, arguments)

    def _all_run(self) -> bool:
        for name in self.layout.names():
            if not self.processes.is_running(name):
                raise ServicesFailed(f"{name} has ended; see {self.processes.log(name)}")
        return True

    def _refuse_taken_ports(self) -> None:
        for name in self.layout.names():
            port = self.layout.port(name)
            if not self.processes.is_running(name) and not is_free(port):
                raise ServicesFailed(f"port {port}, for {name}, is taken: choose another PORT_BASE")


def is_free(port: int) -> bool:
    with closing(socket.socket()) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((ADDRESS, port))
        except OSError:
            return False
        return True


def free_port_base(start: int = PORT_BASE + 1000) -> int:
    """A port base whose hundred ports are free."""
    return next(base for base in range(start, 30000, 100) if all(is_free(base + offset) for offset in range(100)))


@contextmanager
def started(folder: Path, **options: Any) -> Iterator[Cluster]:
    """A cluster for one run of tests, whose data nobody needs afterwards."""
    cluster = Cluster.create(folder, **options)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill_all()
