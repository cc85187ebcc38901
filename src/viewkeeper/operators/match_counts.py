"""How many matches a row of a join has: by join key, or row by row where matching depends on more than the key.

In: changed rows of sides. Out: whether a row had a match and whether it has one. Always: old counts come from the
version below the epoch, new ones are the old ones plus the changes; entries are never counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import InvariantBroken
from viewkeeper.model.rowbatches import decode_rows, encode_rows
from viewkeeper.model.schema import Column
from viewkeeper.model.types import BIGINT
from viewkeeper.operators.apply import COUNT, Applier, rows_where
from viewkeeper.operators.side_rows import JoinKeys, SideRows

_COUNTS = (Column("first", BIGINT, nullable=False), Column("second", BIGINT, nullable=False))


class SideCounts:
    """How many rows each side has under the join keys that changed rows touch."""

    def __init__(self, applier: Applier, table: int, changed: Sequence[SideRows]) -> None:
        touched = [rows.join_keys() for rows in changed]
        keys = pa.concat_arrays([one.keys for one in touched]).dictionary_encode()
        _, first = np.unique(np.asarray(keys.indices), return_index=True)
        hashes = np.concatenate([one.hashes for one in touched])[first]
        found = applier.find(table, JoinKeys(keys.dictionary, hashes).table())
        self._keys = found.input["key"].combine_chunks()
        self._old = np.stack([np.asarray(part.fill_null(0)) for part in decode_rows(_COUNTS, found.rows)])
        self._new = self._old + np.stack([self._changes(rows) for rows in changed])
        if (self._new < 0).any():
            raise InvariantBroken(f"a join key of table {table} would have {self._new.min()} rows")
        rows = encode_rows(_COUNTS, [pa.array(part) for part in self._new], len(self._keys))
        applier.put(found, rows_where(self._new.any(axis=0), rows))

    def is_matched(self, rows: SideRows, other: int) -> tuple[np.ndarray, np.ndarray]:
        """For each row, whether side `other` had, and has, rows under its join key."""
        places = self._places(rows.relation["j"].combine_chunks())
        return _at(self._old[other], places) > 0, _at(self._new[other], places) > 0

    def crossing(self, keys: JoinKeys, other: int) -> np.ndarray:
        """The join keys under which side `other` had rows and has none, or the other way round."""
        places = self._places(keys.keys)
        return (_at(self._old[other], places) > 0) != (_at(self._new[other], places) > 0)

    def _changes(self, rows: SideRows) -> np.ndarray:
        places = self._places(rows.relation["j"].combine_chunks())
        known = places < len(self._keys)
        return np.bincount(places[known], rows.states[known], minlength=len(self._keys)).astype(np.int64)

    def _places(self, keys: pa.Array) -> np.ndarray:
        """The index of each key; past the last one where it matches nothing, because NULL matches no key."""
        return np.asarray(pc.index_in(keys, value_set=self._keys).fill_null(len(self._keys)))


def _at(numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
    return np.append(numbers, 0)[places]


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

    Only rows that lose or gain matches are returned: for the others both results are the same.
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
