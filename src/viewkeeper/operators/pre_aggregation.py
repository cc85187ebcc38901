"""PRE-AGGREGATION: distinct values of a group with their multiplicities, and what the group's record keeps of them.

A group's values are in blocks, each of them a record (`model/entryblocks.py`). The first is under the group's key and knows
where the others begin; one of these is under the group's key and its bound, and has the values from there to the next bound.
So a value is found by two gets, and so are a group's first and last value.

In: by how much multiplicities change. Out: how many distinct values each group has, the first and the last of them, and their
exact sums. Always: nothing is scanned; a block that grows too long is divided, one that becomes empty goes. A sum changes by
the values that came into being or went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.entryblocks import (
    BLOCK_BYTES,
    BLOCK_BYTES_MAX,
    ENTRY_BYTES,
    Blocks,
    Lists,
    decode_blocks,
    encode_blocks,
)
from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.keyorder import order_of_keys
from viewkeeper.model.ragged import Ragged, join
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BINARY
from viewkeeper.operators import exact_sums
from viewkeeper.operators.apply import Applier, Found, rows_where
from viewkeeper.operators.duck import as_type, run_sql
from viewkeeper.plan.nodes import Entries


def apply_entries(
    applier: Applier, entries: Entries, groups: Found, was: Sequence[pa.Array], part: pa.Table | None
) -> list[pa.Array]:
    """Put the entries' new multiplicities; returns the groups' new facts, as the entries name them."""
    facts, columns = entries.facts, entries.facts.named(0, entries.values).values()
    known = [array if one.nullable else array.fill_null(nothing(one)) for one, array in zip(columns, was, strict=True)]
    if part is None or not len(part):
        return known
    keys, sizes = Ragged.from_arrow(part["key"]), np.asarray(part["size"])
    prefixes = keys.cut(np.zeros(len(keys), np.int64), sizes).to_arrow()
    owners = np.asarray(pc.index_in(prefixes, value_set=groups.input["key"].combine_chunks()))
    touched, owners = np.unique(owners, return_inverse=True)
    stored = _Stored(applier, entries.table, groups.input.select(["key", "hash"]).take(pa.array(touched)))
    merged = stored.add(owners, keys.cut(sizes, keys.lengths - sizes), np.asarray(part["n"]))
    after = _After(stored, merged)
    after.put()
    new: list[pa.Array] = []
    if facts.counted:
        change = np.bincount(touched[merged.groups], merged.signs, minlength=len(groups.input)).astype(np.int64)
        new.append(pc.add(known[0], pa.array(change)))
    for is_last in [end for end, wanted in ((False, facts.first), (True, facts.last)) if wanted]:
        new.append(_replaced(was[len(new)], touched, _decoded(entries, after.ends(is_last=is_last))))
    if facts.sums or facts.exact_sums:
        changed = np.flatnonzero(merged.signs)
        values = _decoded(entries, merged.values.take(pa.array(changed)))
        new += _add_values(entries, known[len(new) :], touched[merged.groups[changed]], merged.signs[changed], values)
    return new


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


def _decoded(entries: Entries, values: pa.Array) -> pa.Array:
    """The first column of values, NULL where there is none."""
    there = values.is_valid()
    (found, *_) = decode_keys(entries.values, values.filter(there))
    valid = np.asarray(there)
    return found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _replaced(was: pa.Array, places: np.ndarray, new: pa.Array) -> pa.Array:
    """`was` with other values at some places."""
    chosen = np.arange(len(was))
    chosen[places] = len(was) + np.arange(len(new))
    return pa.concat_arrays([was, new.cast(was.type)]).take(pa.array(chosen))


@dataclass(frozen=True, slots=True)
class _Merged:
    """The entries of all blocks that were read, after the epoch, by group and value: the group and the block of each by its
    number, the multiplicity, and a sign where it came into being (1) or went (−1)."""

    groups: np.ndarray
    blocks: np.ndarray
    values: pa.Array
    counts: np.ndarray
    signs: np.ndarray


class _Stored:
    """The blocks that changes are for, as of the epoch before: first those under the groups' keys, then others."""

    def __init__(self, applier: Applier, table: int, groups: pa.Table) -> None:
        self.applier = applier
        self.table = table
        self.groups = groups
        self.firsts = applier.find(table, groups)
        self._blocks = [decode_blocks(self.firsts.rows)]
        self.bounds = self._blocks[0].bounds
        self.others: Found | None = None
        self.of_bounds = np.zeros(0, np.int64)  # the bounds of `others`, by number

    @property
    def count(self) -> int:
        return len(self.groups) + len(self.of_bounds)

    def add(self, owners: np.ndarray, values: Ragged, changes: np.ndarray) -> _Merged:
        """The entries with changes of their multiplicities; `owners` are the groups of these."""
        blocks = self._read_for(owners, values)
        sizes = np.concatenate([one.values.sizes for one in self._blocks])
        every = pa.concat_arrays([values.to_arrow(), *(one.values.strings.to_arrow() for one in self._blocks)])
        all_blocks = np.concatenate([blocks, np.repeat(np.arange(len(sizes)), sizes)])
        all_groups = np.concatenate([np.arange(len(self.groups)), self.bounds.owners[self.of_bounds]])[all_blocks]
        before = np.concatenate([np.zeros(len(owners), np.int64), *(one.counts for one in self._blocks)])
        added = np.concatenate([changes, np.zeros(len(before) - len(owners), np.int64)])
        order, starts = order_of_keys(every, groups=all_groups)
        chosen = order[starts]
        was = np.add.reduceat(before[order], starts)
        now = was + np.add.reduceat(added[order], starts)
        if (now < 0).any():
            raise InvariantBroken(f"a count in table {self.table} would be {now.min()}")
        signs = (now > 0).astype(np.int64) - (was > 0)
        return _Merged(all_groups[chosen], all_blocks[chosen], every.take(pa.array(chosen)), now, signs)

    def _read_for(self, owners: np.ndarray, values: Ragged) -> np.ndarray:
        """The block of each value, by its number; those that are not under a group's key are read here."""
        if not len(self.bounds.strings):
            return owners
        below = _last_bounds(self.bounds, owners, values)
        is_other = below >= 0
        self.of_bounds, numbers = np.unique(below[is_other], return_inverse=True)
        blocks = owners.copy()
        blocks[is_other] = len(self.groups) + numbers
        if len(self.of_bounds):
            self.others = self.find(self.bounds.owners[self.of_bounds], self.bound_texts.take(pa.array(self.of_bounds)))
            if self.others.rows.null_count:
                raise InvariantBroken(f"a block of table {self.table} is missing")
            self._blocks.append(decode_blocks(self.others.rows))
        return blocks

    @cached_property
    def bound_texts(self) -> pa.Array:
        return self.bounds.strings.to_arrow()

    def find(self, owners: np.ndarray, bounds: pa.Array) -> Found:
        """The blocks that begin at bounds, of groups in ascending order."""
        return self.applier.find(self.table, self.keyed(owners, bounds))

    def keyed(self, owners: np.ndarray, bounds: pa.Array) -> pa.Table:
        groups = self.groups.take(pa.array(owners))
        keys = join([Ragged.from_arrow(groups["key"]), Ragged.from_arrow(bounds)]).to_arrow()
        return pa.table({"key": keys, "hash": groups["hash"]})


def _last_bounds(bounds: Lists, owners: np.ndarray, values: Ragged) -> np.ndarray:
    """For each value the last bound of its group that is not above it, by number; −1 where all are."""
    both = pa.concat_arrays([bounds.strings.to_arrow(), values.to_arrow()])
    order, starts = order_of_keys(both, groups=np.concatenate([bounds.owners, owners]))
    is_bound = order < len(bounds.strings)
    not_above = np.cumsum(np.add.reduceat(is_bound.astype(np.int64), starts))
    rank = np.empty(len(both), np.int64)
    rank[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    last = not_above[rank[len(bounds.strings) :]] - 1  # bounds are in the order of their groups
    return np.where(last >= bounds.starts[owners], last, -1)


class _After:
    """The blocks after the epoch: those that were read, then those that were divided off."""

    def __init__(self, stored: _Stored, merged: _Merged) -> None:
        alive = np.flatnonzero(merged.counts)
        values, blocks, groups = merged.values.take(pa.array(alive)), merged.blocks[alive], merged.groups[alive]
        begins, is_first = _pieces(blocks, Ragged.from_arrow(values).lengths), _begins(blocks)
        is_new = begins & ~is_first
        numbers = np.where(is_new, stored.count + np.cumsum(is_new) - 1, blocks)[begins][np.cumsum(begins) - 1]
        order = np.argsort(numbers, kind="stable")
        self._stored = stored
        self._new = stored.keyed(groups[is_new], values.filter(pa.array(is_new)))
        sizes = np.bincount(numbers, minlength=stored.count + len(self._new))
        self._values = Lists(Ragged.from_arrow(values.take(pa.array(order))), sizes)
        self._counts = merged.counts[alive][order]
        gone = stored.of_bounds[sizes[len(stored.groups) : stored.count] == 0]
        self._bounds = _changed_bounds(stored.bounds, gone, groups[is_new], values.filter(pa.array(is_new)))

    def put(self) -> None:
        stored, applier, firsts = self._stored, self._stored.applier, len(self._stored.groups)
        bounds = np.concatenate([self._bounds.sizes, np.zeros(len(self._values.sizes) - firsts, np.int64)])
        rows = encode_blocks(Blocks(Lists(self._bounds.strings, bounds), self._values, self._counts))
        rows = rows_where((bounds > 0) | (self._values.sizes > 0), rows)
        applier.put(stored.firsts, rows[:firsts])
        if stored.others is not None:
            applier.put(stored.others, rows[firsts : stored.count])
        if len(self._new):
            found = applier.find(stored.table, self._new)
            if found.rows.null_count < len(self._new):
                raise InvariantBroken(f"a new block of table {stored.table} is there already")
            applier.put(found, rows[stored.count :])

    def ends(self, *, is_last: bool) -> pa.Array:
        """Each group's first (last) value, NULL where a group has none."""
        stored, bounds, firsts = self._stored, self._bounds, len(self._stored.groups)
        blocks = np.arange(firsts)
        beyond = np.flatnonzero((bounds.sizes > 0) & (is_last | (self._values.sizes[:firsts] == 0)))
        chosen = bounds.starts[1:][beyond] - 1 if is_last else bounds.starts[:-1][beyond]
        wanted = stored.keyed(beyond, bounds.strings.to_arrow().take(pa.array(chosen)))
        known = [self._new["key"]] if stored.others is None else [stored.others.input["key"], self._new["key"]]
        places = pc.index_in(wanted["key"].combine_chunks(), value_set=pa.chunked_array(known).combine_chunks())
        unread = np.asarray(places.is_null())
        blocks[beyond] = firsts + np.asarray(places.fill_null(0))
        found = _ends_of(self._values, is_last=is_last).take(pa.array(blocks))
        if not unread.any():
            return found
        others = stored.applier.find(stored.table, wanted.filter(pa.array(unread)))
        return _replaced(found, beyond[unread], _ends_of(decode_blocks(others.rows).values, is_last=is_last))


def _ends_of(lists: Lists, *, is_last: bool) -> pa.Array:
    """The first (last) string of each list, NULL where it is empty."""
    places = lists.starts[1:] - 1 if is_last else lists.starts[:-1]
    return lists.strings.to_arrow().take(pa.array(places, mask=lists.sizes == 0))


def _pieces(blocks: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Where a block begins, or a piece of one that is too long."""
    begins, costs = _begins(blocks), lengths + ENTRY_BYTES
    firsts = np.flatnonzero(begins)
    if not len(firsts):
        return begins
    numbers, totals = np.cumsum(begins) - 1, np.add.reduceat(costs, firsts)
    if (totals <= BLOCK_BYTES_MAX).all():
        return begins
    before = np.cumsum(costs) - costs
    pieces = np.where(totals > BLOCK_BYTES_MAX, -(-totals // BLOCK_BYTES), 1)
    piece = (before - before[firsts][numbers]) * pieces[numbers] // totals[numbers]
    return begins | _begins(piece)


def _begins(numbers: np.ndarray) -> np.ndarray:
    """Where a number differs from the one before it."""
    return np.concatenate([np.ones(min(1, len(numbers)), bool), numbers[1:] != numbers[:-1]])


def _changed_bounds(bounds: Lists, gone: np.ndarray, owners: np.ndarray, new: pa.Array) -> Lists:
    """The bounds without those of blocks that went, and with those of new blocks."""
    if not len(gone) and not len(new):
        return bounds
    kept = np.delete(np.arange(len(bounds.strings)), gone)
    strings = pa.concat_arrays([bounds.strings.to_arrow().take(pa.array(kept)), new])
    groups = np.concatenate([bounds.owners[kept], owners])
    order, _ = order_of_keys(strings, groups=groups)
    sizes = np.bincount(groups, minlength=len(bounds.sizes))
    return Lists(Ragged.from_arrow(strings.take(pa.array(order))), sizes)
