"""PRE-AGGREGATION: distinct values of a group with their multiplicities, and what the group's record keeps of them.

The values of all arguments of one type are kept together, each argument in a slot of its own, because many are the same
under other conditions. Each block of values is a record (`model/entryblocks.py`): the first, under the group's key, knows
where the others begin; another, under the group's key and its bound, has the values from there to the next bound.

In: changes of multiplicities. Out: records; the count of each group's distinct values, the first and the last of them, and
their exact sums. Always: computed from the blocks as of the epoch before; a value is found by its key, so no group is
scanned; a sum changes by the values that appeared or vanished. Blocks are divided when too long, deleted when empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
from viewkeeper.model.keybatches import decode_keys, order_of_keys
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BINARY
from viewkeeper.model.varbinary import VarBinary, join
from viewkeeper.operators import exact_sums
from viewkeeper.operators.apply import Applier, FoundRecords, rows_where
from viewkeeper.operators.duck import run_row_by_row
from viewkeeper.plan.nodes import Entries

End = tuple[int, bool]  # slot, and whether it is the last value, not the first
_GROUPS_AT_ONCE = 1 << 16  # times slots, whose blocks are in memory together


@dataclass(frozen=True, slots=True)
class MultiplicityChanges:
    """Changes of multiplicities: the group of each by number, the value, its slot, the change."""

    groups: np.ndarray
    values: pa.Array
    slots: np.ndarray
    counts: np.ndarray

    @staticmethod
    def of(group_keys: pa.Array, parts: Mapping[int, pa.Table]) -> MultiplicityChanges:
        every = pa.concat_tables(parts.values())
        keys, sizes = VarBinary.from_arrow(every["key"]), np.asarray(every["size"])
        prefixes = keys.cut(np.zeros(len(keys), np.int64), sizes).to_arrow()
        groups, slots = pc.index_in(prefixes, value_set=group_keys), np.repeat(list(parts), [*map(len, parts.values())])
        values = keys.cut(sizes, keys.lengths - sizes).to_arrow()
        return MultiplicityChanges(np.asarray(groups), values, slots, np.asarray(every["n"]))

    def of_groups(self, start: int, stop: int) -> MultiplicityChanges:
        """Those of some groups, numbered from 0."""
        if start == 0 and (self.groups < stop).all():
            return self
        chosen = np.flatnonzero((self.groups >= start) & (self.groups < stop))
        values = self.values.take(pa.array(chosen))
        return MultiplicityChanges(self.groups[chosen] - start, values, self.slots[chosen], self.counts[chosen])


@dataclass(frozen=True, slots=True)
class Moves:
    """Values that appeared (1) or vanished (−1): the group of each by number, the value, a column of signs for each slot."""

    groups: np.ndarray
    values: pa.Array
    signs: np.ndarray

    @staticmethod
    def together(parts: Sequence[Moves]) -> Moves:
        if len(parts) == 1:
            return parts[0]
        values = pa.concat_arrays([part.values for part in parts])
        groups, signs = (np.concatenate([getattr(part, name) for part in parts]) for name in ("groups", "signs"))
        return Moves(groups, values, signs)


def change_blocks(
    applier: Applier, table: int, groups: pa.Table, changes: MultiplicityChanges, slots: int, ends: Sequence[End]
) -> tuple[Moves, dict[End, pa.Array]]:
    """Put the changes of groups (`key`, `hash`); returns the values that appeared or vanished, and each group's `ends`."""
    moves, found, at_once = list[Moves](), list[dict[End, pa.Array]](), max(1, _GROUPS_AT_ONCE // slots)
    for start in range(0, len(groups), at_once):
        stored = _Stored(applier, table, groups.slice(start, at_once), slots)
        items, moved = stored.add(changes.of_groups(start, start + at_once))
        after = _After(stored, items)
        after.put()
        moves.append(replace(moved, groups=moved.groups + start))
        found.append(after.ends(ends))
    return Moves.together(moves), {end: pa.concat_arrays([part[end] for part in found]) for end in ends}


@dataclass(frozen=True, slots=True)
class _Items:
    """The values after the epoch, by group and value: the group and the block of each by number, multiplicities by slot."""

    groups: np.ndarray
    blocks: np.ndarray
    values: pa.Array
    counts: np.ndarray


class _Stored:
    """The blocks that changes are for, as of the epoch before: first those under the groups' keys, then others."""

    def __init__(self, applier: Applier, table: int, groups: pa.Table, slots: int) -> None:
        self.applier, self.table, self.groups, self.slots = applier, table, groups, slots
        self.firsts = applier.find(table, groups)
        self._blocks = [decode_blocks(self.firsts.rows, slots)]
        self.bounds = self._blocks[0].bounds
        self.others: FoundRecords | None = None
        self.of_bounds = np.zeros(0, np.int64)  # the bounds of `others`, by number

    @property
    def count(self) -> int:
        return len(self.groups) + len(self.of_bounds)

    def add(self, changes: MultiplicityChanges) -> tuple[_Items, Moves]:
        """The values of the blocks with changes applied, and those that appeared or vanished."""
        asked = self._read_for(changes)
        values = pa.concat_arrays([changes.values, *(one.values.strings.to_arrow() for one in self._blocks)])
        sizes = np.concatenate([one.values.sizes for one in self._blocks])
        blocks = np.concatenate([asked, np.repeat(np.arange(len(sizes)), sizes)])
        groups = np.concatenate([np.arange(len(self.groups)), self.bounds.owners[self.of_bounds]])[blocks]
        order, starts = order_of_keys(values, groups=groups)
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        changed, counts = numbers[: len(asked)], np.zeros((len(starts), self.slots), np.int64)
        strings, slots = np.nonzero(np.concatenate([one.values.masks for one in self._blocks]))
        flat = counts.reshape(-1)
        flat[numbers[len(asked) :][strings] * self.slots + slots] = np.concatenate([one.counts for one in self._blocks])
        is_touched = np.zeros(len(starts), bool)
        is_touched[changed] = True
        touched, chosen = np.flatnonzero(is_touched), order[starts]
        was = counts[touched] > 0
        np.add.at(flat, changed * self.slots + changes.slots, changes.counts)
        if ((now := counts[touched]) < 0).any():
            raise InvariantBroken(f"a count in table {self.table} would be {now.min()}")
        signs = (now > 0).astype(np.int8) - was
        moved = np.flatnonzero(signs.any(axis=1))
        positions = chosen[touched[moved]]
        moves = Moves(groups[positions], values.take(pa.array(positions)), signs[moved])
        gone = touched[~now.any(axis=1)]
        if len(gone):
            chosen, counts = np.delete(chosen, gone), np.delete(counts, gone, axis=0)
        return _Items(groups[chosen], blocks[chosen], values.take(pa.array(chosen)), counts), moves

    def _read_for(self, changes: MultiplicityChanges) -> np.ndarray:
        """The block of each change, by its number; those that are not under a group's key are read here."""
        if not len(self.bounds.strings):
            return changes.groups
        below = _last_bounds(self.bounds, changes.groups, changes.values)
        is_other = below >= 0
        self.of_bounds, numbers = np.unique(below[is_other], return_inverse=True)
        blocks = changes.groups.copy()
        blocks[is_other] = len(self.groups) + numbers
        if len(self.of_bounds):
            self.others = self.find(self.bounds, self.of_bounds)
            self._blocks.append(decode_blocks(self.others.rows, self.slots))
        return blocks

    def find(self, bounds: Lists, chosen: np.ndarray) -> FoundRecords:
        """The blocks that begin at some of the bounds, in ascending order."""
        keyed = self.keyed(bounds.owners[chosen], bounds.strings.to_arrow().take(pa.array(chosen)))
        found = self.applier.find(self.table, keyed)
        if found.rows.null_count:
            raise InvariantBroken(f"a block of table {self.table} is missing")
        return found

    def keyed(self, owners: np.ndarray, bounds: pa.Array) -> pa.Table:
        """Keys of blocks."""
        groups = self.groups.take(pa.array(owners))
        keys = join([VarBinary.from_arrow(groups["key"]), VarBinary.from_arrow(bounds)]).to_arrow()
        return pa.table({"key": keys, "hash": groups["hash"]})


def _last_bounds(bounds: Lists, owners: np.ndarray, values: pa.Array) -> np.ndarray:
    """For each value the last bound of its group that is not above it, by number; −1 where all are."""
    both = pa.concat_arrays([bounds.strings.to_arrow(), values])
    order, starts = order_of_keys(both, groups=np.concatenate([bounds.owners, owners]))
    is_bound = order < len(bounds.strings)
    not_above = np.cumsum(np.add.reduceat(is_bound.astype(np.int64), starts))
    rank = np.empty(len(both), np.int64)
    rank[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    last = not_above[rank[len(bounds.strings) :]] - 1  # bounds are in the order of their groups
    return np.where(last >= bounds.starts[owners], last, -1)


class _After:
    """The blocks after the epoch: those that were read, then those that were divided off."""

    def __init__(self, stored: _Stored, items: _Items) -> None:
        begins = _pieces(items.blocks, VarBinary.from_arrow(items.values).lengths)
        is_new = begins & ~_begins(items.blocks)
        records = np.where(is_new, stored.count + np.cumsum(is_new) - 1, items.blocks)[begins][np.cumsum(begins) - 1]
        self._stored = stored
        self._new_groups, self._new_bounds = items.groups[is_new], items.values.filter(pa.array(is_new))
        sizes = np.bincount(records, minlength=stored.count + len(self._new_bounds))
        values, counts = items.values, items.counts
        if (records[1:] < records[:-1]).any():
            order = np.argsort(records, kind="stable")
            values, counts = values.take(pa.array(order)), counts[order]
        self._values = Lists(VarBinary.from_arrow(values), counts > 0, sizes)
        self._counts = counts[self._values.masks]
        self._masks = np.zeros((len(sizes), stored.slots), bool)  # of whole blocks
        if len(values):
            self._masks[sizes > 0] = np.logical_or.reduceat(self._values.masks, self._values.starts[:-1][sizes > 0])
        self._bounds, self._blocks = self._changed_bounds()

    def _changed_bounds(self) -> tuple[Lists, np.ndarray]:
        """The bounds of the blocks that there are now; and the block of each by number, −1 where it was not read."""
        stored, old, firsts = self._stored, self._stored.bounds, len(self._stored.groups)
        blocks, masks = np.full(len(old.strings), -1), old.masks.copy()
        blocks[stored.of_bounds] = np.arange(firsts, stored.count)
        masks[stored.of_bounds] = self._masks[firsts : stored.count]
        gone = stored.of_bounds[self._values.sizes[firsts : stored.count] == 0]
        if not len(gone) and not len(self._new_bounds):
            return Lists(old.strings, masks, old.sizes), blocks
        kept = np.delete(np.arange(len(old.strings)), gone)
        strings = pa.concat_arrays([old.strings.to_arrow().take(pa.array(kept)), self._new_bounds])
        owners = np.concatenate([old.owners[kept], self._new_groups])
        blocks = np.concatenate([blocks[kept], np.arange(stored.count, len(self._values.sizes))])
        masks = np.concatenate([masks[kept], self._masks[stored.count :]])
        order, _ = order_of_keys(strings, groups=owners)
        sizes = np.bincount(owners, minlength=firsts)
        return Lists(VarBinary.from_arrow(strings.take(pa.array(order))), masks[order], sizes), blocks[order]

    def put(self) -> None:
        stored, applier, firsts = self._stored, self._stored.applier, len(self._stored.groups)
        bounds = np.concatenate([self._bounds.sizes, np.zeros(len(self._values.sizes) - firsts, np.int64)])
        whole = Lists(self._bounds.strings, self._bounds.masks, bounds)
        rows = encode_blocks(Blocks(whole, self._values, self._counts))
        rows = rows_where((bounds > 0) | (self._values.sizes > 0), rows)
        applier.put(stored.firsts, rows[:firsts])
        if stored.others is not None:
            applier.put(stored.others, rows[firsts : stored.count])
        if len(self._new_bounds):
            found = applier.find(stored.table, stored.keyed(self._new_groups, self._new_bounds))
            if found.rows.null_count < len(rows) - stored.count:
                raise InvariantBroken(f"a new block of table {stored.table} is there already")
            applier.put(found, rows[stored.count :])

    def ends(self, asked: Sequence[End]) -> dict[End, pa.Array]:
        """Each group's first (or last) value of each slot that is asked for; NULL where it has none."""
        at = {one: self._end_bounds(*one) for one in asked}
        wanted = np.unique(np.concatenate([np.zeros(0, np.int64), *at.values()]))
        unread = np.array([one for one in wanted.tolist() if one >= 0 and self._blocks[one] < 0], np.int64)
        values, blocks = self._values, self._blocks.copy()
        if len(unread):
            others = decode_blocks(self._stored.find(self._bounds, unread).rows, self._stored.slots).values
            strings = pa.concat_arrays([values.strings.to_arrow(), others.strings.to_arrow()])
            blocks[unread] = len(values.sizes) + np.arange(len(unread))
            masks, sizes = ([*pair] for pair in ((values.masks, others.masks), (values.sizes, others.sizes)))
            values = Lists(VarBinary.from_arrow(strings), np.concatenate(masks), np.concatenate(sizes))
        texts, found = values.strings.to_arrow(), {}
        for (slot, is_last), bounds in at.items():
            chosen = np.arange(len(bounds))
            chosen[bounds >= 0] = blocks[bounds[bounds >= 0]]
            indexes = _ends_by_list(values, slot, is_last=is_last)[chosen]
            found[slot, is_last] = texts.take(pa.array(indexes, mask=indexes < 0))
        return found

    def _end_bounds(self, slot: int, is_last: bool) -> np.ndarray:
        """For each group the bound of the block with its first (last) value, by number; −1: the one under the group's key."""
        found = _ends_by_list(self._bounds, slot, is_last=is_last)
        return found if is_last else np.where(self._masks[: len(found), slot], -1, found)


def _ends_by_list(lists: Lists, slot: int, *, is_last: bool) -> np.ndarray:
    """The first (last) string of each list that is in a slot, by number; −1 where there is none."""
    there = np.flatnonzero(lists.masks[:, slot])[:: 1 if is_last else -1]
    found = np.full(len(lists.sizes), -1)
    found[lists.owners[there]] = there  # of several the last one stays
    return found


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


def apply_entries(
    applier: Applier,
    slots: Sequence[Entries],
    groups: FoundRecords,
    was: Sequence[Sequence[pa.Array]],
    parts: Mapping[int, pa.Table],
) -> list[Sequence[pa.Array]]:
    """Put the new multiplicities of the entries of one table; returns the groups' new facts, slot by slot.

    `was` are the facts of the epoch before, `parts` the changes by the number of their slot.
    """
    parts = {slot: part for slot, part in parts.items() if len(part)}
    if not parts:
        return list(was)
    changes = MultiplicityChanges.of(groups.input["key"].combine_chunks(), parts)
    touched, owners = np.unique(changes.groups, return_inverse=True)
    keyed = groups.input.select(["key", "hash"]).take(pa.array(touched))
    asked = [(slot, is_last) for slot, one in enumerate(slots) for is_last in one.facts.ends]
    moves, ends = change_blocks(applier, slots[0].table, keyed, replace(changes, groups=owners), len(slots), asked)
    found: list[Sequence[pa.Array]] = []
    for slot, (entries, old) in enumerate(zip(slots, was, strict=True)):
        mine = np.flatnonzero(moves.signs[:, slot])
        owner, signs, new = touched[moves.groups[mine]], moves.signs[mine, slot].astype(np.int64), list[pa.Array]()
        if entries.facts.counted:
            change = np.bincount(owner, signs, minlength=len(groups.input)).astype(np.int64)
            new.append(pc.add(old[0], pa.array(change)))
        for is_last in entries.facts.ends:
            new.append(_replaced(old[len(new)], touched, _decoded(entries, ends[slot, is_last])))
        if entries.facts.sums or entries.facts.exact_sums:
            values = _decoded(entries, moves.values.take(pa.array(mine)))
            new += _add_values(entries, old[len(new) :], owner, signs, values)
        found.append(new)
    return found


def nothing(column: Column) -> pa.Scalar:
    """What a group without rows has in a column of its record that is never NULL."""
    return pa.scalar(b"" if column.type == BINARY else 0, column.type.arrow)


def _add_values(
    entries: Entries, known: Sequence[pa.Array], owners: np.ndarray, signs: np.ndarray, values: pa.Array
) -> list[pa.Array]:
    """The sums over distinct values, plus those that appeared, minus those that vanished."""
    new, count = [], len(entries.adds)
    if count:
        adds = ", ".join(f"{sql} AS s{position}" for position, sql in enumerate(entries.adds))
        added = run_row_by_row(f"SELECT {adds} FROM rows", rows=pa.table({"ord": np.arange(len(values)), "e0": values}))
        for was, numbers in zip(known, added.columns, strict=False):
            change = exact_sums.sum_any(owners, signs, exact_sums.whole_of(numbers.combine_chunks()), len(was))
            new.append(exact_sums.add_exactly(was, change))
    for sums, kind in zip(known[count:], entries.facts.exact_sums, strict=True):
        for splits, mantissas in exact_sums.DOUBLE_SUMS[kind](np.asarray(values)):
            sums = exact_sums.add_sums(sums, owners, splits, pa.array(mantissas * signs))
        new.append(sums)
    return new


def _decoded(entries: Entries, values: pa.Array) -> pa.Array:
    """The first column of values, NULL where there is none."""
    valid = np.asarray(values.is_valid())
    (found, *_) = decode_keys(entries.values, values.drop_null())
    return found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _replaced(was: pa.Array, positions: np.ndarray, new: pa.Array) -> pa.Array:
    """`was` with other values at some places."""
    chosen = np.arange(len(was))
    chosen[positions] = len(was) + np.arange(len(new))
    return pa.concat_arrays([was, new.cast(was.type)]).take(pa.array(chosen))
