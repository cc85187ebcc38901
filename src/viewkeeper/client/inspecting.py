"""Inspecting: stored records, apart from those that cannot be read or are out of place.

In: the records of one partition. Out: those that are sound, and a fault for each that readers do not find, find twice or
cannot read. Always: no damage ends it; whatever is not named here is where a reader looks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.model.keys import decode_key
from viewkeeper.model.soundness import DAMAGE, Columns, sound_keys, sound_rows
from viewkeeper.model.values import from_stored

if TYPE_CHECKING:
    from viewkeeper.ports.reads import Stored

UNREADABLE, MISPLACED = "unreadable", "misplaced"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a record under `key`; `row` is there where it can be read."""

    key: bytes
    kind: str
    why: str
    row: bytes | None = None


def inspected(
    key: Columns, row: Columns, partition: int, partitions: int, stored: Stored
) -> tuple[pa.Array, pa.Array, list[Fault]]:
    """The keys and rows of sound records that belong into this partition, and what is wrong with the others."""
    keys, rows, damaged = stored
    faults = [Fault(at, UNREADABLE, why) for at, why in damaged]
    is_key = sound_keys(key, keys)
    is_sound = is_key & sound_rows(row, rows)
    for at in np.flatnonzero(~is_sound).tolist():
        what = "row" if is_key[at] else "key"
        faults.append(Fault(keys[at].as_py(), UNREADABLE, f"the bytes of its {what} are damaged"))
    keys, rows = _chosen(is_sound, keys, rows)
    is_here = hashes_of_keys(key, keys) % partitions == partition if len(keys) else np.ones(0, bool)
    for at in np.flatnonzero(~is_here).tolist():
        why = f"it is in partition {partition}, where a scan finds it and a get does not"
        faults.append(Fault(keys[at].as_py(), MISPLACED, why, rows[at].as_py()))
    return *_chosen(is_here, keys, rows), faults


def _chosen(flags: np.ndarray, keys: pa.Array, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
    return (keys, rows) if flags.all() else (keys.filter(pa.array(flags)), rows.filter(pa.array(flags)))


def shown_key(columns: Columns, key: bytes) -> tuple[object, ...]:
    """The key of a record or row; its bytes where they are none."""
    try:
        parts = zip(columns, decode_key(columns, key), strict=True)
        return tuple(from_stored(column, value) for column, value in parts)
    except DAMAGE:
        return (key,)
