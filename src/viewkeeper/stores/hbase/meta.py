"""Meta in HBase: epoch record, catalog, plans and notes, and the lease of the running pipeline, in rows of one table.

In and out: JSON values; heartbeats of the pipeline. Always: epoch record, catalog and the read frontier of both are in one
row, replaced by test-and-set on a cell that holds the versions of both (R5); a swap is tried with the versions last
seen here, and they are read only when it was refused. A lost reply is StoreUnavailable, and the caller reads again. The
lease is changed by test-and-set alone, so one of several succeeds; it is lost when its process is gone, or when it was
not renewed for a minute. It only keeps pipelines out of each other's way: the epoch record decides who may write.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from viewkeeper.errors import CorruptStore, Fenced, NewerFormat, PipelineRunning, StoreError, StoreUnavailable
from viewkeeper.model.epochs import EpochRecord, record_from_json, record_to_json
from viewkeeper.model.read_frontier import ReadFrontier, frontier_bytes, parse_frontier
from viewkeeper.ports.admin import Admin
from viewkeeper.ports.meta import Holder, Kind, Meta, already_running
from viewkeeper.stores.catalog_json import CatalogText
from viewkeeper.stores.hbase.store_tables import NOTES, PLAN, STORE, MetaTable
from viewkeeper.stores.hbase.table_requests import Site

_LEASE_SECONDS = 60.0
_CLAIM = "claim"
_GIVEN_UP: set[str] = set()  # nonces of claims that nobody in this process has, though one may be put late


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease's cell as read: its value, who wrote it, and when by HBase's clock."""

    value: bytes
    nonce: str
    holder: Holder
    stamp_ms: int

    @property
    def is_live(self) -> bool:
        """Whether its holder may be alive; clocks of machines are compared, so it is no proof."""
        here = self.holder.host == platform.node()
        if self.nonce in _GIVEN_UP or (here and not _is_running(self.holder.pid)):
            return False
        return time.time() * 1_000 - self.stamp_ms < _LEASE_SECONDS * 1_000


class PipelineLease:
    """The right to run the pipeline, from construction to `release`."""

    def __init__(self, rows: MetaTable, *, take_over: bool, instead_of: Holder | None) -> None:
        self._rows = rows
        self._nonce = uuid.uuid4().hex
        self.is_held = True
        found = read_lease(rows)
        if found is not None and (found.is_live or instead_of is not None):
            if not take_over or instead_of not in (None, found.holder):
                raise already_running(found.holder, platform.node())
        self._swap(found)
        try:
            if not self._is_ours(read_lease(rows)):
                raise PipelineRunning("another pipeline is taking this store over", "stop it, or try again")
        except StoreError:
            _GIVEN_UP.add(self._nonce)
            raise

    def beat(self, waits: str = "") -> None:
        found = read_lease(self._rows)
        if found is None or not self._is_ours(found):
            raise Fenced("another pipeline took this store over", "stop this one")
        self._swap(found, waits)

    def release(self) -> None:
        self.is_held = False
        _GIVEN_UP.add(self._nonce)
        with suppress(StoreUnavailable):  # the lease ends by itself
            found = read_lease(self._rows)
            if found is not None and self._is_ours(found):
                self._rows.swap(STORE, _CLAIM, found.value, {_CLAIM: b""})

    def _is_ours(self, found: Lease | None) -> bool:
        return found is not None and found.nonce == self._nonce

    def _swap(self, found: Lease | None, waits: str = "") -> None:
        """Replace what was found by our next beat, if it is still there; a caller that must know reads the lease."""
        process = {"nonce": self._nonce, "host": platform.node(), "pid": os.getpid()}
        value = json.dumps(process | {"beat": time.time_ns(), "waits": waits}).encode()
        with suppress(StoreUnavailable):
            self._rows.swap(STORE, _CLAIM, b"" if found is None else found.value, {_CLAIM: value})


def read_lease(rows: MetaTable) -> Lease | None:
    """The lease as it is now; None: it was released, or nobody had it yet."""
    cell = rows.cells(STORE, _CLAIM).get(_CLAIM)
    if cell is None or not cell.value:
        return None
    facts = json.loads(cell.value)
    holder = Holder(facts["pid"], facts["beat"], facts["waits"], facts["host"])
    return Lease(cell.value, facts["nonce"], holder, cell.timestamp)


def _is_running(pid: int) -> bool:
    try:
        with suppress(PermissionError):  # a process of another user
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


_VERSIONS, _RECORD, _CATALOG, _FRONTIER, _INFLIGHT = "versions", "record", "catalog", "horizon", "inflight"
_INCARNATION, _PARTITIONS, _FORMAT = "incarnation", "partitions", "format"
FORMAT = 2  # of what is stored; in 1, which was not written down, rows that were staged were a log
_PLAN, _KEPT = "plan", "kept"
_ATTEMPTS_MAX = 100
_PLAN_SECONDS = 3_600.0  # for which a stored plan stays: nobody takes so long to begin an epoch with it
_KNOWN_SECONDS = 1.0
_UNSEEN = (None, -math.inf)
Versions = tuple[int, int]  # of the epoch record and of the catalog


def make_facts(rows: MetaTable, partitions: int) -> None:
    """Write the first facts of a store, unless it has some."""
    incarnation = uuid.uuid4().hex
    numbers = {_PARTITIONS: b"%d" % partitions, _FORMAT: b"%d" % FORMAT}
    facts = {_INCARNATION: incarnation.encode(), _CATALOG: b"{}"} | numbers
    try:
        rows.swap(STORE, _VERSIONS, b"", facts | _record_cells(record_to_json(EpochRecord.first(incarnation)), 0))
    except StoreUnavailable:
        if read_facts(rows) is None:
            raise


def read_facts(rows: MetaTable) -> tuple[str, int] | None:
    """The incarnation and the number of partitions; None where no store was made."""
    found = rows.read(STORE, _INCARNATION, _PARTITIONS, _FORMAT)
    if _INCARNATION not in found or _PARTITIONS not in found:
        return None
    if (written := int(found.get(_FORMAT, b"1"))) != FORMAT:
        fact, more = f"the store of {rows.table.decode()} has format {written}", f"this ViewKeeper reads {FORMAT}"
        if written > FORMAT:
            raise NewerFormat(fact, f"{more}: use a newer one")
        raise StoreError(fact, f"{more}: make a new store, in a namespace of its own, and map the tables again")
    return found[_INCARNATION].decode(), int(found[_PARTITIONS])


class MetaPart(Meta, Admin):
    """The port `Meta` over the store's own row."""

    _site: Site
    _catalog_text: CatalogText
    _seen_frontier: tuple[ReadFrontier | None, float] = _UNSEEN  # and when it was asked for
    _seen_record: dict | None = None
    _seen_catalog = 0  # the catalog's version

    @property
    def _rows(self) -> MetaTable:
        return self._site.rows

    def validate(self, epoch: int) -> int:
        """Raise Fenced unless the epoch is in flight (VALIDATE); returns the catalog's version."""
        found = self._rows.read(STORE, _INFLIGHT, _VERSIONS)
        if int(found.get(_INFLIGHT, b"0")) != epoch:
            raise Fenced(
                f"epoch {epoch} is no longer in flight", "another pipeline finished or aborted it; stop this one"
            )
        return _parse(found.get(_VERSIONS))[1]

    def read_epoch_record(self) -> EpochRecord:
        return record_from_json(self._read_record())

    def _read_record(self) -> dict:
        self._seen_record = found = json.loads(self._one(_RECORD))
        return found

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        plain = record_to_json(record)

        def cells(versions: Versions) -> dict[str, bytes] | None:
            return None if versions[0] != expected_version else _record_cells(plain, versions[1])

        is_done = self._swap((expected_version, self._seen_catalog), cells)
        self._seen_record = plain if is_done else None
        return is_done

    def read_frontier(self) -> ReadFrontier:
        found = parse_frontier(self._one(_FRONTIER))
        self._seen_catalog = found.catalog_version
        return found

    def _after_frontier(self, table: int, request: str, *arguments: object) -> tuple[ReadFrontier, Any] | None:
        """The read frontier, and the reply to a request to a table that begins after it was read; None without the table."""
        began = time.monotonic()
        replies = self._site.ask_after([self._rows.get_of(STORE, _FRONTIER)], table, request, *arguments)
        if replies is None:
            return None
        frontier = parse_frontier(replies[0].columnValues[0].value)
        self._seen_frontier = (frontier, began)
        return frontier, replies[1]

    def _known_frontier(self) -> ReadFrontier | None:
        """The read frontier as this process read it, less than a second ago and after its own last swap."""
        frontier, read = self._seen_frontier
        return frontier if time.monotonic() < read + _KNOWN_SECONDS else None

    def read_catalog(self) -> dict:
        return self._catalog_text.read(self._one(_CATALOG))

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        written, seen = self._catalog_text.write(catalog), self._seen_record

        def cells(versions: Versions) -> dict[str, bytes] | None:
            if versions[1] != expected_version:
                return None
            is_seen = seen and seen["version"] == versions[0]  # else it is read: of these versions, or the swap fails
            record = (seen if is_seen else None) or self._read_record()
            return {
                _CATALOG: written,
                _FRONTIER: frontier_bytes(record, catalog["version"]),
                _VERSIONS: b"%d.%d" % (versions[0], catalog["version"]),
            }

        return self._swap(None if seen is None else (seen["version"], expected_version), cells)

    def _swap(self, seen: Versions | None, cells_for: Callable[[Versions], dict[str, bytes] | None]) -> bool:
        """Put the cells for the versions last seen, then for those that are there, until no other swap comes between."""
        versions = seen or _parse(self._one(_VERSIONS))
        for _ in range(_ATTEMPTS_MAX):
            cells = cells_for(versions)
            if cells is None:
                return False
            if self._rows.swap(STORE, _VERSIONS, b"%d.%d" % versions, cells):
                self._seen_frontier, self._seen_catalog = _UNSEEN, _parse(cells[_VERSIONS])[1]
                return True
            versions = _parse(self._one(_VERSIONS))
        raise StoreUnavailable("others swap the epoch record or the catalog all the time", "try again")

    def _keep_plan(self, digest: str, plan: dict) -> None:
        """Store a plan, and empty old plans except the one of the epoch in flight.

        A new nonce is swapped in with it each time, so a late request to empty the plan fails once it is stored again. A
        plan that was stored lately stays, because another pipeline may be about to begin an epoch with it.
        """
        row = PLAN + digest.encode()
        facts = {_PLAN: json.dumps(plan).encode(), _KEPT: uuid.uuid4().hex.encode()}
        for _ in range(_ATTEMPTS_MAX):
            self._rows.swap(row, _KEPT, self._rows.read(row, _KEPT).get(_KEPT, b""), facts, repeats=True)
            if self._rows.read(row, *facts) == facts:
                self._empty_old_plans(row)
                return
        raise StoreUnavailable(
            f"HBase lost plan {digest} right after it was written", "check that the clocks of its region servers agree"
        )

    def _empty_old_plans(self, newest: bytes) -> None:
        kept = self._rows.cells_from(PLAN, PLAN + b"\xff", _KEPT)
        inflight = self.read_epoch_record().inflight
        asked = PLAN + inflight.plan.encode() if inflight else newest
        for row, cell in kept.items():
            if cell.value and row != asked and cell.timestamp < kept[newest].timestamp - _PLAN_SECONDS * 1_000:
                self._rows.swap(row, _KEPT, cell.value, {_PLAN: b"", _KEPT: b""}, repeats=True)

    def keep_json(self, kind: Kind, name: str, value: dict) -> None:
        if kind == "plan":
            self._keep_plan(name, value)
        else:
            self._rows.put(NOTES, {name: json.dumps(value).encode()})

    def read_json(self, kind: Kind, name: str) -> dict:
        if kind == "note":
            return json.loads(self._rows.read(NOTES, name).get(name, b"{}"))
        found = self._rows.read(PLAN + name.encode(), _PLAN).get(_PLAN)
        if not found:
            raise CorruptStore(
                f"the store lacks plan {name} of the epoch in flight",
                "restore the store's tables, or make a new store and map the tables again",
            )
        return json.loads(found)

    def claim(self, *, take_over: bool, instead_of: Holder | None = None) -> PipelineLease:
        return PipelineLease(self._rows, take_over=take_over, instead_of=instead_of)

    def holder(self) -> Holder | None:
        found = read_lease(self._rows)
        return None if found is None else replace(found.holder, is_live=found.is_live)

    def _one(self, name: str) -> bytes:
        found = self._rows.read(STORE, name)
        if name not in found:
            raise CorruptStore(f"the store at {self._site.address.url} has no {name}", "restore its tables")
        return found[name]


def _record_cells(plain: dict, catalog_version: int) -> dict[str, bytes]:
    """The cells to put with an epoch record, which is given as JSON."""
    inflight = plain["inflight"]
    return {
        _RECORD: json.dumps(plain).encode(),
        _FRONTIER: frontier_bytes(plain, catalog_version),
        _INFLIGHT: b"%d" % (inflight["epoch"] if inflight else 0),
        _VERSIONS: b"%d.%d" % (plain["version"], catalog_version),
    }


def _parse(versions: bytes | None) -> Versions:
    first, _, second = (versions or b"0.0").partition(b".")
    return int(first), int(second)
