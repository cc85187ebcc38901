"""Repair: the events that correct the records of a table that differ from those of its twin.

In: a table and its twin, which was filled from base tables, both as of the epoch before. Out: an event for each record
that is wrong, missing or extra. Always: a function of the versions below the epoch, so that a re-run finds the same (R7).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, pairwise

import numpy as np
import pyarrow as pa

from viewkeeper.model.entryblocks import Blocks, decode_blocks
from viewkeeper.model.epochs import Inflight
from viewkeeper.model.keys import part_end
from viewkeeper.model.work_stats import Size, add_up
from viewkeeper.operators.apply import size_of
from viewkeeper.plan.nodes import RepairNode
from viewkeeper.ports.records import VersionedTables

Record = tuple[bytes, bytes]
Event = tuple[bytes, bytes | None]  # a key, and the right row under it
_DAMAGED = (ArithmeticError, LookupError, ValueError, MemoryError)  # what a row that is none may lead to


def differences(store: VersionedTables, node: RepairNode, partition: int, epoch: Inflight) -> tuple[pa.Table, Size]:
    """The events (key, hash, ord, row) that put a partition of the table right, and how large it was before."""
    sizes: list[Size] = []
    found = _records(store, partition, node.table, epoch, sizes)
    right = _records(store, partition, node.twin, epoch, [])
    events = list(_of_groups(node, found, right) if node.slots else _of_records(found, right, node.is_list))
    columns = {
        "key": pa.array([key for key, _ in events], pa.binary()),
        "hash": pa.array(np.full(len(events), partition, np.uint32)),  # records go where they were found
        "ord": pa.array(np.arange(len(events))),
        "row": pa.array([row for _, row in events], pa.binary()),
    }
    return pa.table(columns), add_up([Size(), *sizes])


def _records(
    store: VersionedTables, partition: int, table: int, epoch: Inflight, sizes: list[Size]
) -> Iterator[Record]:
    for batch in store.scan_versions(partition, table, epoch.epoch - 1, epoch.aborted):
        sizes.append(size_of(batch["key"], batch["row"]))
        yield from zip(batch["key"].to_pylist(), batch["row"].to_pylist(), strict=True)


def _of_records(found: Iterable[Record], right: Iterable[Record], keys_alone: bool = False) -> Iterator[Event]:
    for key, old, new in _matched(found, right):
        if (old is None) != (new is None) if keys_alone else old != new:
            yield key, new


def _matched(found: Iterable[tuple], right: Iterable[tuple]) -> Iterator[tuple]:
    """(key, value found or None, right value or None) of two sequences of (key, value) in the order of keys."""
    one, other = chain(found, [(None, None)]), chain(right, [(None, None)])
    (key, old), (twin, new) = next(one), next(other)
    while key is not None or twin is not None:
        if twin is None or (key is not None and key < twin):
            yield key, old, None
            key, old = next(one)
        elif key is None or twin < key:
            yield twin, None, new
            twin, new = next(other)
        else:
            yield key, old, new
            (key, old), (twin, new) = next(one), next(other)


def _of_groups(node: RepairNode, found: Iterable[Record], right: Iterable[Record]) -> Iterator[Event]:
    """The blocks of groups whose values are not those of the twin."""
    for group, old, new in _matched(_grouped(node, found), _grouped(node, right)):
        if old != new and (not old or not new or _entries(node, group, old) != _entries(node, group, new)):
            yield from _of_records(old or (), new or ())


def _grouped(node: RepairNode, records: Iterable[Record]) -> Iterator[tuple[bytes, list[Record]]]:
    grouped = groupby(records, key=lambda record: record[0][: _group_end(node, record[0])])
    return ((group, list(blocks)) for group, blocks in grouped)


def _group_end(node: RepairNode, key: bytes) -> int:
    end = 0
    try:
        for column in node.group:
            end = part_end(column, key, end)
    except (*_DAMAGED, struct.error):
        return len(key)
    return end


def _entries(node: RepairNode, group: bytes, records: list[Record]) -> object:
    """All values of a group with their multiplicities; None where its blocks do not fit each other."""
    bounds = [key[len(group) :] for key, _ in records]
    try:
        blocks = decode_blocks(pa.array([row for _, row in records], pa.binary()), node.slots)
        values = blocks.values.strings.to_arrow().to_pylist()
        is_whole = bounds == [b"", *blocks.bounds.strings.to_arrow().to_pylist()] and _fits(blocks, bounds, values)
    except _DAMAGED:
        return None
    return (values, blocks.values.masks.tolist(), blocks.counts.tolist()) if is_whole else None


def _fits(blocks: Blocks, bounds: list[bytes], values: list[bytes]) -> bool:
    """Whether each block has the values from its bound to the next, and the first one knows in which slots they are."""
    starts, masks = blocks.values.starts.tolist(), blocks.values.masks
    if values != sorted(set(values)) or not blocks.values.sizes[1:].all():
        return False
    for index, (start, stop) in enumerate(pairwise(starts)):
        mine, after = values[start:stop], bounds[index + 1 : index + 2]
        if mine and (mine[0] < bounds[index] or (after and mine[-1] >= after[0])):
            return False
        if index and (masks[start:stop].any(axis=0) != blocks.bounds.masks[index - 1]).any():
            return False
    return True
