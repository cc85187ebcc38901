"""Cells: view records of a store without transactions, one cell for each version (`docs/epochs.md`, section 4).

In: puts and deletes of cells, blind, in any order, late and repeated. Out: rows as of an epoch. Always: a cell {epoch
-> row} is put without reading what is stored, a tombstone is a value like any other; no fence, and a later epoch goes
unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import RLock

import pyarrow as pa

from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.stores.memory.partition import Partition, with_keys, without_epochs
from viewkeeper.stores.versions import chain_of, rows_at, version_at, versions_of


@dataclass(frozen=True, slots=True)
class Put:
    """A cell to be written."""

    table: int
    key: bytes
    epoch: int
    row: bytes | None
    indexed: bool  # index that the epoch wrote the record


def epoch_read(epoch: Inflight) -> int:
    """The epoch as of which the tasks of another one read."""
    return epoch.epoch - 1


class CellPlace(Partition):
    """The cells of one partition, those of a record as a chain."""

    def __init__(self, lock: RLock) -> None:
        super().__init__(lock)
        self._surplus: dict[tuple[int, bytes], None] = {}  # records that have more than one row

    def put(self, puts: Sequence[Put]) -> None:
        """Write cells; those of a dropped table are ignored."""
        chains: dict[int, dict[bytes, bytes | None]] = {}
        indexed: dict[int, dict[int, set[bytes]]] = {}
        for put in (put for put in puts if not self.is_dropped(put.table)):
            known = chains.setdefault(put.table, {})
            old = known.get(put.key) or self.pairs(put.table).get(put.key) or b""
            known[put.key] = _with_cell(old, put.epoch, put.row)
            if put.indexed:
                indexed.setdefault(put.epoch, {}).setdefault(put.table, set()).add(put.key)
        self._replace(chains)
        for epoch, keys in indexed.items():
            self.state = (self.state[0], with_keys(self.state[1], epoch, keys))

    def delete(self, table: int, key: bytes, below: int) -> None:
        """Remove the cells of a record below an epoch."""
        cells = [cell for cell in versions_of(self.pairs(table).get(key) or b"") if cell[0] >= below]
        self._replace({table: {key: chain_of(cells) or None}})

    def surplus(self, record: EpochRecord, settled: int) -> Iterator[tuple[int, bytes, int]]:
        """The cells that are no longer needed, as (table, key, below which epoch).

        Those below the newest that a reader at the floor sees, and that one too, if it is a tombstone of an epoch
        before `settled`: no put of an earlier one is under way.
        """
        for table, key in list(self._surplus):
            cells = list(versions_of(self.pairs(table).get(key) or b""))
            seen = next((cell for cell in cells if cell[0] <= record.floor and cell[0] not in record.aborted), None)
            if seen is not None:
                below = seen[0] + (seen[1] is None and seen[0] < settled)
                if cells[-1][0] < below:
                    yield table, key, below

    def forget_written(self, floor: int) -> None:
        """Forget which records old epochs wrote, once no reader asks for them."""
        records, written = self.state
        self.state = (records, without_epochs(written, {epoch for epoch in written if epoch <= floor}))

    def drop(self, table: int) -> None:
        super().drop(table)
        self._surplus = {known: None for known in self._surplus if known[0] != table}

    def clear(self) -> None:
        super().clear()
        self._surplus = {}

    def row_before(self, chain: bytes, epoch: Inflight) -> bytes | None:
        return version_at(chain, epoch_read(epoch), epoch.aborted)

    def rows_before(self, chains: pa.Array, epoch: Inflight) -> pa.Array:
        return rows_at(chains, epoch_read(epoch), epoch.aborted)

    def _replace(self, chains: dict[int, dict[bytes, bytes | None]]) -> None:
        records, written = self.state
        changed = {table: self.pairs(table).changed(new) for table, new in chains.items()}
        self.state = (records | changed, written)
        for table, new in chains.items():
            for key, chain in new.items():
                cells = list(versions_of(chain or b""))
                if len(cells) > 1 or (cells and cells[0][1] is None):
                    self._surplus[table, key] = None
                else:
                    self._surplus.pop((table, key), None)


def _with_cell(chain: bytes, epoch: int, row: bytes | None) -> bytes:
    cells = dict(versions_of(chain)) | {epoch: row}
    return chain_of((known, cells[known]) for known in sorted(cells, reverse=True))
