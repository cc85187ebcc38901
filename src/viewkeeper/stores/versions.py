"""Versions: the chain of a record's states, newest first.

In: a chain and an epoch. Out: the state a reader or a re-run sees, or the chain with a new version in front. Always: a
version is `epoch u64 | length u32 | row`, a length of 2^32−1 is a tombstone, and a chain is a concatenation of
versions; so the versions to keep are a prefix of the old chain, and the new chain is the new version before that
prefix.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from viewkeeper.errors import LaterRecord
from viewkeeper.model.ragged import Ragged, gather, gather_fixed, join

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
    whole = Ragged.from_arrow(chains)
    last = int(_first_epochs(whole).max(initial=0))
    if last > epoch:
        raise LaterRecord(epoch)
    rows = _cut_rows(whole, *_find(whole, epoch - 1, aborted))
    applied = np.zeros(len(whole), bool)
    if last < epoch:
        return rows, applied, rows
    newest, newest_size = _find(whole, epoch, ())
    live = newest >= 0
    applied[live] = _epochs_at(whole, np.flatnonzero(live), newest[live]) == epoch
    return rows, applied, _cut_rows(whole, newest, newest_size)


def rows_at(chains: pa.Array, epoch: int, aborted: tuple[int, ...]) -> pa.Array:
    """The rows that a reader of `epoch` sees, NULL where there is none."""
    whole = Ragged.from_arrow(chains)
    return _cut_rows(whole, *_find(whole, epoch, aborted))


def damaged(chains: pa.Array, last: int) -> np.ndarray:
    """Which chains no epoch up to `last` can have written: their epochs descend from there, their lengths fill them."""
    whole = Ragged.from_arrow(chains)
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
    whole = Ragged.from_arrow(chains)
    at, size = _find(whole, floor, aborted)
    tomb = size == TOMBSTONE
    kept = np.where(at >= 0, at + _VERSION.size + np.where(tomb, 0, size), whole.lengths)
    kept_part = gather(whole.data, whole.offsets[:-1], kept)
    body = Ragged.from_arrow(rows)
    sizes = body.lengths.astype("<u4")
    if rows.null_count:
        sizes[np.asarray(rows.is_null())] = TOMBSTONE
    head = np.zeros((len(rows), _VERSION.size), np.uint8)
    head[:, :8] = np.frombuffer(struct.pack("<Q", epoch), np.uint8)
    head[:, 8:] = sizes.view(np.uint8).reshape(-1, 4)
    return join([head, body, kept_part]).to_arrow()


def _find(whole: Ragged, epoch: int, aborted: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
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


def _epochs_at(whole: Ragged, which: np.ndarray, at: np.ndarray) -> np.ndarray:
    return gather_fixed(whole.data, whole.offsets[which] + at, 8).copy().view("<u8")[:, 0].astype(np.int64)


def _sizes_at(whole: Ragged, which: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The stored lengths of the versions that begin there."""
    return gather_fixed(whole.data, whole.offsets[which] + at + 8, 4).copy().view("<u4")[:, 0].astype(np.int64)


def _first_epochs(whole: Ragged) -> np.ndarray:
    live = np.flatnonzero(whole.lengths > 0)
    return _epochs_at(whole, live, np.zeros(len(live), np.int64))


def _cut_rows(whole: Ragged, at: np.ndarray, size: np.ndarray) -> pa.Array:
    valid = (at >= 0) & (size != TOMBSTONE)
    lengths = np.where(valid, size, 0)
    return whole.cut(np.where(valid, at + _VERSION.size, 0), lengths).to_arrow(valid=valid)
