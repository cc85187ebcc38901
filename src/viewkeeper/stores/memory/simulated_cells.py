"""Simulated cells: view records of a store without transactions, and the network on which requests to them get lost.

In: puts and deletes of cells, blind, in any order, late and repeated; requests, as functions that do their work where
they land. Out: rows as of an epoch; what a driver returns: done, or StoreUnavailable. Always: a cell {epoch -> row} is
put without reading what is stored, and a tombstone is a value like any other (`docs/epochs.md`, section 4). Time is
counted in requests, so one seed and one sequence of calls give one history; a put is issued within T of its VALIDATE
and lands less than T + R after it, or never; what was acknowledged has landed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import RLock

import pyarrow as pa

from viewkeeper.errors import StoreUnavailable
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.stores.memory.partition import Partition, with_keys, without_epochs
from viewkeeper.stores.version_chains import chain_of, rows_at, version_at, versions_of

PUT_TICKS = 80  # T: how long after a VALIDATE puts are issued
LATE_TICKS = 80  # R: a request that is older is no longer run
ATTEMPTS_MAX = 4
Land = Callable[[], object]


class Network:
    """Every request lands at once, and once."""

    is_calm = True

    def __init__(self) -> None:
        self.now = 0
        self.counts: Counter[str] = Counter()

    def tick(self) -> None:
        """Count one more request."""
        self.now += 1

    def put(self, land: Land, validate: Callable[[], int]) -> None:
        """A request that may be repeated, until it is acknowledged; `validate` returns when it was last allowed."""
        self.tick()
        validate()
        land()

    def cast(self, land: Land) -> None:
        """A request that may be repeated and may get lost; its outcome is not checked."""
        self.tick()
        land()

    def swap(self, land: Callable[[], bool]) -> bool:
        """A test-and-set, never repeated without a read."""
        self.tick()
        return land()


class HostileNetwork(Network):
    """Requests get lost, are repeated and land late; replies get lost; time jumps."""

    is_calm = False

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._order = itertools.count()
        self._late: list[tuple[int, int, Land]] = []  # when it lands, in which order, what

    def tick(self) -> None:
        self.now += self._random.randint(1, PUT_TICKS // 2) if self._random.random() < 0.02 else 1
        while self._late and self._late[0][0] <= self.now:
            heapq.heappop(self._late)[2]()

    def put(self, land: Land, validate: Callable[[], int]) -> None:
        for _ in range(ATTEMPTS_MAX):
            self.tick()
            if self._land(land, validate() + PUT_TICKS + LATE_TICKS):
                return
        raise StoreUnavailable("the store does not answer", "run the pipeline again")

    def cast(self, land: Land) -> None:
        self.tick()
        self._land(land, self.now + PUT_TICKS + LATE_TICKS)

    def swap(self, land: Callable[[], bool]) -> bool:
        self.tick()
        fate = self._draw(lost=2, late=2, silent=5, doubled=3)
        if fate in ("", "silent", "doubled"):
            swapped = land()
            if fate == "doubled":  # the driver repeated it by itself, and returns the second outcome
                return False
            if fate == "":
                return swapped
        elif fate == "late":
            self._postpone(land, self.now + LATE_TICKS)
        raise StoreUnavailable("the store did not answer a swap", "look what is there, and try again")

    def _land(self, land: Land, limit: int) -> bool:
        """Whether the request landed in time for a reply."""
        fate = self._draw(lost=4, late=14, twice=18)
        if fate in ("late", "twice"):
            self._postpone(land, limit)
        if fate in ("", "twice"):
            land()
            return True
        return False

    def _postpone(self, land: Land, limit: int) -> None:
        """Let it land before `limit`: soon, at some time, or as late as possible."""
        left = limit - self.now
        delay = self._random.choice((self._random.randint(1, 8), self._random.randint(1, left), left - 1))
        heapq.heappush(self._late, (self.now + max(0, min(delay, left - 1)), next(self._order), land))

    def _draw(self, **percent: int) -> str:
        """One of the outcomes, or none."""
        at = self._random.random() * 100
        for fate, share in percent.items():
            at -= share
            if at < 0:
                self.counts[fate] += 1
                return fate
        return ""


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


class CellPartition(Partition):
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
