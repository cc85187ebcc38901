"""The client: requests to the Thrift 2 servers of `hbase://HOST:PORT[,HOST:PORT…]/NAMESPACE[?OPTION=VALUE&…]`.

In: a URL; the name of a request and its arguments. Out: an address; a reply. Always: a URL with anything else in it is
refused before a server is asked. A connection serves one request at a time. A request that may be repeated is sent to
the servers in turn, with pauses, for a bounded time; a test-and-set is sent once. A request without a reply is
StoreUnavailable: it may be done now, later or never. Where no host of the URL has an address nothing is repeated,
unless a server has replied before. A forked process makes its own connections.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from viewkeeper.errors import InputError, StoreError, StoreUnavailable
from viewkeeper.stores.hbase.thrift_cells import Puts, thrift
from viewkeeper.stores.open import split_url

OPTIONS = ("partitions", "timeout", "patience", "late", "rootdir", "retention", "every")
_SECONDS = ("timeout", "patience", "late", "retention", "every")
PARTITIONS = 4  # of a store that is made: a view takes two tables or so, and each this many regions
_PORT_MAX = 65_535
_WHERE = re.compile(r"//([^/,:]+:\d{1,5}(?:,[^/,:]+:\d{1,5})*)/([A-Za-z0-9_]+)")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is, and how long to wait: `patience_seconds` bounds the repetitions of a request.

    `late_seconds` is R of `docs/epochs.md`, section 4: for how long a Thrift server may go on with a request by itself.
    HBase keeps its logs in `rootdir` for at least `retention_seconds`. A pipeline begins an epoch `every_seconds`.
    """

    url: str
    servers: tuple[tuple[str, int], ...]
    namespace: str
    partitions: int | None
    rootdir: str | None
    timeout_seconds: float = 60.0
    patience_seconds: float = 90.0
    late_seconds: float = 1_200.0  # hbase.client.operation.timeout, if nobody has set it
    retention_seconds: float = 600.0  # hbase.master.logcleaner.ttl, if nobody has set it
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
    partitions = int(options["partitions"]) if "partitions" in options else None
    seconds = {f"{name}_seconds": float(options[name]) for name in _SECONDS if name in options}
    return Address(url, servers, found[2], partitions, options.get("rootdir"), **seconds)


_DOWN_SECONDS = 5.0  # for which a server that failed is not asked, if there are others
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 3.0
_CONNECT_MS = 5_000
_TRY_AGAIN = (-3, 2)  # EAI_AGAIN, on Linux and on macOS: the name cannot be looked up now
_IDLE_MAX = 16
Server = tuple[str, int]


class Refused(StoreError):
    """HBase refused a request, and would refuse it again."""


class Connections:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._idle: list[tuple[Server, Any]] = []
        self._down: dict[Server, float] = {}  # until when
        self._turn = random.randrange(len(address.servers))
        self._unknown = set[str]()  # hosts
        self._is_closed = self._has_replied = False

    def ask(self, request: str, *arguments: object, before: Callable[[], object] | None = None) -> Any:
        """The reply to a request that may be repeated; `before` is called ahead of each attempt."""
        return self.ask_in_turn((request, *arguments), before=before)[0]

    def ask_in_turn(self, *requests: tuple[Any, ...], before: Callable[[], object] | None = None) -> list[Any]:
        """The replies to requests that may be repeated, sent together; a server does one after the other."""
        until, pause = time.monotonic() + self._address.patience_seconds, _PAUSE_SECONDS
        while True:
            if before is not None:
                before()
            try:
                return self._ask_once(requests)
            except StoreUnavailable:
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def ask_once(self, request: str, *arguments: object) -> Any:
        return self._ask_once([(request, *arguments)])[0]

    def _ask_once(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        from thriftpy2.protocol.cybin.cybin import ProtocolError
        from thriftpy2.thrift import TApplicationException, TException

        server, client = self._take()
        try:
            replies = _replies(client, requests)
        except thrift().TIOError as error:  # HBase replied: the connection is good
            self._give(server, client)
            raise _error_of_hbase(error) from None
        except TApplicationException as error:  # the request itself is wrong: a key or a value is too long
            self._give(server, client)
            raise Refused(f"HBase refused a request: {error}") from None
        except (OSError, EOFError, TException) as error:
            self._fail(server, client)
            raise _silent(server, error) from error
        except ProtocolError as error:
            self._fail(server, client)
            raise StoreError(
                f"what replies at {server[0]}:{server[1]} is no Thrift 2 server: {error}",
                "the URL names the port of `hbase thrift2 start`, by default 9090, not one of HBase's other servers",
            ) from error
        except BaseException:  # a reply may be on its way: no other request must read it
            client.close()
            raise
        self._give(server, client)
        return replies

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for _, client in idle:
            client.close()

    def _take(self) -> tuple[Server, Any]:
        """A connection to the server whose turn it is."""
        with self._lock:
            if self._is_closed:
                raise InputError("the database is closed", "connect again")
            if self._process != os.getpid():  # a forked child leaves the parent's connections alone
                self._process, self._idle = os.getpid(), []
                self._turn = random.randrange(len(self._address.servers))
            server = self._server()
            for index, (known, client) in enumerate(self._idle):
                if known == server:
                    del self._idle[index]
                    return server, client
        return server, self._connect(server)

    def _server(self) -> Server:
        """The next server that did not fail just now, else the one that failed first."""
        servers, now = self._address.servers, time.monotonic()
        turns = [servers[(self._turn + step) % len(servers)] for step in range(len(servers))]
        server = min(turns, key=lambda one: max(0.0, self._down.get(one, 0.0) - now))
        self._turn = servers.index(server) + 1
        return server

    def _connect(self, server: Server) -> Any:
        from thriftpy2.protocol import TBinaryProtocolFactory
        from thriftpy2.thrift import TClient, TException
        from thriftpy2.transport import TBufferedTransportFactory, TSocket

        timeout = int(self._address.timeout_seconds * 1_000)
        opened = TSocket(*server, socket_timeout=timeout, connect_timeout=min(timeout, _CONNECT_MS))
        transport = TBufferedTransportFactory().get_transport(opened)
        try:
            transport.open()
            return TClient(thrift().THBaseService, TBinaryProtocolFactory().get_protocol(transport))
        except (OSError, TException) as error:
            self._fail(server, None)
            cause = error.__context__
            if cause is not None and type(cause).__name__ == "gaierror" and cause.args[0] not in _TRY_AGAIN:
                self._unknown.add(server[0])
            hosts = dict.fromkeys(host for host, _ in self._address.servers)
            if hosts.keys() <= self._unknown and not self._has_replied:
                fact = f"no machine is known as {', '.join(hosts)}"
                raise StoreError(fact, f"look at the URL {self._address.url}") from error
            raise _silent(server, error) from error

    def _give(self, server: Server, client: Any) -> None:
        self._has_replied = True
        with self._lock:
            self._down.pop(server, None)
            if not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append((server, client))
                return
        client.close()

    def _fail(self, server: Server, client: Any) -> None:
        with self._lock:
            self._down[server] = time.monotonic() + _DOWN_SECONDS
            stale = [idle for known, idle in self._idle if known == server]
            self._idle = [one for one in self._idle if one[0] != server]
        for one in [*stale, client] if client is not None else stale:
            with suppress(OSError):
                one.close()


def _replies(client: Any, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The replies to all requests; an error among them is raised when all have been read."""
    from thriftpy2.thrift import TApplicationException

    for request in requests:
        _send(client, *request)
    replies, errors = [], []
    for name, *_ in requests:
        try:
            replies.append(client._recv(name))
        except (thrift().TIOError, TApplicationException) as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return replies


def _send(client: Any, name: str, *arguments: Any) -> None:
    from thriftpy2.thrift import TMessageType, args_to_kwargs

    puts = arguments[-1] if arguments else None
    if not isinstance(puts, Puts):
        spec = getattr(client._service, f"{name}_args").thrift_spec
        client._send(name, **args_to_kwargs(spec, *arguments))
        return
    client._oprot.write_message_begin(name, TMessageType.CALL, client._seqid)
    client._oprot.trans.write(puts.arguments(arguments[0]))
    client._oprot.trans.flush()


def _error_of_hbase(error: Any) -> StoreError:
    """The error for a request that HBase did not do, or not wholly."""
    text = (error.message or "no reason given").strip().splitlines()[0][:300]
    if error.canRetry is False:
        return Refused(f"HBase refused a request: {text}")
    return StoreUnavailable(f"HBase could not do a request: {text}", "look at its servers, and try again")


def _silent(server: Server, error: Exception) -> StoreUnavailable:
    reason = str(error) or type(error).__name__
    return StoreUnavailable(
        f"no answer from the Thrift server {server[0]}:{server[1]}: {reason}",
        "check that `hbase thrift2` runs there, and that host and port in the URL are right; then try again",
    )
