"""Steps that the contracts' tests take: epochs that write records, and reads of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tests.contract.conftest import Subject
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.positions import Cut, SplitPoints
from viewkeeper.ports.records import VersionWrite

VIEW = 9


def at(epoch: int, *, floor: int = 0, aborted: tuple[int, ...] = ()) -> Inflight:
    return Inflight(epoch, {}, Cut({}, 0, 0), "", floor, aborted, ())


def apply(subject: Subject, epoch: Inflight, rows: dict[bytes, bytes | None], partition: int = 0) -> None:
    found = subject.store.read_versions(VIEW, pa.array(list(rows), pa.binary()), np.full(len(rows), partition), epoch)
    chosen = np.flatnonzero(~found.applied)
    new = pa.array(list(rows.values()), pa.binary()).take(pa.array(chosen))
    subject.store.write_versions([VersionWrite(VIEW, found, chosen, new)], epoch)


def rows_of(subject: Subject, epoch: Inflight, keys: list[bytes], partition: int = 0) -> list[bytes | None]:
    return subject.store.read_versions(
        VIEW, pa.array(keys, pa.binary()), np.full(len(keys), partition), epoch
    ).rows.to_pylist()


def spans_of(borders_of: Callable[[bytes], SplitPoints], rows_max: int) -> list[tuple[bytes, bytes | None]]:
    """All pieces (low, high] from the start of a part to its end."""
    spans: list[tuple[bytes, bytes | None]] = []
    after: bytes | None = b""
    while after is not None:
        found = borders_of(after)
        assert found.keys[0] == after and found.rows <= rows_max
        spans += itertools.pairwise(found.keys)
        after = found.keys[-1]
    return spans


def pairs_in(batches: list[pa.RecordBatch]) -> list[tuple[bytes, bytes]]:
    return [(row["key"], row["row"]) for batch in batches for row in batch.to_pylist()]
