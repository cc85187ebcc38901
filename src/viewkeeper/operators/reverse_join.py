"""REVERSE-JOIN: the entries of a join's sides as relations that SQL can join, and how many matches a row has.

In: events of entries, join keys to look up, and changed rows of sides. Out: relations with `n` (the row's number), `st`,
`j` (the join key's bytes), `o0…` (those of its parts that the join emits), the row key `k0…` and the columns `v0…`; and
whether a row had and has a match. Always: `st` is -1 for a deleted row, 1 for an inserted one, 0 for an unchanged one, as
of the epoch before; `j` is NULL where a part of the join key is, because it matches nothing. Match counts come from the
version below the epoch and the changes; entries are never counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.keybatches import decode_after, encode_keys
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT
from viewkeeper.model.varbinary import VarBinary, join
from viewkeeper.operators.apply import COUNT, Applier, differs, rows_where
from viewkeeper.operators.operator import events
from viewkeeper.plan.nodes import SIDE, JoinNode


def entry_events(node: JoinNode, side: int, rows: pa.Table) -> pa.Table:
    """The events of a side's entries; `size` bytes of a key are the join key, which also decides the partition."""
    prefixes, hashes = encode_keys(node.on, [rows[f"j{i}"] for i in range(len(node.on))], len(rows))
    parts = [pa.array(np.full(len(rows), side, np.int32)), *(rows[f"k{i}"] for i in range(len(node.sides[side].key)))]
    after, _ = encode_keys((SIDE, *node.sides[side].key), parts, len(rows))
    whole = VarBinary.from_arrow(prefixes)
    keys = join([whole, VarBinary.from_arrow(after)]).to_arrow()
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
        indexes = np.flatnonzero(np.asarray(column.is_valid()))
        distinct = column.take(pa.array(indexes)).dictionary_encode()
        _, first = np.unique(np.asarray(distinct.indices), return_index=True)
        return JoinKeys(distinct.dictionary, self.hashes[indexes][first])

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
    indexes = np.concatenate([deleted, inserted])
    rows = pa.concat_arrays([found.rows.take(pa.array(deleted)), after.take(pa.array(inserted))])
    states = np.concatenate([np.full(len(deleted), -1, np.int32), np.ones(len(inserted), np.int32)])
    mine, touched = keys.take(pa.array(indexes)), keys.filter(pa.array(chosen))
    relation = _relation(node, side, mine, rows, states)
    return ChangedRows(relation, mine, hashes[indexes], touched, found.versions.partitions[chosen])


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
    keys = join([VarBinary.from_arrow(under.keys.take(order)), VarBinary.from_arrow(tail)]).to_arrow()
    hashes = under.hashes[np.asarray(order)]
    found = applier.find(node.table, pa.table({"key": keys, "hash": pa.array(hashes)}))
    keys = found.input["key"].combine_chunks()
    stays = np.asarray(found.rows.is_valid()) & ~np.asarray(pc.is_in(keys, value_set=changed.touched))
    if stays.any():
        chosen = pa.array(stays)
        rows, hashes = pa.table({"row": found.rows.filter(chosen)}), np.asarray(found.input["hash"])[stays]
        yield _stored_rows(node, side, [SideRows(rows, keys.filter(chosen), hashes)])


def _stored_rows(node: JoinNode, side: int, parts: Sequence[SideRows]) -> SideRows:
    keys = pa.concat_arrays([part.keys for part in parts])
    rows = pa.concat_tables([part.relation for part in parts])["row"].combine_chunks()
    hashes = np.concatenate([part.hashes for part in parts])
    return SideRows(_relation(node, side, keys, rows, np.zeros(len(keys), np.int32)), keys, hashes)


def _relation(node: JoinNode, side: int, keys: pa.Array, rows: pa.Array, states: np.ndarray) -> pa.Table:
    width = len(node.on)
    decoded, prefixes = decode_after(node.on, (SIDE, *node.sides[side].key), keys)
    if any(part.null_count for part in decoded[:width]):
        whole = np.logical_and.reduce([np.asarray(part.is_valid()) for part in decoded[:width]])
        prefixes = pc.if_else(pa.array(whole), prefixes, pa.scalar(None, pa.binary()))
    columns = {"n": pa.array(np.arange(len(keys))), "st": pa.array(states), "j": prefixes}
    columns |= {f"o{part}": decoded[part] for _, part in node.sides[side].on_copies}
    columns |= {f"k{i}": part for i, part in enumerate(decoded[width + 1 :])}
    columns |= {f"v{i}": part for i, part in enumerate(decode_rows(node.sides[side].row, rows))}
    return pa.table(columns)


_COUNTS = (Column("first", BIGINT, nullable=False), Column("second", BIGINT, nullable=False))


class SideCounts:
    """How many rows each side has under the join keys that changed rows touch."""

    def __init__(self, applier: Applier, table: int, changed: Sequence[SideRows]) -> None:
        touched = [rows.join_keys() for rows in changed]
        keys = pa.concat_arrays([one.keys for one in touched]).dictionary_encode()
        _, first = np.unique(np.asarray(keys.indices), return_index=True)
        hashes = np.concatenate([one.hashes for one in touched])[first]
        found = applier.find(table, pa.table({"key": keys.dictionary, "hash": pa.array(hashes)}))
        self._keys = found.input["key"].combine_chunks()
        self._old = np.stack([np.asarray(part.fill_null(0)) for part in decode_rows(_COUNTS, found.rows)])
        self._new = self._old + np.stack([self._changes(rows) for rows in changed])
        if (self._new < 0).any():
            raise InvariantBroken(f"a join key of table {table} would have {self._new.min()} rows")
        rows = encode_rows(_COUNTS, [pa.array(part) for part in self._new], len(self._keys))
        applier.put(found, rows_where(self._new.any(axis=0), rows))

    def is_matched(self, rows: SideRows, other: int) -> tuple[np.ndarray, np.ndarray]:
        """For each row, whether side `other` had, and has, rows under its join key."""
        indexes = self._places(rows.relation["j"].combine_chunks())
        return _at(self._old[other], indexes) > 0, _at(self._new[other], indexes) > 0

    def crossing(self, keys: JoinKeys, other: int) -> np.ndarray:
        """The join keys under which side `other` had rows and has none, or the other way round."""
        indexes = self._places(keys.keys)
        return (_at(self._old[other], indexes) > 0) != (_at(self._new[other], indexes) > 0)

    def _changes(self, rows: SideRows) -> np.ndarray:
        indexes = self._places(rows.relation["j"].combine_chunks())
        known = indexes < len(self._keys)
        return np.bincount(indexes[known], rows.states[known], minlength=len(self._keys)).astype(np.int64)

    def _places(self, keys: pa.Array) -> np.ndarray:
        """The index of each key; past the last one where it matches nothing, because NULL matches no key."""
        return np.asarray(pc.index_in(keys, value_set=self._keys).fill_null(len(self._keys)))


def _at(numbers: np.ndarray, indexes: np.ndarray) -> np.ndarray:
    return np.append(numbers, 0)[indexes]


def put_matches(applier: Applier, table: int, rows: SideRows, matches: np.ndarray) -> None:
    """Set the match counts of changed rows; a row that was only deleted loses its record."""
    order = np.argsort(rows.states < 0, kind="stable")  # a row that was deleted and inserted: as inserted
    keys = rows.keys.take(pa.array(order)).dictionary_encode()
    _, first = np.unique(np.asarray(keys.indices), return_index=True)
    chosen = order[first]
    numbers = np.where(rows.states > 0, matches, 0)[chosen]
    keyed = pa.table({"key": keys.dictionary, "hash": pa.array(rows.hashes[chosen]), "n": pa.array(numbers)})
    found = applier.find(table, keyed)
    counts = encode_rows(COUNT, [found.input["n"].combine_chunks()], len(found.input))
    applier.put(found, rows_where(np.asarray(found.input["n"]) > 0, counts))


def change_matches(
    applier: Applier, table: int, rows: SideRows, less: np.ndarray, more: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Subtract `less` and add `more` matches to unchanged rows; returns which had one, and which have one.

    Both are False of rows that neither lose nor gain matches.
    """
    was, now = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    touched = np.flatnonzero(less + more)
    if len(touched):
        keyed = pa.table({"key": rows.keys.take(pa.array(touched)), "hash": pa.array(rows.hashes[touched])})
        found = applier.find(table, keyed.append_column("at", pa.array(touched)))
        at = np.asarray(found.input["at"])
        old, new = applier.add_counts(found, more[at] - less[at])
        was[at], now[at] = old > 0, new > 0
    return was, now
