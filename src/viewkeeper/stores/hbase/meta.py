"""Meta in HBase: epoch record, catalog, plans and notes, and the lease of the running pipeline, in rows of one table.

In and out: JSON values; heartbeats of the pipeline. Always: epoch record, catalog and the horizon of both are in one
row, replaced by test-and-set on a cell that holds the versions of both (R5); a reply that got lost is StoreUnavailable,
and whoever swapped reads again. The lease is changed by test-and-set alone, so of several who take it one succeeds; one
whose process is gone, or that has not renewed it for a minute, has lost it. It only keeps pipelines from getting into
each other's way: the epoch record decides who may write.
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
from dataclasses import dataclass
from typing import Any

from viewkeeper.errors import CorruptStore, Fenced, PipelineRunning, StoreUnavailable
from viewkeeper.model.epochs import EpochRecord, record_from_json, record_to_json
from viewkeeper.model.read_frontier import Horizon, horizon_bytes, parse_horizon
from viewkeeper.ports.meta import Holder, already_running
from viewkeeper.stores.catalog_json import CatalogText
from viewkeeper.stores.hbase.store_tables import NOTES, PLAN, STORE, MetaTable
from viewkeeper.stores.hbase.table_requests import Site

_LEASE_SECONDS = 60.0
_CLAIM = "claim"


@dataclass(frozen=True, slots=True)
class Lease:
    """The cell as read: its value, who wrote it, and when by HBase's clock."""

    value: bytes
    nonce: str
    holder: Holder
    stamp_ms: int

    @property
    def is_live(self) -> bool:
        """Whether its holder may be alive; clocks of machines are compared, so it is no proof."""
        here = self.holder.host == platform.node()
        if here and not _is_running(self.holder.pid):
            return False
        return time.time() * 1_000 - self.stamp_ms < _LEASE_SECONDS * 1_000


class PipelineLease:
    """Held from construction to `release`."""

    def __init__(self, rows: MetaTable, *, take_over: bool, instead_of: Holder | None) -> None:
        self._rows = rows
        self._nonce = uuid.uuid4().hex
        self.is_held = True
        found = read_lease(rows)
        if found is not None and (found.is_live or instead_of is not None):
            has_moved = instead_of not in (None, found.holder)
            if has_moved or not take_over:
                raise already_running(found.holder, platform.node())
        self._swap(found)
        if not self._is_ours(read_lease(rows)):
            raise PipelineRunning("another pipeline is taking this store over", "stop it, or try again")

    def beat(self, waits: str = "") -> None:
        found = read_lease(self._rows)
        if found is None or not self._is_ours(found):
            raise Fenced("another pipeline took this store over", "stop this one")
        self._swap(found, waits)

    def release(self) -> None:
        self.is_held = False
        with suppress(StoreUnavailable):  # the lease ends by itself
            found = read_lease(self._rows)
            if found is not None and self._is_ours(found):
                self._rows.swap(STORE, _CLAIM, found.value, {_CLAIM: b""})

    def _is_ours(self, found: Lease | None) -> bool:
        return found is not None and found.nonce == self._nonce

    def _swap(self, found: Lease | None, waits: str = "") -> None:
        """Put our next beat in the place of what was found, if that is still there; whoever must know looks."""
        facts = {
            "nonce": self._nonce,
            "host": platform.node(),
            "pid": os.getpid(),
            "beat": time.time_ns(),
            "waits": waits,
        }
        value = json.dumps(facts).encode()
        with suppress(StoreUnavailable):
            self._rows.swap(STORE, _CLAIM, b"" if found is None else found.value, {_CLAIM: value})


def read_lease(rows: MetaTable) -> Lease | None:
    """The claim as it is now; None when it was given back, or there was none."""
    cell = rows.cells(STORE, _CLAIM).get(_CLAIM)
    if cell is None or not cell.value:
        return None
    facts = json.loads(cell.value)
    holder = Holder(facts["pid"], facts["beat"], facts["waits"], facts["host"])
    return Lease(cell.value, facts["nonce"], holder, cell.timestamp)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_VERSIONS, _RECORD, _CATALOG, _HORIZON, _INFLIGHT = "versions", "record", "catalog", "horizon", "inflight"
_INCARNATION, _PARTITIONS = "incarnation", "partitions"
_PLAN, _KEPT = "plan", "kept"
_ATTEMPTS_MAX = 100
_PLAN_SECONDS = 3_600.0  # for how long a plan that was stored stays: more than anybody takes to begin an epoch with it
_KNOWN_SECONDS = 1.0
_UNSEEN = (None, -math.inf)
Versions = tuple[int, int]  # of the epoch record and of the catalog


def make_facts(rows: MetaTable, partitions: int) -> None:
    """The first facts of a store, unless it has some."""
    incarnation = uuid.uuid4().hex
    facts = {_INCARNATION: incarnation.encode(), _PARTITIONS: b"%d" % partitions, _CATALOG: b"{}"}
    try:
        rows.swap(STORE, _VERSIONS, b"", facts | _record_cells(EpochRecord.first(incarnation), 0))
    except StoreUnavailable:
        if read_facts(rows) is None:
            raise


def read_facts(rows: MetaTable) -> tuple[str, int] | None:
    """The incarnation and the number of partitions; None where no store was made."""
    found = rows.read(STORE, _INCARNATION, _PARTITIONS)
    return (found[_INCARNATION].decode(), int(found[_PARTITIONS])) if len(found) == 2 else None


class MetaPart:
    """The port `Meta`."""

    _site: Site
    _catalog_text: CatalogText
    _seen_horizon: tuple[Horizon | None, float] = _UNSEEN  # and when it was asked for

    @property
    def _rows(self) -> MetaTable:
        return self._site.rows

    def validate(self, epoch: int) -> int:
        """Raise Fenced unless the epoch is in flight (VALIDATE); returns the catalog's version."""
        found = self._rows.read(STORE, _INFLIGHT, _VERSIONS)
        if int(found.get(_INFLIGHT, b"0")) != epoch:
            raise Fenced(f"epoch {epoch} is no longer in flight")
        return _parse(found.get(_VERSIONS))[1]

    def read_epoch_record(self) -> EpochRecord:
        return record_from_json(json.loads(self._one(_RECORD)))

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        return self._swap(
            lambda versions: None if versions[0] != expected_version else _record_cells(record, versions[1])
        )

    def change_epoch_record(self, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        while True:
            record = self.read_epoch_record()
            changed = change(record)
            try:
                if self.swap_epoch_record(record.version, changed):
                    return changed
            except StoreUnavailable:
                if self.read_epoch_record() != changed:
                    raise
                return changed

    def read_horizon(self) -> Horizon:
        return parse_horizon(self._one(_HORIZON))

    def _after_horizon(self, table: int, request: str, *arguments: object) -> tuple[Horizon, Any] | None:
        """The horizon, and the reply to a request to a table that was begun after it was read; None without the table."""
        began = time.monotonic()
        replies = self._site.ask_after([self._rows.get_of(STORE, _HORIZON)], table, request, *arguments)
        if replies is None:
            return None
        horizon = parse_horizon(replies[0].columnValues[0].value)
        self._seen_horizon = (horizon, began)
        return horizon, replies[1]

    def _known_horizon(self) -> Horizon | None:
        """The horizon as this process read it, less than a second ago and after its own last swap."""
        horizon, read = self._seen_horizon
        return horizon if time.monotonic() < read + _KNOWN_SECONDS else None

    def read_catalog(self) -> dict:
        return self._catalog_text.read(self._one(_CATALOG))

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        written = self._catalog_text.write(catalog)

        def cells(versions: Versions) -> dict[str, bytes] | None:
            if versions[1] != expected_version:
                return None
            record = json.loads(self._one(_RECORD))  # of these versions, or the swap fails
            return {
                _CATALOG: written,
                _HORIZON: horizon_bytes(record, catalog["version"]),
                _VERSIONS: b"%d.%d" % (versions[0], catalog["version"]),
            }

        return self._swap(cells)

    def _swap(self, cells_for: Callable[[Versions], dict[str, bytes] | None]) -> bool:
        """Put what belongs to the versions as they are now; again where the other of the two was swapped meanwhile."""
        for _ in range(_ATTEMPTS_MAX):
            found = self._one(_VERSIONS)
            cells = cells_for(_parse(found))
            if cells is None:
                return False
            if self._rows.swap(STORE, _VERSIONS, found, cells):
                self._seen_horizon = _UNSEEN
                return True
        raise StoreUnavailable("others swap the epoch record or the catalog all the time", "try again")

    def keep_plan(self, digest: str, plan: dict) -> None:
        """Store a plan, and empty old ones but that of the epoch in flight.

        A nonce is swapped with it each time: who would empty it late, or after a stop, does not once it is stored again. One
        that was stored lately stays, because another pipeline may be about to begin an epoch with it.
        """
        row = PLAN + digest.encode()
        facts = {_PLAN: json.dumps(plan).encode(), _KEPT: uuid.uuid4().hex.encode()}
        for _ in range(_ATTEMPTS_MAX):
            self._rows.swap_surely(row, _KEPT, self._rows.read(row, _KEPT).get(_KEPT, b""), facts)
            if self._rows.read(row, *facts) == facts:
                self._empty_old_plans(row)
                return
        raise StoreUnavailable(f"the plan {digest} does not stay", "look at the clocks of HBase's servers")

    def _empty_old_plans(self, newest: bytes) -> None:
        kept = self._rows.cells_from(PLAN, PLAN + b"\xff", _KEPT)
        inflight = self.read_epoch_record().inflight
        asked = PLAN + inflight.plan.encode() if inflight else newest
        for row, cell in kept.items():
            if cell.value and row != asked and cell.timestamp < kept[newest].timestamp - _PLAN_SECONDS * 1_000:
                self._rows.swap_surely(row, _KEPT, cell.value, {_PLAN: b"", _KEPT: b""})

    def read_plan(self, digest: str) -> dict:
        found = self._rows.read(PLAN + digest.encode(), _PLAN).get(_PLAN)
        if not found:
            raise CorruptStore(f"the plan {digest} of an epoch is not there", "make a new store")
        return json.loads(found)

    def keep_note(self, name: str, note: dict) -> None:
        self._rows.put(NOTES, name, json.dumps(note).encode())

    def read_note(self, name: str) -> dict:
        return json.loads(self._rows.read(NOTES, name).get(name, b"{}"))

    def claim(self, *, take_over: bool, instead_of: Holder | None = None) -> PipelineLease:
        return PipelineLease(self._rows, take_over=take_over, instead_of=instead_of)

    def holder(self) -> Holder | None:
        found = read_lease(self._rows)
        return None if found is None else found.holder

    def claimed_by(self) -> int | None:
        found = read_lease(self._rows)
        return found.holder.pid if found is not None and found.is_live else None

    def sync_epoch_record(self) -> None:
        """What HBase has acknowledged is as durable as its write-ahead log."""

    def _one(self, name: str) -> bytes:
        found = self._rows.read(STORE, name)
        if name not in found:
            raise CorruptStore(f"the store at {self._site.address.url} has no {name}", "restore its tables")
        return found[name]


def _record_cells(record: EpochRecord, catalog_version: int) -> dict[str, bytes]:
    """What is swapped with an epoch record."""
    plain = record_to_json(record)
    return {
        _RECORD: json.dumps(plain).encode(),
        _HORIZON: horizon_bytes(plain, catalog_version),
        _INFLIGHT: b"%d" % (record.inflight.epoch if record.inflight else 0),
        _VERSIONS: b"%d.%d" % (record.version, catalog_version),
    }


def _parse(versions: bytes | None) -> Versions:
    first, _, second = (versions or b"0.0").partition(b".")
    return int(first), int(second)
