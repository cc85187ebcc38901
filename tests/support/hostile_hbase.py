"""A small HBase behind a hostile network, and the time that passes there: faults of requests and servers, drawn from a seed.

In: requests, as `Connections` sends them. Out: replies, or StoreUnavailable. Always: time is counted in requests, so one seed
and one sequence of requests give one history; no thread is started. What a request asks may be done before its reply gets
lost, later, twice, or of some rows alone; later means up to `timeout` + `late` seconds after it was sent, which is R of
`docs/epochs.md`, section 4. A request for tables (made by HBase's master) is done at once or never. Between two requests,
but not between a VALIDATE and the put behind it, `reached` is called: a process may stop there for as long as others like.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from tests.support.small_hbase import START_MS, Mutation, SmallHBase
from tests.support.wal_files import Server
from viewkeeper.errors import StoreError, StoreUnavailable
from viewkeeper.stores.hbase import client, meta, records, snapshot_reads, store_tables, table_requests, thrift_cells
from viewkeeper.stores.hbase.client import Connections

REQUEST_SECONDS = 0.4
TIMEOUT_SECONDS, LATE_SECONDS = 10, 110  # of requests: R is both together, and more than three epochs take
SETTLED_SECONDS = records.PUT_SECONDS + TIMEOUT_SECONDS + LATE_SECONDS  # after which nothing is under way
OPTIONS = f"timeout={TIMEOUT_SECONDS}&late={LATE_SECONDS}&patience=3"
_JUMP_SECONDS = 15.0
_DOWN_SECONDS = 8.0
_SKEW_MS = 12_000  # of servers' clocks; HBase refuses servers beyond 30 s
_FIRST_ROWS, _PUT_ROWS = 4, 3  # of a page, of a request: so that there are several
_TIMED = (meta, client, snapshot_reads, records, store_tables)  # modules that look at the time
_READS = ("get", "getMultiple", "getScannerResults")
_MUTATIONS = ("put", "putMultiple", "deleteSingle", "deleteMultiple", "mutateRow")
_LOOKS = ("tableExists", "isTableAvailable", "isTableEnabled", "getTableDescriptor", "listNamespaces")


class HostileHBase(SmallHBase):
    """Without logs; calm until it is told otherwise."""

    def __init__(self, seed: int) -> None:
        super().__init__(None)
        self.counts: Counter[str] = Counter()
        self.between: Callable[[], None] = lambda: None  # called between two requests
        self.seconds, self.is_calm = 0.0, True
        self._random, self._order = random.Random(f"hbase {seed}"), itertools.count()
        self._late: list[tuple[float, int, Mutation]] = []  # when it is done, in which order, what
        self._down: dict[str, float] = {}  # servers -> until when
        self._skews = {server.name: self._random.randint(-_SKEW_MS, _SKEW_MS) for server in self.servers}

    @contextmanager
    def serving(self) -> Iterator[None]:
        """All stores of this process that are in HBase are in this one, and live by its time."""
        ask_in_turn, ask_once = Connections.ask_in_turn, Connections.ask_once

        def in_turn(self_: Connections, *requests: tuple[Any, ...], before: Callable[[], object] | None = None) -> Any:
            self.between()
            return ask_in_turn(self_, *requests, before=before)

        def once(self_: Connections, request: str, *arguments: object) -> Any:
            self.between()
            return ask_once(self_, request, *arguments)

        patches = [
            mock.patch.object(Connections, "ask_in_turn", in_turn),
            mock.patch.object(Connections, "ask_once", once),
            mock.patch.object(Connections, "_ask_once", lambda _, requests: self._exchange(requests)),
            mock.patch.object(client, "random", random.Random(self._random.random())),
            mock.patch.object(table_requests, "_FEW", 1 << 30),
            mock.patch.object(meta, "_KNOWN_SECONDS", 1e9),  # decision 0049: what is found by it is right at any age
            mock.patch.object(thrift_cells, "BATCH_RECORDS", _PUT_ROWS),
            mock.patch.object(table_requests, "_FIRST_ROWS", _FIRST_ROWS),
            *(
                mock.patch.dict(walk.__kwdefaults__, first=_FIRST_ROWS)
                for walk in (table_requests.walk, table_requests.pages)
            ),
            *(mock.patch.object(module, "time", Time(self)) for module in _TIMED),
        ]
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            yield

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Requests meet no fault; those that are under way go on."""
        was, self.is_calm = self.is_calm, True
        try:
            yield
        finally:
            self.is_calm = was

    def now_ms(self, table: bytes, row: bytes) -> int:
        return self.ms + self._skews[self.home(self._known(table).region(row)).name]

    def pass_time(self, seconds: float) -> None:
        """What is late by no more than that is done."""
        until = self.seconds + seconds
        while self._late and self._late[0][0] <= until:
            self.seconds, _, mutate = heapq.heappop(self._late)
            self._set_clock()
            _try(mutate)
        self.seconds = until
        self._set_clock()

    def _set_clock(self) -> None:
        self.ms = START_MS + 1_000 + int(self.seconds * 1_000)

    def _exchange(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Requests sent together over one connection: each is begun when the one before is done."""
        sent = self.seconds
        self._tick()
        return [self._request(sent, *request) for request in requests]

    def _tick(self) -> None:
        draw = self._random
        jumps = not self.is_calm and draw.random() < 0.01
        self.pass_time(draw.uniform(0, _JUMP_SECONDS) if jumps else REQUEST_SECONDS)
        if not self.is_calm:
            self._befall_servers()

    def _befall_servers(self) -> None:
        draw = self._random
        if not self.tables or draw.random() >= 0.03:
            return
        name = draw.choice(sorted(self.tables))
        match draw.choice(("compacted", "compacted", "moved", "died")):
            case "compacted":
                for table in self.tables.values():
                    table.compact(self.ms)
                self.counts["major compactions"] += 1
            case "moved":
                if self.tables[name].keys:
                    self.move(name, draw.choice(self.tables[name].keys))
                    self.counts["regions moved"] += 1
            case _:
                self._down[draw.choice(self.servers).name] = self.seconds + draw.uniform(0, _DOWN_SECONDS)
                self.counts["servers died"] += 1

    def _request(self, sent: float, request: str, *arguments: Any) -> Any:
        if self.is_calm:
            return self.reply(request, *arguments)
        if request in _MUTATIONS:
            return self._mutate_somehow(sent, request, *arguments)
        if request == "checkAndMutate":
            return self._swap(sent, *arguments)
        fate = self._draw(lost=1) if request in (*_READS, *_LOOKS) else self._draw(lost=2, silent=3)
        if fate == "lost" or (request in _READS and self._is_down(arguments[0], _rows_read(request, arguments[1]))):
            raise self._silence()
        reply = self.reply(request, *arguments)
        if fate == "silent":
            raise self._silence()
        return reply

    def _mutate_somehow(self, sent: float, request: str, table: bytes, asked: Any) -> Any:
        """Blind puts and deletes; rows of a server that is down are done late, or never."""
        self._require_served(request, table)
        mutations = self.mutations(request, table, asked)
        fate = self._draw(lost=2, silent=2, late=4, twice=8, partial=3)
        done, postponed = fate in ("", "silent", "twice"), fate in ("late", "twice")
        is_whole = fate in ("", "twice")
        for row, mutate in mutations:
            if fate == "partial":
                done, postponed = self._random.choice(((True, False), (False, True), (False, False)))
            if self._is_down(table, [row]):
                self._postpone(sent, mutate)
                is_whole = False
                continue
            if done:
                mutate()
            if postponed:
                self._postpone(sent, mutate)
        if not is_whole:
            raise self._silence()
        return [] if request == "deleteMultiple" else None

    def _swap(self, sent: float, *arguments: Any) -> bool:
        """A test-and-set: one that a server repeated by itself is told by its second outcome."""
        fate = self._draw(lost=2, late=2, silent=4, doubled=3)
        if self._is_down(arguments[0], [arguments[1]]):
            fate = "late"
        if fate == "late":
            self._postpone(sent, lambda: self._checkAndMutate(*arguments))
        if fate in ("lost", "late"):
            raise self._silence()
        done = self.reply("checkAndMutate", *arguments)
        if fate == "silent":
            raise self._silence()
        return self._checkAndMutate(*arguments) if fate == "doubled" else done

    def _require_served(self, request: str, table: bytes) -> None:
        """Of requests for many rows HBase tells that a table is gone by errors that may be repeated."""
        try:
            self._served(table)
        except StoreError:
            if request.endswith("Multiple"):
                raise StoreUnavailable(f"HBase could not do a request: {table.decode()} is gone") from None
            raise

    def _postpone(self, sent: float, mutate: Mutation) -> None:
        """Let it be done less than R after it was sent: soon, at some time, or as late as possible."""
        left = sent + TIMEOUT_SECONDS + LATE_SECONDS - self.seconds
        delay = self._random.choice((self._random.uniform(0, 3), self._random.uniform(0, left), left - 0.01))
        heapq.heappush(self._late, (self.seconds + min(max(delay, 0.0), left - 0.01), next(self._order), mutate))

    def _is_down(self, table: bytes, rows: Sequence[bytes]) -> bool:
        """Whether a server of some of these rows is down; one whose time has come is back."""
        if not self._down:
            return False
        self._down = {name: until for name, until in self._down.items() if until > self.seconds}
        known = self.tables.get(table)
        return known is not None and any(self._home_of(known, row).name in self._down for row in rows)

    def _home_of(self, table: Any, row: bytes) -> Server:
        return self.home(table.region(row))

    def _silence(self) -> StoreUnavailable:
        return StoreUnavailable("no answer from the Thrift server of a small HBase", "try again")

    def _draw(self, **percent: int) -> str:
        """One of the fates, or none."""
        at = self._random.random() * 100
        for fate, share in percent.items():
            at -= share
            if at < 0:
                self.counts[fate] += 1
                return fate
        return ""


class Time:
    """In the place of the module `time`: the time of a small HBase."""

    def __init__(self, hbase: HostileHBase) -> None:
        self._hbase = hbase

    def monotonic(self) -> float:
        return self._hbase.seconds

    def time(self) -> float:
        return (START_MS + 1_000) / 1_000 + self._hbase.seconds

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        self._hbase.between()
        self._hbase.pass_time(seconds)


def _rows_read(request: str, asked: Any) -> list[bytes]:
    if request == "getMultiple":
        return [get.row for get in asked]
    return [asked.row if request == "get" else (asked.startRow or b"")]


def _try(mutate: Mutation) -> None:
    """Who sent it does not listen any more; its table may be gone."""
    try:
        mutate()
    except StoreError:
        pass
