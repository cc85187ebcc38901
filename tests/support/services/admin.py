"""What an operator does to a running HBase: flush, compact, roll, move, split, merge, alter, snapshot, bulk-load.

Thrift has none of it, so a JVM's own client does it. Always: a call returns when HBase says that it is done, except for a
compaction, of which it says nothing; the JVM ends with the `with` block.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.support.services.configuration import class_path, java_command
from tests.support.services.hbase import Cluster


@dataclass(frozen=True, slots=True)
class Admin:
    """HBase's `Admin`, with names as text: a table's, a region's encoded one, a server's "host,port,startcode"."""

    gateway: JavaGateway
    java: Any

    def flush(self, table: str) -> None:
        self.java.flush(self._table(table))

    def compact(self, table: str) -> None:
        """Ask that all of a table's files are rewritten, without what is deleted and the marks of that."""
        self.java.flush(self._table(table))
        self.java.majorCompact(self._table(table))

    def roll(self, server: str) -> None:
        """Begin a new WAL on that server."""
        self.java.rollWALWriter(self._server(server))

    def move(self, region: str, server: str) -> None:
        self.java.move(region.encode(), self._server(server))

    def split(self, table: str, row: bytes) -> None:
        """Split the region that holds `row`, at that row."""
        for region in self.java.getRegions(self._table(table)):
            if region.containsRow(row):
                self.java.splitRegionAsync(region.getRegionName(), row).get()

    def merge(self, table: str) -> None:
        """Merge the table's last two regions; those that a split has just made refuse, for minutes."""
        first, second = (region.encode() for region in self.regions(table)[-2:])
        self.java.mergeRegionsAsync(first, second, True).get()

    def disable(self, table: str) -> None:
        self.java.disableTable(self._table(table))

    def drop(self, table: str) -> None:
        if self.java.isTableEnabled(self._table(table)):
            self.disable(table)
        self.java.deleteTable(self._table(table))

    def truncate(self, table: str) -> None:
        self.disable(table)
        self.java.truncateTable(self._table(table), False)

    def alter_family(self, table: str, family: str, **settings: object) -> None:
        """Change settings of a family: HBase's own names, such as timeToLive=60."""
        builders = self.gateway.jvm.org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder
        builder = builders.newBuilder(self.java.getDescriptor(self._table(table)).getColumnFamily(family.encode()))
        for setting, value in settings.items():
            getattr(builder, f"set{setting[0].upper()}{setting[1:]}")(value)
        self.java.modifyColumnFamily(self._table(table), builder.build())

    def replace_family(self, table: str, old: str, new: str) -> None:
        """Remove a family with all its cells, and add an empty one."""
        builders = self.gateway.jvm.org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder
        self.java.addColumnFamily(self._table(table), builders.of(new))
        self.java.deleteColumnFamily(self._table(table), old.encode())

    def set_durability(self, table: str, durability: str) -> None:
        client = self.gateway.jvm.org.apache.hadoop.hbase.client
        builder = client.TableDescriptorBuilder.newBuilder(self.java.getDescriptor(self._table(table)))
        self.java.modifyTable(builder.setDurability(client.Durability.valueOf(durability)).build())

    def snapshot(self, table: str, name: str) -> None:
        self.java.snapshot(name, self._table(table))

    def restore(self, table: str, name: str) -> None:
        """Make the table what it was at that snapshot, and delete the snapshot."""
        self.disable(table)
        self.java.restoreSnapshot(name)
        self.java.enableTable(self._table(table))
        self.java.deleteSnapshot(name)

    def bulk_load(self, table: str, folder: str) -> None:
        """Hand HBase the files of `folder`, which has a folder for each family."""
        hadoop = self.gateway.jvm.org.apache.hadoop
        loader = hadoop.hbase.tool.BulkLoadHFiles.create(hadoop.hbase.HBaseConfiguration.create())
        loader.bulkLoad(self._table(table), hadoop.fs.Path(f"file://{folder}"))

    def regions(self, table: str) -> list[str]:
        return [region.getEncodedName() for region in self.java.getRegions(self._table(table))]

    def servers(self) -> list[str]:
        """Those that are alive, as the master sees it."""
        return sorted(server.getServerName() for server in self.java.getRegionServers())

    def count_regions(self, server: str) -> int:
        """How many that server has open."""
        return len(self.java.getRegions(self._server(server)))

    def balance(self) -> None:
        """Ask that regions are spread evenly over the servers."""
        self.java.balance()

    def _table(self, name: str) -> Any:
        return self.gateway.jvm.org.apache.hadoop.hbase.TableName.valueOf(name)

    def _server(self, name: str) -> Any:
        return self.gateway.jvm.org.apache.hadoop.hbase.ServerName.valueOf(name)


@contextmanager
def administering(cluster: Cluster) -> Iterator[Admin]:
    """A JVM with a connection to the cluster."""
    layout = cluster.layout
    java, *flags = java_command(layout, cluster.processes.mark, 128, [])
    options = flags[: flags.index("-cp")]
    with open(os.devnull, "wb") as quiet:
        port, process = launch_gateway(
            classpath=class_path(layout),
            javaopts=options,
            java_path=java,
            die_on_exit=True,
            return_proc=True,
            redirect_stdout=quiet,
            redirect_stderr=quiet,
        )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        client = gateway.jvm.org.apache.hadoop.hbase
        connection = client.client.ConnectionFactory.createConnection(client.HBaseConfiguration.create())
        yield Admin(gateway, connection.getAdmin())
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait()
