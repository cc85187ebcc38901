"""Rows set aside: the keys of a source's rows on which a view's expression fails.

In: delta rows and which of them fail. Out: events under the row key, like those of a copy. Always: a row that no longer
fails after a change leaves the list in the same epoch (`docs/sql.md`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.model.keybatches import hashes_of_keys
from viewkeeper.model.rowbatches import encode_rows
from viewkeeper.operators.delta_rows import Delta


def aside_events(delta: Delta, tried: pa.Table) -> pa.Table | None:
    """Events of the delta rows that fail according to `tried` (columns `ord`, `sign`, `fails`); None without any."""
    failing = tried.select(["ord", "sign"]).filter(tried["fails"]).combine_chunks()
    if not len(failing):
        return None
    keys = delta.keys_at(np.asarray(failing["ord"]))
    hashes = hashes_of_keys(delta.key_columns, keys)
    inserted = pa.array(np.asarray(failing["sign"]) > 0)
    rows = pc.if_else(inserted, encode_rows((), [], len(keys)), pa.scalar(None, pa.binary()))
    return pa.table({"key": keys, "hash": pa.array(hashes), "ord": failing["ord"], "row": rows})


def without_failing(tried: pa.Table) -> pa.Table:
    return tried.filter(pc.invert(tried["fails"]))
