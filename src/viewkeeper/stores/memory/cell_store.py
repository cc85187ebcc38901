"""The memory store with cells: views as in HBase or Cassandra, without transactions (`docs/epochs.md`, section 4).

In and out: as in the memory store; base tables and log are the same. Always: the epoch record is asked what is in
flight after the last read and before the first put of a batch (VALIDATE), and again where a put would miss its
deadline. No put reads what is stored, and `applied` is never known. With a seed, requests are lost, late and repeated;
reads are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from viewkeeper.errors import Fenced
from viewkeeper.model.epochs import EpochRecord, Inflight
from viewkeeper.ports.records import StoredVersions, VersionWrite
from viewkeeper.stores.memory.contents import Contents, enter
from viewkeeper.stores.memory.simulated_cells import LATE_TICKS, PUT_TICKS, Network, Put, epoch_read
from viewkeeper.stores.memory.store import MemoryStore
from viewkeeper.stores.version_chains import rows_at


def open_memory(url: str, *, create: bool = True, read_only: bool = False) -> MemoryStore:
    """The memory store that a URL names, of the kind it was made as."""
    return enter(url, lambda contents: (CellStore if contents.layout.cells else MemoryStore)(contents), create=create)


class CellStore(MemoryStore):
    """A store whose view records are cells."""

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents)
        self._seen: dict[int, int] = {}  # the last epoch begun -> when a purge first saw it

    @property
    def _network(self) -> Network:
        return self._contents.network

    # epoch record and catalog

    def read_epoch_record(self) -> EpochRecord:
        with self._contents.lock:
            self._network.tick()
            return super().read_epoch_record()

    def swap_epoch_record(self, expected_version: int, record: EpochRecord) -> bool:
        self._require_no_moves(record)
        contents = self._contents  # it outlives this open store, as a swap under way does
        with contents.lock:
            return contents.network.swap(partial(contents.meta.swap_epoch_record, expected_version, record))

    def swap_catalog(self, expected_version: int, catalog: dict) -> bool:
        contents = self._contents
        with contents.lock:
            return contents.network.swap(partial(contents.meta.swap_catalog, expected_version, catalog))

    def change_epoch_record(self, change: Callable[[EpochRecord], EpochRecord]) -> EpochRecord:
        with self._contents.lock:
            record = self.read_epoch_record()
            changed = change(record)
            super().swap_epoch_record(record.version, changed)
            return changed

    def validate(self, epoch: int) -> None:
        """Raise Fenced unless the epoch is in flight."""
        inflight = self.read_epoch_record().inflight
        if inflight is None or inflight.epoch != epoch:
            raise Fenced(f"epoch {epoch} is no longer in flight")

    # view tables

    def admit(self, epoch: Inflight) -> None:
        """For `written_epochs`, and to let views start anew: the epoch record decides who writes."""
        with self._contents.lock:
            self._network.tick()
            if self._contents.admitted < epoch.anew:
                for partition in self._contents.cells:
                    partition.clear()
            self._contents.admitted = max(self._contents.admitted, epoch.epoch)

    def written_epochs(self) -> tuple[int, int]:
        return self._contents.admitted, self._contents.admitted

    def read_versions(self, table: int, keys: pa.Array, partitions: np.ndarray, epoch: Inflight) -> StoredVersions:
        with self._contents.lock:
            self._network.tick()
            chains = self._chains(table, keys, partitions)
        rows = rows_at(chains, epoch_read(epoch), epoch.aborted)
        return StoredVersions(keys, partitions, rows, np.zeros(len(keys), bool), rows, None)

    def scan_prefixes(
        self, partition: int, table: int, prefixes: Sequence[bytes], epoch: Inflight, *, rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        with self._contents.lock:
            self._network.tick()
            return super().scan_prefixes(partition, table, prefixes, epoch, rows_max=rows_max)

    def write_versions(self, writes: Sequence[VersionWrite], epoch: Inflight) -> None:
        puts: dict[int, list[Put]] = {}
        for write in writes:
            chosen = pa.array(write.chosen)
            partitions, keys = write.found.partitions[write.chosen].tolist(), write.found.keys.take(chosen).to_pylist()
            for partition, key, row in zip(partitions, keys, write.rows.to_pylist(), strict=True):
                puts.setdefault(partition, []).append(
                    Put(write.table, key, epoch.epoch, row, write.table in epoch.indexed)
                )
        with self._contents.lock:
            validate = self._validated(epoch.epoch)
            validate()
            for number, batch in puts.items():
                for request in [batch] if self._network.is_calm else [[put] for put in batch]:
                    self._network.put(partial(self._land, self._contents, number, request), validate)

    def _validated(self, epoch: int) -> Callable[[], int]:
        """When the epoch was last seen in flight: less than T ago."""
        seen: int | None = None

        def validate() -> int:
            nonlocal seen
            while seen is None or self._network.now >= seen + PUT_TICKS:
                seen = self._network.now
                self.validate(epoch)
            return seen

        return validate

    @staticmethod
    def _land(contents: Contents, number: int, puts: Sequence[Put]) -> None:
        contents.cells[number].put(puts)

    def purge(self, record: EpochRecord, *, records_max: int) -> int:
        gone = 0
        with self._contents.lock:
            settled = self._settled(record.last)
            for partition in self._contents.cells:
                partition.forget_written(record.floor)
                for table, key, below in partition.surplus(record, settled):
                    if gone == records_max:
                        return gone
                    self._network.cast(partial(partition.delete, table, key, below))
                    gone += 1
        return gone

    def _settled(self, last: int) -> int:
        """An epoch that began at least T + R ago: no put of an earlier one is under way. `last` began just now or before."""
        self._seen.setdefault(last, self._network.now)
        until = self._network.now - PUT_TICKS - LATE_TICKS
        settled = max((last for last, seen in self._seen.items() if seen <= until), default=0)
        self._seen = {last: seen for last, seen in self._seen.items() if last >= settled}
        return settled
