"""Version chains: the states of a record, newest first; how a snapshot reads them and an epoch writes them.

In: chains, and an epoch or a moment to read; or the new rows that an epoch writes. Out: the rows that a reader or a
re-run sees, the steps between two epochs, or chains with the new version in front. Always: a version is `epoch u64 |
length u32 | row`, a length of 2^32−1 is a tombstone, and a chain is a concatenation of versions; so the versions to keep
are a prefix of the old chain.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from viewkeeper.errors import LaterRecord
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.read_frontier import ReadTimestamp, RecordChange
from viewkeeper.model.stored_rows import pairs_to_arrow, pieces
from viewkeeper.model.stored_values import DAMAGE, record_damaged
from viewkeeper.model.varbinary import VarBinary, gather, gather_fixed, join
from viewkeeper.ports.records import VersionWrite

if TYPE_CHECKING:
    from viewkeeper.ports.records import Span, Stored


_VERSION = struct.Struct("<QI")
TOMBSTONE = 0xFFFFFFFF


def versions_of(chain: bytes) -> Iterator[tuple[int, bytes | None]]:
    """The versions of a chain, newest first."""
    at = 0
    while at < len(chain):
        epoch, size = _VERSION.unpack_from(chain, at)
        at += _VERSION.size
        if size == TOMBSTONE:
            yield epoch, None
        else:
            yield epoch, chain[at : at + size]
            at += size


def chain_of(versions: Iterable[tuple[int, bytes | None]]) -> bytes:
    """The chain of these versions, newest first."""
    heads = ((_VERSION.pack(epoch, TOMBSTONE if row is None else len(row)), row or b"") for epoch, row in versions)
    return b"".join(part for head in heads for part in head)


def version_at(chain: bytes, epoch: int, aborted: tuple[int, ...]) -> bytes | None:
    """The row that a reader of `epoch` sees; None when there is none."""
    for written, row in versions_of(chain):
        if written <= epoch and written not in aborted:
            return row
    return None


def newest_epoch(chain: bytes) -> int:
    return _VERSION.unpack_from(chain)[0]


def is_dead(chain: bytes, floor: int, aborted: tuple[int, ...]) -> bool:
    """Whether the record is a tombstone that no reader and no re-run needs."""
    written, size = _VERSION.unpack_from(chain)
    if written > floor or written not in aborted:
        return written <= floor and size == TOMBSTONE
    return version_at(chain, floor, aborted) is None


def rows_before(chains: pa.Array, epoch: int, aborted: tuple[int, ...]) -> tuple[pa.Array, np.ndarray, pa.Array]:
    """Rows as of the newest version below `epoch`, which records already have version `epoch`, and their rows there."""
    whole = VarBinary.from_arrow(chains)
    live = np.flatnonzero(whole.lengths > 0)
    last = int(_epochs_at(whole, live, np.zeros(len(live), np.int64)).max(initial=0))
    if last > epoch:
        raise LaterRecord(epoch)
    rows = _cut_rows(whole, *_find(whole, epoch - 1, aborted))
    applied = np.zeros(len(whole), bool)
    if last < epoch:
        return rows, applied, rows
    newest, newest_size = _find(whole, epoch, ())
    live = np.flatnonzero(newest >= 0)
    applied[live] = _epochs_at(whole, live, newest[live]) == epoch
    return rows, applied, _cut_rows(whole, newest, newest_size)


def rows_at(chains: pa.Array, epoch: int, aborted: tuple[int, ...]) -> pa.Array:
    """The rows that a reader of `epoch` sees, NULL where there is none."""
    whole = VarBinary.from_arrow(chains)
    return _cut_rows(whole, *_find(whole, epoch, aborted))


def damaged(chains: pa.Array, last: int) -> np.ndarray:
    """Which chains no epoch up to `last` can have written: their epochs descend from there, their lengths fill them."""
    whole = VarBinary.from_arrow(chains)
    is_damaged = whole.lengths == 0
    at, below = np.zeros(len(whole), np.int64), np.full(len(whole), last + 1, np.int64)
    open_rows = np.flatnonzero(~is_damaged)
    while len(open_rows):
        has_head = at[open_rows] + _VERSION.size <= whole.lengths[open_rows]
        is_damaged[open_rows[~has_head]] = True
        open_rows = open_rows[has_head]
        written, size = _epochs_at(whole, open_rows, at[open_rows]), _sizes_at(whole, open_rows, at[open_rows])
        at[open_rows] += _VERSION.size + np.where(size == TOMBSTONE, 0, size)
        is_right = (written > 0) & (written < below[open_rows]) & (at[open_rows] <= whole.lengths[open_rows])
        is_damaged[open_rows[~is_right]] = True
        below[open_rows] = written
        open_rows = open_rows[is_right & (at[open_rows] < whole.lengths[open_rows])]
    return is_damaged


def damage_of(chain: bytes, last: int) -> str:
    """What is wrong with a chain that is damaged, in words."""
    epochs = [epoch for epoch, _ in versions_of(chain)] if not damaged(pa.array([chain]), (1 << 63) - 2)[0] else []
    if epochs and epochs[0] > last:
        return f"it is of epoch {epochs[0]}, and the last one is {last}"
    return "its versions cannot be read"


def push(chains: pa.Array, rows: pa.Array, epoch: int, floor: int, aborted: tuple[int, ...]) -> pa.Array:
    """Chains with version `epoch` in front; older ones are kept down to the newest not aborted at or below `floor`."""
    whole = VarBinary.from_arrow(chains)
    at, size = _find(whole, floor, aborted)
    tomb = size == TOMBSTONE
    kept = np.where(at >= 0, at + _VERSION.size + np.where(tomb, 0, size), whole.lengths)
    kept_part = gather(whole.data, whole.offsets[:-1], kept)
    body = VarBinary.from_arrow(rows)
    sizes = body.lengths.astype("<u4")
    if rows.null_count:
        sizes[np.asarray(rows.is_null())] = TOMBSTONE
    head = np.zeros((len(rows), _VERSION.size), np.uint8)
    head[:, :8] = np.frombuffer(struct.pack("<Q", epoch), np.uint8)
    head[:, 8:] = sizes.view(np.uint8).reshape(-1, 4)
    return join([head, body, kept_part]).to_arrow()


def _find(whole: VarBinary, epoch: int, aborted: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Where in each chain the newest version at or below `epoch` begins (−1: none), and its stored length."""
    count = len(whole)
    found, sizes = np.full(count, -1, np.int64), np.full(count, TOMBSTONE, np.int64)
    at = np.zeros(count, np.int64)
    open_rows = np.flatnonzero(whole.lengths > 0)
    while len(open_rows):
        written = _epochs_at(whole, open_rows, at[open_rows])
        size = _sizes_at(whole, open_rows, at[open_rows])
        right = written <= epoch
        if aborted:
            right &= ~np.isin(written, aborted)
        hit = open_rows[right]
        found[hit], sizes[hit] = at[hit], size[right]
        rest = open_rows[~right]
        skipped = size[~right]
        at[rest] += _VERSION.size + np.where(skipped == TOMBSTONE, 0, skipped)
        open_rows = rest[at[rest] < whole.lengths[rest]]
    return found, sizes


def _epochs_at(whole: VarBinary, which: np.ndarray, at: np.ndarray) -> np.ndarray:
    return gather_fixed(whole.data, whole.offsets[which] + at, 8).copy().view("<u8")[:, 0].astype(np.int64)


def _sizes_at(whole: VarBinary, which: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The stored lengths of the versions that begin there."""
    return gather_fixed(whole.data, whole.offsets[which] + at + 8, 4).copy().view("<u4")[:, 0].astype(np.int64)


def _cut_rows(whole: VarBinary, at: np.ndarray, size: np.ndarray) -> pa.Array:
    valid = (at >= 0) & (size != TOMBSTONE)
    lengths = np.where(valid, size, 0)
    return whole.cut(np.where(valid, at + _VERSION.size, 0), lengths).to_arrow(valid=valid)


@dataclass(frozen=True, slots=True)
class Written:
    """Chains of one table for one partition, the keys of its new tombstones, and whether the writes are indexed by epoch."""

    table: int
    keys: list[bytes]
    chains: list[bytes]
    tombstones: list[bytes]
    is_indexed: bool


def prepare(write: VersionWrite, epoch: Inflight) -> Iterator[tuple[int, Written]]:
    """What a write stores in each partition."""
    if not len(write.chosen):
        return
    found, stored = write.found.raw, write.found.keys
    if len(write.chosen) < len(stored):
        chosen = pa.array(write.chosen)
        found, stored = found.take(chosen), stored.take(chosen)
    chains = push(found, write.rows, epoch.epoch, epoch.floor, epoch.aborted).to_pylist()
    keys = stored.to_pylist()
    gone = np.flatnonzero(np.asarray(write.rows.is_null())) if write.rows.null_count else np.zeros(0, np.int64)
    is_indexed = write.table in epoch.indexed
    for partition, start, stop in runs(write.found.partitions[write.chosen]):
        first, last = gone.searchsorted((start, stop))
        tombstones = [keys[i] for i in gone[first:last].tolist()]
        yield partition, Written(write.table, keys[start:stop], chains[start:stop], tombstones, is_indexed)


def runs(partitions: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """(partition, start, stop) of each run of equal partitions."""
    borders = [*np.flatnonzero(np.diff(partitions, prepend=-1)).tolist(), len(partitions)]
    for start, stop in zip(borders, borders[1:], strict=False):
        yield int(partitions[start]), start, stop


class ChainSnapshot(Protocol):
    """Version chains that do not change; `written_between`: those of records that indexed epochs wrote."""

    def get(self, partition: int, table: int, key: bytes) -> bytes | None: ...

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def written_between(
        self, partitions: Sequence[int], table: int, since: int, epoch: int
    ) -> list[tuple[bytes, bytes]]: ...

    def close(self) -> None: ...


class RecordSnapshot:
    """The port `Held` over chains."""

    def __init__(self, chains: ChainSnapshot, moment: ReadTimestamp) -> None:
        self._chains = chains
        self._moment = moment

    def get(self, partition: int, table: int, key: bytes) -> bytes | None:
        chain = self._chains.get(partition, table, key)
        return None if chain is None else row_at(chain, self._moment)

    def scan(
        self, partitions: Sequence[int], table: int, start: bytes, stop: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, chain in self._chains.scan(partitions, table, start, stop, reverse=reverse):
            row = row_at(chain, self._moment)
            if row is not None:
                yield key, row

    def batches(
        self, table: int, spans: Iterable[Span], *, reverse: bool = False
    ) -> Iterator[tuple[pa.Array, pa.Array]]:
        found = (
            pair
            for partitions, start, stop in spans
            for pair in self._chains.scan(partitions, table, start, stop, reverse=reverse)
        )
        for piece in pieces(found):
            keys, chains = pairs_to_arrow(piece)
            try:
                rows = rows_at(chains, self._moment.epoch, self._moment.aborted)
            except DAMAGE as error:
                raise record_damaged() from error
            there = rows.is_valid()
            yield keys.filter(there), rows.filter(there)

    def stored(self, partition: int, table: int, last: int) -> Iterator[Stored]:
        for piece in pieces(self._chains.scan([partition], table, b"", None)):
            keys, chains = pairs_to_arrow(piece)
            is_damaged, told = damaged(chains, last), list[tuple[bytes, str]]()
            if is_damaged.any():
                told = [(piece[at][0], damage_of(piece[at][1], last)) for at in is_damaged.nonzero()[0].tolist()]
                keys, chains = (array.take((~is_damaged).nonzero()[0]) for array in (keys, chains))
            rows = rows_at(chains, self._moment.epoch, self._moment.aborted)
            there = rows.is_valid()
            yield keys.filter(there), rows.filter(there), told

    def steps(self, partitions: Sequence[int], table: int, since: int) -> list[RecordChange]:
        indexed_from = self._moment.frontier.indexed_from
        if indexed_from is not None and since + 1 >= indexed_from:
            return collect_steps(
                self._chains.written_between(partitions, table, since, self._moment.epoch), since, self._moment
            )
        return collect_steps(self._chains.scan(partitions, table, b"", None), since, self._moment)

    def keep(self) -> None:
        """They are held."""

    def close(self) -> None:
        self._chains.close()


def row_at(chain: bytes, moment: ReadTimestamp) -> bytes | None:
    """The row that a reader of a moment sees; raises CorruptStore where the chain is none."""
    try:
        return version_at(chain, moment.epoch, moment.aborted)
    except DAMAGE as error:
        raise record_damaged() from error


def collect_steps(pairs: Iterable[tuple[bytes, bytes]], since: int, moment: ReadTimestamp) -> list[RecordChange]:
    """The steps of all chains after `since`, ordered by epoch and key."""
    steps: list[RecordChange] = []
    for key, chain in pairs:
        try:
            if newest_epoch(chain) <= since:
                continue
            seen = [(e, row) for e, row in versions_of(chain) if e <= moment.epoch and e not in moment.aborted]
        except DAMAGE as error:
            raise record_damaged() from error
        olders = [*seen[1:], (0, None)]  # before the oldest version there was no record
        pairs_of_versions = zip(seen, olders, strict=False)  # `seen` is empty for a record of an epoch in flight
        steps += [RecordChange(e, key, before, row) for (e, row), (_, before) in pairs_of_versions if e > since]
    return sorted(steps, key=attrgetter("epoch"))
