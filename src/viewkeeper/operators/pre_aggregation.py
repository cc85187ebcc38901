"""PRE-AGGREGATION: distinct values of a group with their multiplicities, and what the group's record keeps of them.

The values of all arguments of one type are kept together, each argument in a slot of its own: many are the same, under other
conditions.

In: by how much multiplicities change. Out: how many distinct values each group has, the first and the last of them, and their
exact sums. Always: a value is found by its key (`value_blocks`), so no group is scanned; a sum changes by the values that
came into being or went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import decode_keys
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BINARY
from viewkeeper.operators import exact_sums
from viewkeeper.operators.apply import Applier, Found
from viewkeeper.operators.duck import as_type, run_sql
from viewkeeper.operators.value_blocks import Changes, change_blocks
from viewkeeper.plan.nodes import Entries


def apply_entries(
    applier: Applier,
    slots: Sequence[Entries],
    groups: Found,
    was: Sequence[Sequence[pa.Array]],
    parts: Mapping[int, pa.Table],
) -> list[Sequence[pa.Array]]:
    """Put the new multiplicities of the entries of one table; returns the groups' new facts, slot by slot.

    `was` are the facts of the epoch before, `parts` the changes by the number of their slot.
    """
    parts = {slot: part for slot, part in parts.items() if len(part)}
    if not parts:
        return list(was)
    changes = Changes.of(groups.input["key"].combine_chunks(), parts)
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
