"""Thrift 2 from Python: the definition that HBase ships, loaded as it is, and connections to a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import thriftpy2
from thriftpy2.rpc import make_client

from tests.support.services.configuration import ADDRESS


@cache
def definition(file: Path) -> ModuleType:
    """The types and services of `hbase.thrift`."""
    return thriftpy2.load(str(file), module_name="hbase_thrift")


@contextmanager
def connected(types: ModuleType, port: int, *, seconds_max: float = 90.0) -> Iterator[Any]:
    """A client of the Thrift 2 server at that port."""
    client = make_client(types.THBaseService, ADDRESS, port, timeout=int(seconds_max * 1000))
    try:
        yield client
    finally:
        client.close()


def serves(types: ModuleType, port: int) -> bool:
    """Whether hbase:meta is assigned and the master is past its start: an open port is not enough."""
    try:
        with connected(types, port, seconds_max=10.0) as client:
            return bool(client.getAllRegionLocations(b"hbase:meta") and client.listNamespaceDescriptors())
    except (OSError, EOFError, thriftpy2.thrift.TException):
        return False
