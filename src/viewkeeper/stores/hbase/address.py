"""Addresses: `hbase://HOST:PORT[,HOST:PORT…]/NAMESPACE[?OPTION=VALUE&…]`.

In: a URL. Out: where the Thrift servers are, the namespace, and how patient to be. Always: a URL with anything else in
it is refused before anything is asked of a server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from viewkeeper.errors import InputError
from viewkeeper.stores.urls import split_url

OPTIONS = ("partitions", "timeout", "patience", "late", "rootdir", "retention", "every")
PARTITIONS = 4  # of a store that is made: a view takes two tables or so, and each this many regions
_PORT_MAX = 65_535
_WHERE = re.compile(r"//([^/,:]+:\d{1,5}(?:,[^/,:]+:\d{1,5})*)/([A-Za-z0-9_]+)")


@dataclass(frozen=True, slots=True)
class Address:
    """`timeout_seconds`: of a request; `patience_seconds`: for how long one is repeated.

    `late_seconds` is R of `docs/epochs.md`, section 4: for how long a Thrift server may go on with a request by itself.
    `rootdir` is where HBase keeps its logs, and `retention_seconds` for how long at least; `every_seconds` is how often a
    running pipeline begins an epoch.
    """

    url: str
    servers: tuple[tuple[str, int], ...]
    namespace: str
    partitions: int | None
    timeout_seconds: float
    patience_seconds: float
    late_seconds: float
    rootdir: str | None = None
    retention_seconds: float = 600.0
    every_seconds: float = 1.0


def parse_address(url: str) -> Address:
    where, options = split_url(url, OPTIONS)
    found = _WHERE.fullmatch(where)
    if found is None:
        raise InputError(
            f"{url!r} is not the URL of a store in HBase", "write hbase://HOST:PORT/NAMESPACE: the address of Thrift 2"
        )
    servers = tuple((host, int(port)) for host, _, port in (one.partition(":") for one in found[1].split(",")))
    for _, port in servers:
        if not 1 <= port <= _PORT_MAX:
            raise InputError(
                f"{port} is no port", f"use 1 to {_PORT_MAX}: that of `hbase thrift2 start`, by default 9090"
            )
    return Address(
        url,
        servers,
        found[2],
        int(options["partitions"]) if "partitions" in options else None,
        float(options.get("timeout", 60)),
        float(options.get("patience", 90)),
        float(options.get("late", 1_200)),  # hbase.client.operation.timeout, if nobody has set it
        options.get("rootdir"),
        float(options.get("retention", 600)),  # hbase.master.logcleaner.ttl, if nobody has set it
        float(options.get("every", 1)),
    )
