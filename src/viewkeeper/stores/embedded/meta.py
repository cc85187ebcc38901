"""Meta: the store's small facts: what it is, its clock, its catalog and its epoch record.

In and out: JSON under fixed names in one synced environment. Always: catalog and epoch record are replaced by
test-and-set on their version (R5), and durable when the swap returns True. The horizon, all that a reader needs of
both, is written in the same transaction, so that a read by key parses neither.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import lmdb

from viewkeeper.errors import CorruptStore
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, record_from_json, record_to_json
from viewkeeper.model.json_codec import reading
from viewkeeper.model.read_frontier import Horizon, horizon_bytes, parse_horizon
from viewkeeper.stores.catalog_json import CatalogText, dump
from viewkeeper.stores.embedded.lmdb_environment import Environment
from viewkeeper.stores.placement import Placement, fills_from

_CATALOG, _EPOCH, _CLOCK, _HORIZON, _VIEWS = b"catalog", b"epoch", b"clock", b"horizon", b"views"
_PLACEMENT = b"placement"
_PLAN = b"plan "  # and its digest
_NOTE = b"note "  # and its name


class Meta:
    """The meta environment of a store; `handle` returns it, opened at first use."""

    def __init__(self, handle: Callable[[], Environment], nodes: int) -> None:
        self._handle = handle
        self._first_placement = Placement.first(nodes)
        self._catalog_text = CatalogText()

    @property
    def environment(self) -> Environment:
        return self._handle()

    def read_epoch_record(self) -> EpochRecord:
        return _parse_record(self._read(_EPOCH))

    def epoch_record_in(self, snapshot: lmdb.Transaction) -> EpochRecord:
        """The epoch record as a read transaction sees it."""
        value = snapshot.get(_EPOCH, db=self.environment.database("meta"))
        return _parse_record(None if value is None else _load(_EPOCH, value))

    def begin_incarnation(self, incarnation: str) -> None:
        """Make this the meta of a new store, restored whole (R19)."""
        record = self.read_epoch_record()
        self.swap_epoch_record(record.version, epochs.begin_incarnation(record, incarnation))
        self.mark_views("restored", clean=True)
        with self.environment.write("meta") as transaction:
            transaction.delete(_CLOCK)  # it belongs to the machine and boot where it was made

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        filling_from = fills_from(record)
        return self._swap_record(expected_version, record_to_json(record), filling_from)

    def create_epoch_record(self, record: EpochRecord) -> None:
        if not self.has_epoch_record():
            self._swap_record(record.version, record_to_json(record))

    def has_epoch_record(self) -> bool:
        return self._read(_EPOCH) is not None

    def read_horizon(self) -> Horizon:
        """What readers may see now."""
        environment = self.environment
        environment.look()
        with environment.read("meta") as transaction:
            value = transaction.get(_HORIZON)
        return parse_horizon(value or b"")

    def read_catalog(self) -> dict:
        value = self._bytes(_CATALOG)
        return {} if value is None else self._parse_catalog(value)

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        with self.environment.write("meta") as transaction:
            stored = transaction.get(_CATALOG)
            if (self._parse_catalog(stored)["version"] if stored else 0) != expected_version:
                return False
            transaction.put(_CATALOG, self._catalog_text.write(catalog))
            record = _load(_EPOCH, transaction.get(_EPOCH))
            transaction.put(_HORIZON, horizon_bytes(record, catalog["version"]))
        return True

    def _parse_catalog(self, value: bytes) -> dict:
        with reading("catalog"):
            return self._catalog_text.read(value)

    def keep_plan(self, digest: str, plan: dict) -> None:
        """Store a plan under its digest; of the others only that of the epoch in flight is kept."""
        name = _PLAN + digest.encode()
        if self._read(name) is not None:
            return
        with self.environment.write("meta") as transaction:
            inflight = _load(_EPOCH, transaction.get(_EPOCH))["inflight"]
            kept = _PLAN + inflight["plan"].encode() if inflight else b""
            cursor = transaction.cursor()
            there = cursor.set_range(_PLAN)
            while there and cursor.key().startswith(_PLAN):
                there = cursor.next() if cursor.key() == kept else cursor.delete()
            transaction.put(name, _dump(plan))

    def read_plan(self, digest: str) -> dict:
        plan = self._read(_PLAN + digest.encode())
        if plan is None:
            raise CorruptStore(f"the plan {digest} of an epoch is not there", "restore the whole store from a backup")
        return plan

    def keep_note(self, name: str, note: dict) -> None:
        with self.environment.write("meta") as transaction:
            transaction.put(_NOTE + name.encode(), _dump(note))

    def read_note(self, name: str) -> dict:
        return self._read(_NOTE + name.encode()) or {}

    def read_placement(self) -> Placement:
        with self.environment.read("meta") as transaction:
            return self.placement_in(transaction)

    def placement_in(self, transaction: lmdb.Transaction) -> Placement:
        """The placement as an open transaction sees it."""
        value = transaction.get(_PLACEMENT, db=self.environment.database("meta"))
        return self._first_placement if value is None else _parse_placement(value)

    def change_placement(self, change: Callable[[Placement, EpochRecord], Placement]) -> Placement:
        """Replace the placement by what `change` makes of it and of the epoch record; durable when this returns."""
        with self.environment.write("meta") as transaction:
            placement = self.placement_in(transaction)
            changed = change(placement, self.epoch_record_in(transaction))
            if changed != placement:
                changed = replace(changed, version=placement.version + 1)
                transaction.put(_PLACEMENT, _dump(changed.to_json()))
        return changed

    def sync(self) -> None:
        self.environment.sync()

    def clock_base(self, boot: str, last_stamp: int, *, is_writable: bool) -> int:
        """What to add to the monotonic clock so that stamps grow over reboots."""
        known = self._read(_CLOCK)
        if known and known["boot"] == boot:
            return known["base"]
        if not is_writable:  # then there are no stamps
            return time.time_ns() - time.monotonic_ns()
        with self.environment.write("meta") as transaction:
            known = _load(_CLOCK, transaction.get(_CLOCK) or b"{}")
            if known.get("boot") != boot:
                known = {"boot": boot, "base": max(time.time_ns(), last_stamp + 1) - time.monotonic_ns()}
                transaction.put(_CLOCK, _dump(known))
            return known["base"]

    def unclean_boot(self) -> str | None:
        """The boot in which views were last written and not marked clean since; None when they are clean."""
        known = self._read(_VIEWS)
        return None if known is None or known["clean"] else known["boot"]

    def mark_views(self, boot: str, *, clean: bool, owner: str | None = None) -> None:
        """Set whether a power loss may tear the views; with an owner, only if it still owns the epoch record."""
        with self.environment.write("meta") as transaction:
            if owner is not None and _load(_EPOCH, transaction.get(_EPOCH))["owner"] != owner:
                return  # the new owner writes views, and marks them when it is done
            transaction.put(_VIEWS, _dump({"boot": boot, "clean": clean}))

    def _read(self, name: bytes) -> dict | None:
        value = self._bytes(name)
        return None if value is None else _load(name, value)

    def _bytes(self, name: bytes) -> bytes | None:
        environment = self.environment
        environment.require_in_place()
        with environment.read("meta") as transaction:
            return transaction.get(name)

    def _swap_record(self, expected_version: int, value: dict, filling_from: int | None = None) -> bool:
        with self.environment.write("meta") as transaction:
            stored = transaction.get(_EPOCH)
            if (_load(_EPOCH, stored)["version"] if stored else 0) != expected_version:
                return False
            if filling_from is not None and self.placement_in(transaction).may_have_moved(filling_from):
                return False
            transaction.put(_EPOCH, _dump(value))
            horizon = transaction.get(_HORIZON)
            catalog_version = 0 if horizon is None else parse_horizon(horizon).catalog_version
            transaction.put(_HORIZON, horizon_bytes(value, catalog_version))
        return True


def _parse_record(value: dict | None) -> EpochRecord:
    if value is None:
        raise CorruptStore("the store has no epoch record", "restore it from a backup")
    with reading("epoch record"):
        return record_from_json(value)


def _load(name: bytes, value: bytes) -> dict:
    with reading(name.decode().split()[0]):
        found = json.loads(value)
        if not isinstance(found, dict):
            raise TypeError(f"{name!r} is no object of JSON")
        return found


@lru_cache(maxsize=8)
def _parse_placement(value: bytes) -> Placement:
    with reading("placement"):
        return Placement.from_json(_load(_PLACEMENT, value))


def _dump(value: dict) -> bytes:
    return dump(value).encode()
