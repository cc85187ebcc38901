"""Cells: how versions of records are kept in HBase, and what is asked of it to read and write them.

In: keys, rows and epochs. Out: HBase's structs; and rows of what it returned. Always: the row key is the partition's byte
and the key, the timestamp is the epoch, and the value of the one cell `r:r` is the whole row, behind a byte that is one more
than the versions that lay below when it was written, if these are not listed to be deleted. A tombstone is a value too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from viewkeeper.model.moments import EPOCH_MAX
from viewkeeper.stores.hbase.thrift import thrift

RECORD, COLUMNS = b"r", b"c"  # families: of records, and of the columns that people look at
VERSIONS_MAX = FOREVER = (1 << 31) - 1
KEY_BYTES_MAX = (1 << 15) - 1 - 14  # HBase's limit of a row key, without what the journal puts before ours
ROW_BYTES_MAX = (10 << 20) - (64 << 10)  # hbase.client.keyvalue.maxsize, without the cell's own head
BATCH_RECORDS, BATCH_BYTES = 1_000, 4 << 20  # of one request
OLDER_MAX = 3  # versions below another one: whoever writes over that has them deleted
GONE_VALUE = b""
_One = TypeVar("_One")
# Of a record: the epoch of its newest version, 0 if all are of aborted epochs; and how many are older. A plain tuple, which
# the garbage collector leaves alone, because there are many.
Below = tuple[int, int]
NOTHING: Below = (-1, 0)  # no version at all


def row_key(partition: int, key: bytes) -> bytes:
    return bytes((partition,)) + key


def row_of(value: bytes) -> bytes | None:
    return value[1:] if value else None


def times(since: int, until: int) -> Any:
    """The versions of the epochs from `since` to `until`."""
    return thrift().TTimeRange(since, min(until + 1, EPOCH_MAX))


def record_column() -> list[Any]:
    return [thrift().TColumn(RECORD, RECORD)]


def get_of(row: bytes, time_range: Any, versions: int) -> Any:
    return thrift().TGet(row=row, columns=record_column(), timeRange=time_range, maxVersions=versions)


def delete_of(row: bytes, up_to: int) -> Any:
    """All cells of a row with an epoch up to that one; with `columns` set, HBase would ignore the timestamp."""
    return thrift().TDelete(row=row, timestamp=up_to)


def versions_in(result: Any) -> Iterator[tuple[int, bytes | None]]:
    """(epoch, row) of the cells of one record, newest first."""
    return ((cell.timestamp, row_of(cell.value)) for cell in result.columnValues)


def visible(result: Any, aborted: Collection[int]) -> bytes | None:
    """The row of the newest version that is not aborted."""
    cell = _newest(result, aborted)
    return None if cell is None else row_of(cell.value)


def below(result: Any, aborted: Collection[int]) -> Below:
    """What lies below the next version of a record."""
    cell = _newest(result, aborted)
    if cell is None:
        return (0, 0) if result.columnValues else NOTHING
    return cell.timestamp, cell.value[0] - 1 if cell.value else OLDER_MAX


def _newest(result: Any, aborted: Collection[int]) -> Any | None:
    return next((cell for cell in result.columnValues if cell.timestamp not in aborted), None)


def versions_needed(until: int, aborted: Collection[int]) -> int:
    """How many versions to ask for, to find one that is not aborted."""
    return 1 + sum(epoch <= until for epoch in aborted)


def in_batches(values: Sequence[_One], most: int) -> Iterator[Sequence[_One]]:
    return (values[start : start + most] for start in range(0, len(values), most))


def by_size(puts: Iterable[Any]) -> Iterator[list[Any]]:
    """The puts in batches of bounded size, beyond one put."""
    batch: list[Any] = []
    size = 0
    for put in puts:
        batch.append(put)
        size += len(put.row) + sum(len(cell.value) for cell in put.columnValues)
        if len(batch) == BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
