"""The stores that the contracts are held against; a new adapter is one more line here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.model.stored_rows import RowWrites
from viewkeeper.ports.store import Store
from viewkeeper.stores.open import open_store

TABLE = 1
STORES = {
    "embedded, 1 node": "embedded:{folder}/store?sync=off&nodes=1",
    "embedded, 2 nodes": "embedded:{folder}/store?sync=off&nodes=2",
    "memory, 1 node": "memory:{folder}/store?nodes=1",
    "memory, 2 nodes": "memory:{folder}/store?nodes=2",
}


@dataclass
class Subject:
    """A store under test, and a writer of base rows that remembers what it wrote."""

    store: Store
    rows: dict[bytes, bytes] = field(default_factory=dict)
    written: int = 0

    def put(self, key: bytes, row: bytes | None) -> dict:
        """One row of one transaction; None deletes it."""
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        return self.store.write([RowWrites(TABLE, [key], lambda befores: [row])])

    def write(self, count: int) -> None:
        """That many changes, of new and of old rows."""
        for _ in range(count):
            self.written += 1
            self.put(b"row-%d" % (self.written % 17), b"value-%d" % self.written)

    def begin(self, epoch: Inflight) -> None:
        """Let the epoch be the one in flight, through the epoch record; those before it are committed or aborted."""
        self._swap(epoch.epoch - 1, epoch.aborted, last=epoch.epoch, floor=epoch.floor, inflight=epoch)
        self.store.admit(epoch)

    def end(self, *, aborted: tuple[int, ...]) -> None:
        """Commit the epoch in flight, unless it is aborted, and let go what no reader needs."""
        record = self._swap(self.store.read_epoch_record().last, aborted, inflight=None)
        while self.store.purge(record, records_max=2):
            pass

    def _swap(self, ended: int, aborted: tuple[int, ...], **changes: object) -> EpochRecord:
        committed = max(number for number in range(ended + 1) if number not in aborted)
        record = self.store.read_epoch_record()
        changed = replace(record, version=record.version + 1, committed=committed, recent=(committed,), aborted=aborted)
        assert self.store.swap_epoch_record(record.version, replace(changed, **changes))
        return self.store.read_epoch_record()


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    return Subject(open_store(request.param.format(folder=tmp_path)))


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    """A store whose log has no before-images."""
    return Subject(open_store(request.param.format(folder=tmp_path) + "&before_images=off"))
