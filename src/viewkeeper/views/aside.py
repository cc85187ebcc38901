"""Rows set aside: the base keys of rows on which a view's expression fails.

In: images and which of them fail. Out: events under the base key, as those of a copy. Always: a row that is changed so that
it no longer fails leaves the list in the same epoch (`architecture.md`, section 4).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from viewkeeper.model.keybatches import decode_keys, encode_keys
from viewkeeper.model.rowbatches import encode_rows
from viewkeeper.views.images import ImageTable


def aside_events(images: ImageTable, tried: pa.Table, *, came: bool) -> pa.Table | None:
    """The events of the images that `tried` (columns `ord`, `fails`) says fail; None when there are none."""
    failing = tried["ord"].filter(tried["fails"])
    if not len(failing):
        return None
    order = np.asarray(failing)
    keys = images.keys.take(pa.array(np.searchsorted(np.asarray(images.relation["ord"]), order)))
    columns = images.key_columns
    encoded, hashes = encode_keys(columns, decode_keys(columns, keys), len(keys))
    rows = encode_rows((), [], len(keys)) if came else pa.nulls(len(keys), pa.binary())
    return pa.table({"key": encoded, "hash": pa.array(hashes), "ord": failing, "row": rows})


def without_failing(tried: pa.Table) -> pa.Table:
    return tried.filter(pa.compute.invert(tried["fails"]))
