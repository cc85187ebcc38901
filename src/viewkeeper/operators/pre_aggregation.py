"""PRE-AGGREGATION: distinct values of a group with their multiplicities, and what the group's record keeps of them.

In: by how much multiplicities change. Out: how many distinct values each group has, the first and the last of them, and their
exact sums. Always: a group's first value is the smallest of what was first before (if it is still there), of what came, and,
when the old first one went, of the next entry of the prefix as of the epoch before that did not go: one look into the store,
no scan. A sum changes by the values whose entries came into being or went.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import decode_keys, encode_keys
from viewkeeper.model.keyorder import order_of_keys
from viewkeeper.model.ragged import Ragged, join
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BINARY
from viewkeeper.operators import exact_sums
from viewkeeper.operators.apply import Applier, Found
from viewkeeper.operators.duck import as_type, run_sql
from viewkeeper.plan.nodes import Entries


def combine_entries(tables: Sequence[pa.Table], partitions: int) -> pa.Table:
    """The change of each entry's multiplicity (`key`, `hash`, `size`, `n`), where there is one, by partition and key."""
    rows = pa.concat_tables(tables).combine_chunks()
    at = (np.asarray(rows["hash"]) % partitions).astype(np.int64)
    order, starts = order_of_keys(rows["key"].combine_chunks(), groups=at)
    if not len(starts):
        return rows
    changes = np.add.reduceat(np.asarray(rows["n"])[order], starts)
    chosen = pa.array(order[starts][changes != 0])
    found = rows.select(["key", "hash", "size"]).take(chosen)
    return found.append_column("n", pa.array(changes[changes != 0]))


def apply_entries(
    applier: Applier, entries: Entries, groups: Found, was: Sequence[pa.Array], part: pa.Table | None
) -> list[pa.Array]:
    """Put the entries' new multiplicities; returns the groups' new facts, as the entries name them."""
    facts, columns = entries.facts, entries.facts.named(0, entries.values).values()
    known = [array if one.nullable else array.fill_null(nothing(one)) for one, array in zip(columns, was, strict=True)]
    if part is None or not len(part):
        return known
    found = applier.find(entries.table, part)
    old, new = applier.add_counts(found, np.asarray(found.input["n"]))
    inserted, deleted = (old == 0) & (new > 0), (old > 0) & (new == 0)
    keys = found.input["key"].combine_chunks()
    group_keys = groups.input["key"].combine_chunks()
    sizes = np.asarray(found.input["size"])
    prefixes = Ragged.from_arrow(keys).cut(np.zeros(len(keys), np.int64), sizes).to_arrow()
    owners = np.asarray(pc.index_in(prefixes, value_set=group_keys))
    after: list[pa.Array] = []
    if facts.counted:
        change = np.bincount(owners, inserted.astype(np.int64) - deleted.astype(np.int64), minlength=len(group_keys))
        after.append(pc.add(known[0], pa.array(change.astype(np.int64))))
    changes = _Changed(keys, owners, inserted, deleted)
    for is_last in [end for end, wanted in ((False, facts.first), (True, facts.last)) if wanted]:
        ends = _Ends(applier, entries, groups, is_last=is_last)
        after.append(ends.after(was[len(after)], changes))
    if facts.sums or facts.exact_sums:
        changed = inserted | deleted
        values = _values_of(entries, keys.filter(pa.array(changed)), sizes[changed])
        signs = np.where(inserted, 1, -1)[changed]
        after += _add_values(entries, known[len(after) :], owners[changed], signs, values)
    return after


def nothing(column: Column) -> pa.Scalar:
    """What a group without rows has in a column of its record that is never NULL."""
    return pa.scalar(b"" if column.type == BINARY else 0, column.type.arrow)


def _add_values(
    entries: Entries, known: Sequence[pa.Array], owners: np.ndarray, signs: np.ndarray, values: pa.Array
) -> list[pa.Array]:
    """The sums over distinct values, with those that came added and those that went taken away."""
    new, count = [], len(entries.facts.sums)
    if count:
        changed = pa.table({"owner": pa.array(owners), "sign": pa.array(signs), "e0": values})
        added = run_sql(entries.add, changed=changed).combine_chunks()
        places = pc.index_in(pa.array(np.arange(len(known[0]))), value_set=added["owner"].cast(pa.int64()))
        changes = [as_type(added[f"s{place}"], known[0].type) for place in range(count)]
        new += [exact_sums.add_exactly(was, change.take(places)) for was, change in zip(known, changes, strict=False)]
    for was, kind in zip(known[count:], entries.facts.exact_sums, strict=True):
        sums = was
        for splits, mantissas in exact_sums.SPLITS[kind](np.asarray(values)):
            sums = exact_sums.add_sums(sums, owners, splits, pa.array(mantissas * signs))
        new.append(sums)
    return new


def _values_of(entries: Entries, keys: pa.Array, sizes: np.ndarray) -> pa.Array:
    """The value at the end of each entry's key, of which `sizes` bytes are its group's."""
    whole = Ragged.from_arrow(keys)
    return decode_keys(entries.values, whole.cut(sizes, whole.lengths - sizes).to_arrow())[0]


class _Changed:
    """The entries whose multiplicity changed, in key order within each group: the groups they belong to, by index, and
    which of them came into being or went."""

    def __init__(self, keys: pa.Array, owners: np.ndarray, inserted: np.ndarray, deleted: np.ndarray) -> None:
        self.keys = keys
        self.owners = owners
        self.inserted = np.flatnonzero(inserted)
        self._gone = keys.filter(pa.array(deleted))
        self._owners_of_gone = owners[deleted]

    @cached_property
    def left_out(self) -> frozenset[bytes]:
        """The keys of the entries that went."""
        return frozenset(self._gone.to_pylist())

    def lost(self, ends: pa.Array) -> np.ndarray:
        """Which groups' entry in `ends` went."""
        lost = np.zeros(len(ends), bool)
        is_end = pc.equal(self._gone, ends.take(pa.array(self._owners_of_gone)))
        lost[self._owners_of_gone[np.asarray(is_end.fill_null(False))]] = True
        return lost


class _Ends:
    """The first (or last) entry of each group."""

    def __init__(self, applier: Applier, entries: Entries, groups: Found, *, is_last: bool) -> None:
        self._applier = applier
        self._entries = entries
        self._groups = groups.input["key"].combine_chunks()
        self._partitions = groups.versions.partitions
        self._is_last = is_last
        self._best = pc.max_element_wise if is_last else pc.min_element_wise

    def after(self, was: pa.Array, changed: _Changed) -> pa.Array:
        """The values at the end after the epoch, NULL where a group has none; `was`: those of the epoch before."""
        old = self._entry_keys(was)
        lost = changed.lost(old)
        kept = pc.if_else(pa.array(lost), pa.scalar(None, old.type), old) if lost.any() else old
        best = self._best(kept, self._first_of(changed))
        if lost.any():
            best = self._best(best, self._next_entries(np.flatnonzero(lost), old, changed.left_out))
        return self._values(best)

    def _entry_keys(self, values: pa.Array) -> pa.Array:
        """The entry keys of values, NULL where there is none."""
        parts, _ = encode_keys(self._entries.values, [values], len(values))
        whole = join([Ragged.from_arrow(self._groups), Ragged.from_arrow(parts)])
        return whole.to_arrow(valid=np.asarray(values.is_valid()))

    def _first_of(self, changed: _Changed) -> pa.Array:
        """The first (last) of each group's inserted entries."""
        chosen = changed.inserted if self._is_last else changed.inserted[::-1]
        places = np.full(len(self._groups), -1)
        places[changed.owners[chosen]] = chosen  # of several for one group the last one stays
        return changed.keys.take(pa.array(places, mask=places < 0))

    def _next_entries(self, lost: np.ndarray, old: pa.Array, left_out: frozenset[bytes]) -> pa.Array:
        """For each lost entry the next one as of the epoch before that was not deleted."""
        chosen = pa.array(lost)
        ranges = list(zip(self._groups.take(chosen).to_pylist(), old.take(chosen).to_pylist(), strict=True))
        partitions, nexts = self._partitions[lost], list[bytes | None]()
        for partition in np.unique(partitions).tolist():
            start, stop = np.searchsorted(partitions, [partition, partition + 1])
            nexts += self._applier.store.next_keys(
                partition, self._entries.table, ranges[start:stop], left_out, self._applier.epoch, reverse=self._is_last
            )
        places = np.full(len(self._groups), -1)
        places[lost] = np.arange(len(lost))
        return pa.array(nexts, pa.binary()).take(pa.array(places, mask=places < 0))

    def _values(self, keys: pa.Array) -> pa.Array:
        """The value at the end of each entry's key."""
        there = keys.is_valid()
        sizes = Ragged.from_arrow(self._groups).lengths[np.asarray(there)]
        values = _values_of(self._entries, keys.filter(there), sizes)
        valid = np.asarray(there)
        return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))
