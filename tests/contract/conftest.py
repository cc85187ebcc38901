"""The stores that the contracts are held against; a new adapter is one more line here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from viewkeeper.model.writes import RowWrites
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

    store: object
    rows: dict[bytes, bytes] = field(default_factory=dict)
    written: int = 0

    def put(self, key: bytes, row: bytes | None) -> dict[int, int]:
        """One row of one transaction; None deletes it."""
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        return self.store.write(self.store.node_of(key), [RowWrites(TABLE, [key], lambda befores: [row])])

    def write(self, count: int) -> None:
        """That many changes, of new and of old rows."""
        for _ in range(count):
            self.written += 1
            self.put(b"row-%d" % (self.written % 17), b"value-%d" % self.written)


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    return Subject(open_store(request.param.format(folder=tmp_path)))


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    """A store whose log has no before-images."""
    return Subject(open_store(request.param.format(folder=tmp_path) + "&before_images=off"))
