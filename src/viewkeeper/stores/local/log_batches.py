"""Log batches: log entries to Arrow, many at a time.

In: the bytes of whole entries as `log_format` writes them. Out: for each table one batch of changes (position, key,
before, after). Always: log order within each table, and no work per change in Python.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import CorruptStore, NewerFormat
from viewkeeper.model.rowbatches import CHANGES_SCHEMA
from viewkeeper.model.stored_rows import Image
from viewkeeper.model.varbinary import VarBinary
from viewkeeper.stores.local import log_format

_WORDS = log_format.HEADER.size // 4
_SMALL_BYTES = 8 << 10
_FORMAT, _TABLE, _COUNT, _CHECKSUM = 0, 1, 4, 5  # indexes of the header's 32-bit words


def decode_entries(
    entries: list[bytes], last_positions: list[int], *, with_moved: bool = False
) -> list[tuple[int, pa.RecordBatch]]:
    """The changes of `entries` by table, in log order, in memory of their own; rows that moved only `with_moved`."""
    joined = b"".join(entries)
    words = np.frombuffer(joined, "<u4")
    sizes = np.fromiter(map(len, entries), np.int64, len(entries))
    starts = (np.cumsum(sizes) - sizes) // 4
    if ((words[starts + _FORMAT] & 0xFF) > log_format.FORMAT).any():
        raise NewerFormat("the log holds entries of a newer format", "use a newer ViewKeeper")
    _verify(entries, len(joined), words[starts + _CHECKSUM], last_positions)
    tables = words[starts + _TABLE]
    positions = np.asarray(last_positions, np.int64)
    wanted = with_moved | (words[starts + _FORMAT] >> 8 & log_format.MOVED == 0)
    by_table = [(int(table), wanted & (tables == table)) for table in np.unique(tables[wanted])]
    return [(table, _decode_table(joined, words, starts[chosen], positions[chosen])) for table, chosen in by_table]


def images_before(batches: Iterable[pa.RecordBatch], low: bytes, high: bytes | None) -> dict[bytes, Image]:
    """For each row with low < key <= high that changes: its image before the first of its changes."""
    images: dict[bytes, Image] = {}
    for batch in batches:
        inside = pc.greater(batch["key"], pa.scalar(low, pa.binary()))
        if high is not None:
            inside = pc.and_(inside, pc.less_equal(batch["key"], pa.scalar(high, pa.binary())))
        found = batch.filter(inside)
        for row, before in zip(found["key"].to_pylist(), found["before"].to_pylist(), strict=True):
            images.setdefault(row, before)
    return images


def _verify(entries: list[bytes], size: int, checksums: np.ndarray, last_positions: list[int]) -> None:
    small = _are_small(len(entries), size)
    bodies = [(entry if small else memoryview(entry))[log_format.HEADER.size :] for entry in entries]
    if (found := list(map(zlib.crc32, bodies))) != checksums.tolist():
        at = last_positions[int(np.flatnonzero(checksums != found)[0])]
        raise CorruptStore(f"the log entry up to {at:,} does not match its checksum", "restore the store from a backup")


def _are_small(count: int, size: int) -> bool:
    """Whether copies of so many pieces, of so many bytes together, cost less than views of them."""
    return size < count * _SMALL_BYTES


def _decode_table(joined: bytes, words: np.ndarray, starts: np.ndarray, positions: np.ndarray) -> pa.RecordBatch:
    counts = words[starts + _COUNT].astype(np.int64)
    total = int(counts.sum())
    first = np.cumsum(counts) - counts
    inside = np.arange(total) - np.repeat(first, counts)
    lengths_at = np.repeat(starts + _WORDS, counts) + inside
    stride = np.repeat(counts, counts)
    body = (starts + _WORDS + 3 * counts) * 4  # byte where the first column's bytes begin
    arrays = []
    for column in range(3):
        lengths = words[lengths_at + column * stride]
        valid = lengths != log_format.ABSENT
        sizes = np.where(valid, lengths, 0).astype(np.int64)
        bounds = np.zeros(total + 1, np.int64)
        np.cumsum(sizes, out=bounds[1:])
        per_entry = bounds[np.append(first, total)[1:]] - bounds[first]
        source = joined if _are_small(len(body), int(per_entry.sum())) else memoryview(joined)
        ends = body + per_entry
        spans = zip(body.tolist(), ends.tolist(), strict=True)
        data, body = np.frombuffer(b"".join([source[begin:end] for begin, end in spans]), np.uint8), ends
        arrays.append(VarBinary(data, bounds).to_arrow(valid=valid))
    numbers = pa.array(np.repeat(positions - counts + 1, counts) + inside)
    return pa.record_batch([numbers, *arrays], schema=CHANGES_SCHEMA)
