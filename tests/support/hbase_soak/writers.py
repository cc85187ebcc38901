"""Foreign writers: clients of HBase in processes of their own, who know nothing of views.

In: the folder of a cluster, tables, a seed. Out: mutations of every kind, until they pause or end; what they did, by kind.
Always: `pause` returns when no request is under way; a request whose reply is lost may be done or not. What a writer writes
is a function of the seed and its number, but for timestamps, which follow the clock.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from thriftpy2.thrift import TException

from tests.support.hbase_soak.mutations import Mutations
from tests.support.hbase_soak.processes import Forked
from tests.support.services.hbase import Cluster

_PAUSE_SECONDS = 0.03  # between two mutations: more would only keep the pipeline from catching up
_BREAK_SECONDS = 0.3  # after a lost reply
_LOST = (TException, OSError, EOFError)


def write(folder: Path, names: dict[str, str], seed: int, number: int, writers: int, pipe: Connection) -> None:
    """What a writer's process does; commands: "go", ("big", rows), "pause", which is answered with counts."""
    cluster = Cluster.find(folder)
    assert cluster is not None
    mutations = Mutations(cluster.types, names, random.Random(f"{seed} writer {number}"), number, writers)
    counts, kind, is_going, turn = Counter[str](), "connect", False, number
    while True:
        servers = cluster.layout.thrift_servers
        try:
            with cluster.client(1 + turn % servers) as client:
                while True:
                    while pipe.poll(_PAUSE_SECONDS if is_going else None):
                        command = pipe.recv()
                        is_going = command == "go" or (is_going and command != "pause")
                        if command == "pause":
                            pipe.send(dict(counts))
                        elif isinstance(command, tuple):
                            mutations.big_rows = command[1]
                    if is_going:
                        kind, call = mutations.next()
                        call(client)
                        counts[kind] += 1
        except _LOST:
            counts[f"{kind} (no reply)"] += 1
            kind, turn = "connect", turn + 1
            threading.Event().wait(_BREAK_SECONDS)


class Writers:
    """The writers of a soak."""

    def __init__(self, cluster: Cluster, names: dict[str, str], seed: int, count: int = 2) -> None:
        folder = cluster.layout.folder
        self._writers = [Forked(write, folder, names, seed, number, count) for number in range(count)]
        self._are_going = False
        self.counts = Counter[str]()

    def go(self) -> None:
        self._tell("go")
        self._are_going = True

    def pause(self) -> None:
        """Return when no request is under way."""
        self._tell("pause")
        self.counts = Counter()
        for writer in self._writers:
            self.counts.update(writer.pipe.recv())
        self._are_going = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        yield
        self.go()

    def write_big(self, rows: int) -> None:
        """Write to the large table too, of so many rows; 0: no more."""
        self._tell(("big", rows))

    def end(self) -> None:
        for writer in self._writers:
            writer.end()

    def _tell(self, command: object) -> None:
        for writer in self._writers:
            writer.pipe.send(command)
