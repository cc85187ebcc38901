"""A proxy before a server: requests go through, and now and then a reply gets lost or a request arrives late.

In: the server's port, a seed, and how often. Out: a port. Always: a request whose reply is lost was done, because the reply
was there; one that is late is sent to the server after its client has lost the connection, and has perhaps repeated it.
"""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.services.configuration import ADDRESS

_CHUNK = 1 << 16
_QUIET_SECONDS = 0.02  # a request is whole when nothing has come for so long


class FaultyProxy:
    """Listens until `close`; `counts` are the faults so far, by kind."""

    def __init__(self, port: int, *, seed: int, lost: float, late: float, late_seconds: float) -> None:
        self._target = port
        self._random = random.Random(seed)
        self._shares = {"lost": lost, "late": late}
        self._late_seconds = late_seconds
        self.counts: Counter[str] = Counter()
        self.is_faulty = True
        self._listener = socket.create_server((ADDRESS, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One connection: request after request, until a fault or its end."""
        try:
            with client, socket.create_connection((ADDRESS, self._target)) as server:
                for request in _requests(client):
                    fate = self._draw()
                    if fate == "late":
                        client.shutdown(socket.SHUT_RDWR)
                        time.sleep(self._random.uniform(0, self._late_seconds))
                    server.sendall(request)
                    if not _relay(server, client, is_lost=fate != ""):
                        return
        except OSError:
            return

    def _draw(self) -> str:
        at = self._random.random() if self.is_faulty else 1.0
        for fate, share in self._shares.items():
            at -= share
            if at < 0:
                self.counts[fate] += 1
                return fate
        return ""


def _requests(client: socket.socket) -> Iterator[bytes]:
    """What a client sends before it waits for a reply."""
    while found := client.recv(_CHUNK):
        while select.select([client], [], [], _QUIET_SECONDS)[0]:
            more = client.recv(_CHUNK)
            if not more:
                return
            found += more
        yield found


def _relay(server: socket.socket, client: socket.socket, *, is_lost: bool) -> bool:
    """The server's reply to the client, or to nobody; whether the connection goes on."""
    reply = server.recv(_CHUNK)
    if is_lost or not reply:
        return False
    client.sendall(reply)
    while True:  # until the client speaks again
        ready, _, _ = select.select([server, client], [], [])
        if client in ready:
            return True
        reply = server.recv(_CHUNK)
        if not reply:
            return False
        client.sendall(reply)


@contextmanager
def faulty_proxy(port: int, **faults: float) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(port, **faults)
    try:
        yield proxy
    finally:
        proxy.close()
