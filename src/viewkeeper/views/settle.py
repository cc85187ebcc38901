"""Settle: the only way a view program writes records (`epochs.md`, section 1).

In: for one manager and one epoch, keys and their new rows. Out: versions in the store, one transaction for each place.
Always: a program computes from the version below the epoch, whether or not the epoch has written the record before; a
record at the epoch already must hold exactly the computed row, for a view program is a function of its inputs (R6, R7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.failpoints import failpoint
from viewkeeper.model.epochs import Inflight
from viewkeeper.ports.records import StoredVersions, VersionedTables, VersionWrite


@dataclass(frozen=True, slots=True)
class Found:
    """Records of one table: `input` in the order of places, and what is stored under its keys."""

    table: int
    input: pa.Table
    versions: StoredVersions

    @property
    def rows(self) -> pa.Array:
        """The records' rows as of the epoch before."""
        return self.versions.rows


@dataclass(frozen=True, slots=True)
class Changes:
    """Records as they were and as they shall be."""

    found: Found
    after: pa.Array

    def table(self) -> tuple[pa.Table, np.ndarray]:
        """Those that differ, as (position, key, before, after), and the places where they lie."""
        found = self.found
        changed = np.flatnonzero(differs(found.rows, self.after))
        chosen = pa.array(changed)
        columns = {
            "position": pa.array(np.arange(len(changed))),
            "key": found.input["key"].combine_chunks().take(chosen),
            "before": found.rows.take(chosen),
            "after": self.after.take(chosen),
        }
        return pa.table(columns), np.asarray(found.versions.places)[changed]


class Settling:
    """One manager's part of an epoch: reads at once, writes all at the end."""

    def __init__(self, store: VersionedTables, owned: frozenset[int], epoch: Inflight) -> None:
        failpoint("settle.start")
        self.store = store
        self.epoch = epoch
        self._owned = owned
        self._writes: list[VersionWrite] = []

    def find(self, table: int, keyed: pa.Table) -> Found:
        """The records under the keys of `keyed` (columns `key`, distinct, and `hash`)."""
        places = (np.asarray(keyed["hash"]) % self.store.places).astype(np.int64)
        if (np.diff(places) < 0).any():
            order = np.argsort(places, kind="stable")
            keyed, places = keyed.take(pa.array(order)), places[order]
        input_ = keyed.combine_chunks()
        for place in np.unique(places).tolist():
            if place not in self._owned:
                raise InvariantBroken(f"a record of place {place} reached a manager that does not own it")
        versions = self.store.read_versions(table, _flat(input_["key"]), places, self.epoch)
        failpoint("settle.read")
        return Found(table, input_, versions)

    def put(self, found: Found, rows: pa.Array) -> Changes:
        """Let the found records have these rows (NULL: none); answers what that changes."""
        self._writes.append(_write_of(found.table, found.versions, rows, self.epoch))
        return Changes(found, rows)

    def write(self) -> int:
        """Store what was put; answers how many records changed."""
        failpoint("settle.computed")
        self.store.write_versions(self._writes, self.epoch)
        failpoint("settle.written")
        return sum(len(write.chosen) for write in self._writes)


def _write_of(table: int, found: StoredVersions, rows: pa.Array, epoch: Inflight) -> VersionWrite:
    again = np.flatnonzero(found.applied)
    if len(again) and differs(found.now.take(pa.array(again)), rows.take(pa.array(again))).any():
        raise InvariantBroken(f"epoch {epoch.epoch} computed another row for table {table} than it wrote before")
    chosen = np.flatnonzero(differs(found.rows, rows) & ~found.applied)
    return VersionWrite(table, found, chosen, rows.take(pa.array(chosen)))


def differs(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Where two arrays of row bytes differ; NULL equals NULL."""
    same = np.asarray(pc.fill_null(pc.equal(left, right), False))
    if left.null_count and right.null_count:
        same |= np.asarray(left.is_null()) & np.asarray(right.is_null())
    return ~same


def _flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def parts_by_node(inputs: Sequence[tuple[int, int, pa.Table]]) -> dict[int, dict[int, list[pa.Table]]]:
    """Inputs (node, part, table) by node and part, in order."""
    found: dict[int, dict[int, list[pa.Table]]] = {}
    for node, part, table in sorted(inputs, key=lambda item: item[:2]):
        found.setdefault(node, {}).setdefault(part, []).append(table)
    return found
