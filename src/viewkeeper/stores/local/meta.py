"""Meta: the store's small facts: what it is, its clock, its catalog and its epoch record.

In and out: JSON under fixed names in one synced kernel. Always: catalog and epoch record are replaced by
test-and-set on their version (R5), and durable when the swap returns True. The read frontier, all that a reader needs of
both, is written in the same transaction, so that a read by key parses neither.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from viewkeeper.errors import CorruptStore, RowsMoved
from viewkeeper.model import epochs
from viewkeeper.model.epochs import EpochRecord, record_from_json, record_to_json
from viewkeeper.model.json_codec import fields_to_json, from_json_value, reading
from viewkeeper.model.read_frontier import ReadFrontier, frontier_bytes, parse_frontier
from viewkeeper.ports.meta import Kind
from viewkeeper.stores.catalog_json import CatalogText, dump
from viewkeeper.stores.kv.file_locks import BUSY_SECONDS
from viewkeeper.stores.kv.kernel import Kernel, OrderedMap
from viewkeeper.stores.local.placement import Placement, fills_from

_CATALOG, _EPOCH, _CLOCK, _FRONTIER, _VIEWS = b"catalog", b"epoch", b"clock", b"horizon", b"views"
_PLACEMENT = b"placement"
_PLAN = b"plan "  # and its digest


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLayout:
    """What was fixed when a store was made; `nodes` is how many it was made with."""

    nodes: int
    partitions: int
    incarnation: str
    before_images: bool
    synced: bool = True  # a write that has returned survives a power loss, as far as anything in the store can
    is_writable: bool = True
    busy_seconds: float = BUSY_SECONDS  # how long a write waits for others


class Meta:
    """`handle` returns the kernel of meta, opened at first use."""

    def __init__(self, handle: Callable[[], Kernel], nodes: int) -> None:
        self._handle = handle
        self._first_placement = Placement.first(nodes)
        self._catalog_text = CatalogText()

    @property
    def kernel(self) -> Kernel:
        return self._handle()

    def read_epoch_record(self) -> EpochRecord:
        return _parse_record(self._bytes(_EPOCH))

    def epoch_record_in(self, meta: OrderedMap) -> EpochRecord:
        """The epoch record as an open transaction sees it."""
        return _parse_record(meta.get(_EPOCH))

    def begin_incarnation(self, incarnation: str) -> None:
        """Make this the meta of a new store, restored whole (R19)."""
        record = self.read_epoch_record()
        self.swap_epoch_record(record.version, epochs.begin_incarnation(record, incarnation))
        self.mark_views("restored", clean=True)
        with self.kernel.write("meta") as meta:
            meta.delete_many((_CLOCK,))  # it belongs to the machine and boot where it was made

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        """RowsMoved where an epoch would fill views from rows that have moved since it was planned."""
        value, filling_from = record_to_json(record), fills_from(record)
        with self.kernel.write("meta") as meta:
            stored = meta.get(_EPOCH)
            known = _load(_EPOCH, stored) if stored else {"version": 0, "inflight": None}
            if known["version"] != expected_version:
                return False
            if filling_from is not None and self.placement_in(meta).may_have_moved(filling_from):
                raise RowsMoved("rows have moved to another node since the epoch was planned", "it is planned again")
            meta.put(_EPOCH, _dump(value))
            if value["inflight"] and known["inflight"] is None:
                # Only the owner of the epoch record begins an epoch, so no plan goes that another is about to use.
                plan = _PLAN + value["inflight"]["plan"].encode()
                plans = takewhile(lambda pair: pair[0].startswith(_PLAN), meta.walk(_PLAN))
                meta.delete_many([name for name, _ in plans if name != plan])
            frontier = meta.get(_FRONTIER)
            catalog_version = 0 if frontier is None else parse_frontier(frontier).catalog_version
            meta.put(_FRONTIER, frontier_bytes(value, catalog_version))
        return True

    def create_epoch_record(self, record: EpochRecord) -> None:
        if not self.has_epoch_record():
            self.swap_epoch_record(record.version, record)

    def has_epoch_record(self) -> bool:
        """Parses it: a store whose record is damaged is not opened, and so not written."""
        return self._read(_EPOCH) is not None

    def read_frontier(self) -> ReadFrontier:
        """What readers may see now."""
        kernel = self.kernel
        kernel.look()
        with kernel.read("meta") as meta:
            value = meta.get(_FRONTIER)
        return parse_frontier(value or b"")

    def read_catalog(self) -> dict:
        value = self._bytes(_CATALOG)
        return self._parse_catalog(value) if value else {}

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        with self.kernel.write("meta") as meta:
            stored = meta.get(_CATALOG)
            if (self._parse_catalog(stored)["version"] if stored else 0) != expected_version:
                return False
            meta.put(_CATALOG, self._catalog_text.write(catalog))
            record = _load(_EPOCH, meta.get(_EPOCH) or b"")
            meta.put(_FRONTIER, frontier_bytes(record, catalog["version"]))
        return True

    def _parse_catalog(self, value: bytes) -> dict:
        with reading("catalog"):
            return self._catalog_text.read(value)

    def keep_json(self, kind: Kind, name: str, value: dict) -> None:
        """A plan is stored once; those of no epoch go when the next one begins."""
        key = f"{kind} {name}".encode()
        if kind == "note" or self._read(key) is None:
            with self.kernel.write("meta") as meta:
                meta.put(key, _dump(value))

    def read_json(self, kind: Kind, name: str) -> dict:
        found = self._read(f"{kind} {name}".encode())
        if found is None and kind == "plan":
            raise CorruptStore(
                f"the store lacks plan {name} of the epoch in flight", "restore the whole store from a backup"
            )
        return found or {}

    def read_placement(self) -> Placement:
        with self.kernel.read("meta") as meta:
            return self.placement_in(meta)

    def placement_in(self, meta: OrderedMap) -> Placement:
        """The placement as an open transaction sees it."""
        value = meta.get(_PLACEMENT)
        return self._first_placement if value is None else _parse_placement(value)

    def change_placement(self, change: Callable[[Placement, EpochRecord], Placement]) -> Placement:
        """Replace the placement by what `change` makes of it and of the epoch record; durable when this returns."""
        with self.kernel.write("meta") as meta:
            placement = self.placement_in(meta)
            changed = change(placement, self.epoch_record_in(meta))
            if changed != placement:
                changed = replace(changed, version=placement.version + 1)
                meta.put(_PLACEMENT, _dump(fields_to_json(changed, without=("only",))))
        return changed

    def clock_base(self, boot: str, last_stamp: int, *, is_writable: bool) -> int:
        """What to add to the monotonic clock so that stamps grow over reboots."""
        known = self._read(_CLOCK)
        if known and known["boot"] == boot:
            return known["base"]
        if not is_writable:  # then there are no stamps
            return time.time_ns() - time.monotonic_ns()
        with self.kernel.write("meta") as meta:
            known = _load(_CLOCK, meta.get(_CLOCK) or b"{}")
            if known.get("boot") != boot:
                known = {"boot": boot, "base": max(time.time_ns(), last_stamp + 1) - time.monotonic_ns()}
                meta.put(_CLOCK, _dump(known))
            return known["base"]

    def unclean_boot(self) -> str | None:
        """The boot in which views were last written and not marked clean since; None when they are clean."""
        known = self._read(_VIEWS)
        return None if known is None or known["clean"] else known["boot"]

    def mark_views(self, boot: str, *, clean: bool, owner: str | None = None) -> None:
        """Set whether a power loss may tear the views; with an owner, only if it still owns the epoch record."""
        with self.kernel.write("meta") as meta:
            if owner is not None and _load(_EPOCH, meta.get(_EPOCH) or b"")["owner"] != owner:
                return  # the new owner writes views, and marks them when it is done
            meta.put(_VIEWS, _dump({"boot": boot, "clean": clean}))

    def _read(self, name: bytes) -> dict | None:
        value = self._bytes(name)
        return None if value is None else _load(name, value)

    def _bytes(self, name: bytes) -> bytes | None:
        kernel = self.kernel
        kernel.require_in_place()
        with kernel.read("meta") as meta:
            return meta.get(name)


def _parse_record(value: bytes | None) -> EpochRecord:
    if value is None:
        raise CorruptStore("the store has no epoch record", "restore it from a backup")
    with reading("epoch record"):
        return record_from_json(_load(_EPOCH, value))


def _load(name: bytes, value: bytes) -> dict:
    with reading(name.decode().split()[0]):
        found = json.loads(value)
        if not isinstance(found, dict):
            raise TypeError(f"{name!r} is no object of JSON")
        return found


@lru_cache(maxsize=8)
def _parse_placement(value: bytes) -> Placement:
    with reading("placement"):
        return from_json_value(Placement, _load(_PLACEMENT, value))


def _dump(value: dict) -> bytes:
    return dump(value).encode()
