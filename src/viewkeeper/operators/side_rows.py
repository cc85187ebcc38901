"""Rows of one side of a join: entries of the REVERSE-JOIN as relations that SQL can join.

In: events of entries, or join keys to look up. Out: relations with `n` (the row's number), `st`, `j` (the join key's
bytes), `o0…` (those of its parts that the join emits), the row key `k0…` and the columns `v0…`. Always: `st` is -1 for
a deleted row, 1 for an inserted one, 0 for an unchanged one, as of the epoch before; `j` is NULL where the join key has
a NULL, because it matches nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import decode_after, encode_keys
from viewkeeper.model.ragged import Ragged, join
from viewkeeper.model.rowbatches import decode_rows
from viewkeeper.operators.apply import Applier, differs
from viewkeeper.operators.record_events import events
from viewkeeper.plan.nodes import SIDE, JoinNode


def entry_events(node: JoinNode, side: int, rows: pa.Table) -> pa.Table:
    """The events of a side's entries; `size` bytes of a key are the join key, which also decides the partition."""
    prefixes, hashes = encode_keys(node.on, [rows[f"j{i}"] for i in range(len(node.on))], len(rows))
    parts = [pa.array(np.full(len(rows), side, np.int32)), *(rows[f"k{i}"] for i in range(len(node.sides[side].key)))]
    behind, _ = encode_keys((SIDE, *node.sides[side].key), parts, len(rows))
    whole = Ragged.from_arrow(prefixes)
    keys = join([whole, Ragged.from_arrow(behind)]).to_arrow()
    found = events(keys, hashes, rows, node.sides[side].row)
    return found.append_column("size", pa.array(whole.lengths.astype(np.int32)))


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Distinct join keys, in the order of their partitions."""

    keys: pa.Array
    hashes: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def only(self, chosen: np.ndarray) -> JoinKeys:
        return JoinKeys(self.keys.filter(pa.array(chosen)), self.hashes[chosen])

    def table(self) -> pa.Table:
        return pa.table({"key": self.keys, "hash": pa.array(self.hashes)})


@dataclass(frozen=True, slots=True)
class SideRows:
    """Rows of a side: the relation, the keys of their entries, and the hashes of their partitions."""

    relation: pa.Table
    keys: pa.Array
    hashes: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def states(self) -> np.ndarray:
        return np.asarray(self.relation["st"])

    def join_keys(self) -> JoinKeys:
        """The join keys of the rows that can match."""
        column = self.relation["j"].combine_chunks()
        places = np.flatnonzero(np.asarray(column.is_valid()))
        distinct = column.take(pa.array(places)).dictionary_encode()
        _, first = np.unique(np.asarray(distinct.indices), return_index=True)
        return JoinKeys(distinct.dictionary, self.hashes[places][first])

    def slice(self, start: int, stop: int) -> SideRows:
        return SideRows(self.relation.slice(start, stop - start), self.keys[start:stop], self.hashes[start:stop])


@dataclass(frozen=True, slots=True)
class ChangedRows(SideRows):
    """Rows deleted, then rows inserted; `touched` are the keys of all, in key order within each partition."""

    touched: pa.Array
    partitions: np.ndarray

    def are_among(self, partition: int, keys: pa.Array) -> pa.Array:
        """Which keys of one partition, in ascending order, had a row deleted or inserted."""
        first, last = (int(self.partitions.searchsorted(partition, side)) for side in ("left", "right"))
        first = bisect_left(self.touched, keys[0].as_py(), first, last, key=pa.BinaryScalar.as_py)
        last = bisect_right(self.touched, keys[-1].as_py(), first, last, key=pa.BinaryScalar.as_py)
        return pc.is_in(keys, value_set=self.touched[first:last])


def changed_rows(applier: Applier, node: JoinNode, side: int, part: pa.Table | None) -> ChangedRows:
    """Put the entries of a side, if there are any; returns the rows deleted, then those inserted."""
    if part is None:
        empty = pa.array([], pa.binary())
        relation = _relation(node, side, empty, empty, np.zeros(0, np.int32))
        return ChangedRows(relation, empty, np.zeros(0, np.uint32), empty, np.zeros(0, np.int64))
    changes = applier.put_events(node.table, part)
    found, after = changes.found, changes.after
    chosen = differs(found.rows, after)
    keys, hashes = found.input["key"].combine_chunks(), np.asarray(found.input["hash"])
    deleted, inserted = (np.flatnonzero(chosen & np.asarray(rows.is_valid())) for rows in (found.rows, after))
    if len(inserted) == len(keys) and not len(deleted):  # the first rows of a view
        relation = _relation(node, side, keys, after, np.ones(len(keys), np.int32))
        return ChangedRows(relation, keys, hashes, keys, found.versions.partitions)
    places = np.concatenate([deleted, inserted])
    rows = pa.concat_arrays([found.rows.take(pa.array(deleted)), after.take(pa.array(inserted))])
    states = np.concatenate([np.full(len(deleted), -1, np.int32), np.ones(len(inserted), np.int32)])
    mine, touched = keys.take(pa.array(places)), keys.filter(pa.array(chosen))
    relation = _relation(node, side, mine, rows, states)
    return ChangedRows(relation, mine, hashes[places], touched, found.versions.partitions[chosen])


def unchanged_rows(
    applier: Applier, node: JoinNode, side: int, under: JoinKeys, changed: ChangedRows
) -> Iterator[SideRows]:
    """The unchanged rows of a side under join keys, in pieces."""
    if not node.sides[side].key:
        yield from _looked_up_rows(applier, node, side, under, changed)
        return
    partitions = under.hashes % applier.store.partitions
    (tail,) = encode_keys((SIDE,), [pa.array([side], pa.int32())], 1)[0].to_pylist()
    waiting: list[SideRows] = []
    for partition in np.unique(partitions).tolist():
        mine = np.flatnonzero(partitions == partition)
        mine = mine[np.asarray(pc.sort_indices(under.keys.take(pa.array(mine))))]
        prefixes = [key + tail for key in under.keys.take(pa.array(mine)).to_pylist()]
        for batch in applier.store.scan_prefixes(partition, node.table, prefixes, applier.epoch):
            if not len(batch):
                continue
            stays = pc.invert(changed.are_among(partition, batch["key"]))
            hashes = under.hashes[mine][np.asarray(batch["prefix"])][np.asarray(stays)]
            keys, rows = batch["key"].filter(stays), batch["row"].filter(stays)
            if any(map(len, waiting)) and sum(map(len, waiting)) + len(keys) > applier.settings.side_rows:
                yield _stored_rows(node, side, waiting)
                waiting = []
            waiting.append(SideRows(pa.table({"row": rows}), keys, hashes))
    if any(map(len, waiting)):
        yield _stored_rows(node, side, waiting)


def _looked_up_rows(
    applier: Applier, node: JoinNode, side: int, under: JoinKeys, changed: ChangedRows
) -> Iterator[SideRows]:
    """The same where the entry under a join key is known by it: no more than there are keys, so in one piece."""
    order = pc.sort_indices(under.keys)
    tail, _ = encode_keys((SIDE,), [pa.array(np.full(len(under), side, np.int32))], len(under))
    keys = join([Ragged.from_arrow(under.keys.take(order)), Ragged.from_arrow(tail)]).to_arrow()
    hashes = under.hashes[np.asarray(order)]
    found = applier.find(node.table, pa.table({"key": keys, "hash": pa.array(hashes)}))
    keys = found.input["key"].combine_chunks()
    stays = np.asarray(found.rows.is_valid()) & ~np.asarray(pc.is_in(keys, value_set=changed.touched))
    if stays.any():
        chosen = pa.array(stays)
        part = SideRows(
            pa.table({"row": found.rows.filter(chosen)}), keys.filter(chosen), np.asarray(found.input["hash"])[stays]
        )
        yield _stored_rows(node, side, [part])


def _stored_rows(node: JoinNode, side: int, parts: Sequence[SideRows]) -> SideRows:
    keys = pa.concat_arrays([part.keys for part in parts])
    rows = pa.concat_tables([part.relation for part in parts])["row"].combine_chunks()
    hashes = np.concatenate([part.hashes for part in parts])
    return SideRows(_relation(node, side, keys, rows, np.zeros(len(keys), np.int32)), keys, hashes)


def _relation(node: JoinNode, side: int, keys: pa.Array, rows: pa.Array, states: np.ndarray) -> pa.Table:
    width = len(node.on)
    decoded, prefixes = decode_after(node.on, (SIDE, *node.sides[side].key), keys)
    if any(part.null_count for part in decoded[:width]):
        whole = np.ones(len(keys), bool)
        for part in decoded[:width]:
            whole &= np.asarray(part.is_valid())
        prefixes = pc.if_else(pa.array(whole), prefixes, pa.scalar(None, pa.binary()))
    columns = {"n": pa.array(np.arange(len(keys))), "st": pa.array(states), "j": prefixes}
    columns |= {f"o{part}": decoded[part] for _, part in node.sides[side].on_copies}
    columns |= {f"k{i}": part for i, part in enumerate(decoded[width + 1 :])}
    columns |= {f"v{i}": part for i, part in enumerate(decode_rows(node.sides[side].row, rows))}
    return pa.table(columns)
