"""Meta in memory: catalog, epoch record and the horizon that is taken from both.

In and out: JSON values. Always: they are kept as text, so no caller changes what another one reads; each is replaced by
test-and-set on its version (R5), the horizon with them. A writer takes the store's lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import RLock

from viewkeeper.errors import CorruptStore
from viewkeeper.model.epochs import EpochRecord, record_from_json, record_to_json
from viewkeeper.model.horizon import Horizon, horizon_bytes, parse_horizon
from viewkeeper.stores.catalogtext import CatalogText
from viewkeeper.stores.placement import Placement, fills_from


class Meta:
    """The small facts of a store."""

    def __init__(self, record: EpochRecord, lock: RLock, nodes: int) -> None:
        self._lock = lock
        self._placement = Placement.first(nodes)
        self._record = json.dumps(record_to_json(record))
        self._text = CatalogText()
        self._catalog = b"{}"
        self._horizon = horizon_bytes(record_to_json(record), 0)
        self._plans: dict[str, str] = {}
        self._notes: dict[str, str] = {}

    def read_epoch_record(self) -> EpochRecord:
        return record_from_json(json.loads(self._record))

    def read_catalog(self) -> dict:
        return self._text.read(self._catalog)

    def read_horizon(self) -> Horizon:
        return parse_horizon(self._horizon)

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        with self._lock:
            is_expected = json.loads(self._record)["version"] == expected_version
            instant = fills_from(record)
            if instant is not None and self._placement.is_unsettled(instant):
                return False
            if is_expected:
                self._replace(json.dumps(record_to_json(record)), self._catalog)
            return is_expected

    def keep_plan(self, digest: str, plan: dict) -> None:
        """Store a plan; of the others only that of the epoch in flight is kept."""
        with self._lock:
            inflight = self.read_epoch_record().inflight
            kept = (digest, inflight.plan) if inflight else (digest,)
            plans = self._plans | {digest: json.dumps(plan)}
            self._plans = {name: text for name, text in plans.items() if name in kept}

    def read_plan(self, digest: str) -> dict:
        if digest not in self._plans:
            raise CorruptStore(f"the plan {digest} of an epoch is not there", "make a new store")
        return json.loads(self._plans[digest])

    def keep_note(self, name: str, note: dict) -> None:
        self._notes = {**self._notes, name: json.dumps(note)}

    def read_note(self, name: str) -> dict:
        return json.loads(self._notes.get(name, "{}"))

    def read_placement(self) -> Placement:
        return self._placement

    def change_placement(self, change: Callable[[Placement, EpochRecord], Placement]) -> Placement:
        with self._lock:
            self._placement = change(self._placement, self.read_epoch_record())
            return self._placement

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        with self._lock:
            is_expected = self.read_catalog().get("version", 0) == expected_version
            if is_expected:
                self._replace(self._record, self._text.write(catalog))
            return is_expected

    def _replace(self, record: str, catalog: bytes) -> None:
        horizon = horizon_bytes(json.loads(record), self._text.read(catalog).get("version", 0))
        # in this order: a reader without the lock finds a catalog at least as new as the horizon read before it
        self._record, self._catalog, self._horizon = record, catalog, horizon
