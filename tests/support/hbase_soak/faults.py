"""What befalls the servers and regions of HBase: kills and restarts, moves, splits, merges, flushes, compactions, new logs.

In: actions. Out: words about what was done. Always: a killed server is started again, at once or after HBase has noticed its
death; what HBase refuses (a region that is moving cannot be split) counts as refused, and is no fault of anybody's.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from py4j.protocol import Py4JJavaError

from tests.support.hbase_soak.schedule import Action
from tests.support.hbase_soak.summary import SERVERS, THRIFTS, Wrong
from tests.support.hbase_soak.tables import UserTables
from tests.support.services.admin import Admin
from tests.support.services.hbase import Cluster
from tests.support.services.waiting import say_nothing, wait_until

_NOTICED_SECONDS = 17.0  # above ZooKeeper's session timeout
_JOIN_SECONDS_MAX = 300.0
_REGIONS_MAX = 6


class Faults:
    """Faults of one cluster."""

    def __init__(
        self, cluster: Cluster, admin: Admin, tables: UserTables, namespace: str, counts: Counter[str]
    ) -> None:
        self._cluster, self._admin, self._tables, self._counts = cluster, admin, tables, counts
        self._namespace = namespace
        self._joining: tuple[int, list[str]] = (0, [])  # a port, and the servers of before; 0: none is on its way

    def kill_region_server(self, action: Action) -> str:
        """Kill one that has regions; the one that is started in its place joins while other things happen."""
        self._rejoin()
        alive = self._admin.servers()
        regions = {server: self._regions_of(server) for server in alive}
        victim, stays_dead = action.pick(0, [server for server in alive if regions[server]]), action.draws[1] < 0.25
        port = int(victim.split(",")[1])
        name = next(name for name in self._cluster.layout.names() if self._cluster.layout.port(name) == port)
        self._cluster.kill(name)
        if stays_dead:
            threading.Event().wait(_NOTICED_SECONDS)
        self._cluster.run(name)
        self._joining = (port, alive)
        self.revive()
        self._counts[SERVERS] += 1
        return f"killed {name} with {regions[victim]} regions{', which stayed dead for a while' * stays_dead}"

    def _regions_of(self, server: str) -> int:
        try:
            return self._admin.count_regions(server)
        except Py4JJavaError:  # it has joined, and does not serve yet
            return 0

    def kill_thrift(self, action: Action) -> str:
        name = action.pick(0, [name for name in self._cluster.running() if name.startswith("thrift-")])
        self._cluster.kill(name)
        self._cluster.run(name)
        self.revive()
        self._counts[THRIFTS] += 1
        return f"killed {name}"

    def revive(self) -> None:
        """Start whatever ended by itself, and wait until HBase serves."""
        self.restart_ended()
        self._cluster.wait_until_serving()

    def restart_ended(self) -> None:
        """Start servers that ended by themselves: one that gets no CPU for too long gives up, as HBase wants it."""
        running = self._cluster.running()
        for name in self._cluster.layout.names():
            if name not in running:
                self._counts[f"times that {name} ended by itself"] += 1
                self._cluster.run(name)

    def _rejoin(self) -> None:
        """Wait until the server that was started last has joined, and ask that it gets regions."""
        port, before = self._joining

        def has_joined() -> bool:
            return any(f",{port}," in server and server not in before for server in self._admin.servers())

        if port:
            state = f"waiting for the region server at port {port} to join again"
            if not wait_until(has_joined, seconds_max=_JOIN_SECONDS_MAX, state=lambda: state, tell=say_nothing):
                raise Wrong(f"{state}, for {_JOIN_SECONDS_MAX:.0f} s")
            self._ask(self._admin.balance)
            self._joining = (0, [])

    def move(self, action: Action) -> str:
        table = self._some_table(action)
        servers = self._admin.servers()
        regions = self._admin.regions(table)
        for place, region in enumerate(regions):
            self._ask(lambda region=region, place=place: self._admin.move(region, servers[place % len(servers)]))
        return f"moved {len(regions)} regions of {table}"

    def split(self, action: Action) -> str:
        table = self._own_table(action)
        if len(self._admin.regions(table)) >= _REGIONS_MAX:
            return self.merge(action)
        row = b"%c" % (98 + int(action.draws[1] * 24))
        return f"split {table} at {row.decode()}{self._ask(lambda: self._admin.split(table, row))}"

    def merge(self, action: Action) -> str:
        table = self._own_table(action)
        if len(self._admin.regions(table)) < 2:
            return f"nothing to merge in {table}"
        return f"merged regions of {table}{self._ask(lambda: self._admin.merge(table))}"

    def flush(self, action: Action) -> str:
        table = self._some_table(action)
        return f"flushed {table}{self._ask(lambda: self._admin.flush(table))}"

    def compact(self, action: Action) -> str:
        table = self._own_table(action) if action.draws[2] < 0.7 else self._some_table(action)
        return f"compacted {table}{self._ask(lambda: self._admin.compact(table))}"

    def roll(self, action: Action) -> str:
        told = [self._ask(lambda server=server: self._admin.roll(server)) for server in self._admin.servers()]
        return f"began {len(told)} new logs"

    def _own_table(self, action: Action) -> str:
        return action.pick(0, [self._tables.name(name) for name in ("l", "r")])

    def _some_table(self, action: Action) -> str:
        """A table of users, or of ViewKeeper."""
        with self._cluster.client() as client:
            names = client.getTableNamesByNamespace(self._namespace)
        views = sorted(f"{self._namespace}:{name.qualifier.decode()}" for name in names)
        own = list(self._tables.names.values())
        return action.pick(0, [*own, *own, *views])

    def _ask(self, step: Callable[[], object]) -> str:
        try:
            step()
        except Py4JJavaError as error:
            self._counts["requests that HBase refused"] += 1
            return f" (refused: {error.java_exception.getClass().getSimpleName()})"
        return ""
